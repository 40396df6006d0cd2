#include "providers/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "convnet/base/text_file.h"

namespace convnet {
namespace {

/// The parts of a member's name.
struct NameParts {
  std::size_t base = 0;   ///< where the name of the file begins
  std::size_t dot = 0;    ///< place of the last dot; the length of the name if there is none
  std::string extension;  ///< in lower case
  bool hidden = false;
};

NameParts parts_of(std::string_view name) {
  NameParts parts;
  parts.base = name.rfind('/') + 1;  // 0 without one
  parts.dot = name.rfind('.');
  if (parts.dot == std::string_view::npos || parts.dot < parts.base) parts.dot = name.size();
  parts.extension = lower_extension(name, parts.dot);
  parts.hidden = name.substr(parts.base).starts_with('.');
  return parts;
}

/// Reads the number in a .cls file.
std::int32_t read_label(const InputFile& file, const TarMember& member, std::int64_t classes) {
  const auto fail = [&](const std::string& what) {
    throw InputError(fmt::format("{}: {}: {}", file.path(), printable(member.name), what));
  };
  constexpr std::uint64_t most = 32;
  const std::string bytes = file.read(member.at.offset, std::min(member.at.size, most));
  const std::string_view text = without_byte_order_mark(bytes);
  const auto blank = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  const auto begin = std::find_if_not(text.begin(), text.end(), blank);
  const auto end = std::find_if_not(text.rbegin(), text.rend(), blank).base();
  std::int32_t label = -1;
  const char* const last = text.data() + (end - text.begin());
  const auto parsed = std::from_chars(text.data() + (begin - text.begin()), last, label);
  if (member.at.size > most || begin >= end || parsed.ec != std::errc() || parsed.ptr != last)
    fail(fmt::format("'{}' is not the number of a class", printable(text)));
  if (label < 0 || label >= classes) fail(fmt::format("class {}; classes are 0 to {}", label, classes - 1));
  return label;
}

/// Finds the pairs of images and labels.
class Pairing {
 public:
  Pairing(const InputFile& file, LeftOutFiles& left_out)
      : path_(file.path()), left_out_(left_out), members_(index_tar(file)) {}

  struct Pair {
    const TarMember *image = nullptr, *label = nullptr;
  };
  /// Returns the pairs in the order of their images in the tar.
  std::vector<Pair> pairs() {
    list_parts();
    std::map<std::string_view, Candidates> by_stem;
    for (std::size_t i = 0; i < parts_.size(); ++i) by_stem[parts_[i].stems[0]].add(parts_[i], i);
    for (const auto& [stem, found] : by_stem) {
      for (const std::vector<std::size_t>* same : {&found.images, &found.labels})
        if (same->size() > 1)
          throw InputError(
              fmt::format("{}: '{}' and '{}' are of one image", path_, shown((*same)[0]), shown((*same)[1])));
      if (!found.images.empty() && !found.labels.empty()) pair(found.images[0], found.labels[0], stem);
    }
    pair_by_beginnings();
    std::vector<Pair> found;
    for (const Part& part : parts_)
      if (part.is_image && part.partner != kNone) found.push_back({part.member, parts_[part.partner].member});
    if (found.empty())
      throw InputError(fmt::format("{}: there are no images ({}) in it", path_, kImageExtensions));
    return found;
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  /// A member that is an image or a label.
  struct Part {
    const TarMember* member;
    bool is_image;
    /// The name up to its last dot, and up to each earlier one, as far as there are not too many.
    std::vector<std::string_view> stems;
    std::size_t partner = kNone;
  };
  struct Candidates {
    std::vector<std::size_t> images, labels;
    void add(const Part& part, std::size_t index) { (part.is_image ? images : labels).push_back(index); }
  };

  std::string shown(std::size_t part) const { return printable(parts_[part].member->name); }

  void list_parts() {
    for (const TarMember& member : members_) {
      const std::string_view name = member.name;
      const NameParts of_name = parts_of(name);
      if (of_name.hidden) continue;
      const bool is_image = is_image_extension(of_name.extension);
      if (!is_image && of_name.extension != "cls") {
        left_out_.add_member(named(member), is_other_picture(of_name.extension));
        continue;
      }
      Part part{&member, is_image, {}};
      constexpr std::size_t kMostStems = 32;  // a name of dots alone would have a million
      for (std::size_t dot = of_name.dot;
           dot != std::string_view::npos && dot > of_name.base && part.stems.size() < kMostStems;
           dot = name.rfind('.', dot - 1))
        part.stems.push_back(name.substr(0, dot));
      parts_.push_back(std::move(part));
    }
  }

  std::string named(const TarMember& member) const {
    return fmt::format("{}: {}", path_, printable(member.name));
  }

  void pair(std::size_t image, std::size_t label, std::string_view stem) {
    parts_[image].partner = label;
    parts_[label].partner = image;
    paired_.insert(stem);
  }

  /// Pairs members without a partner of the same name by the beginnings of their names, the longest ones
  /// first.
  void pair_by_beginnings() {
    std::vector<std::size_t> rest;
    std::map<std::string_view, Candidates> by_stem;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      if (part.partner != kNone) continue;
      // More of a sample that has its pair.
      if (std::any_of(part.stems.begin() + 1, part.stems.end(),
                      [&](std::string_view stem) { return paired_.contains(stem); })) {
        left_out_.unpaired.add({1, named(*part.member)});
        continue;
      }
      rest.push_back(i);
      for (const std::string_view stem : part.stems) by_stem[stem].add(part, i);
    }
    std::vector<std::string_view> stems;
    for (const auto& [stem, found] : by_stem) stems.push_back(stem);
    std::stable_sort(stems.begin(), stems.end(),
                     [](std::string_view a, std::string_view b) { return a.size() > b.size(); });
    for (const std::string_view stem : stems) {
      Candidates& found = by_stem[stem];
      for (std::vector<std::size_t>* all : {&found.images, &found.labels})
        std::erase_if(*all, [&](std::size_t i) { return parts_[i].partner != kNone; });
      if (found.images.empty() || found.labels.empty()) continue;
      if (found.images.size() > 1) refuse(found.labels[0], found.images);
      if (found.labels.size() > 1) refuse(found.images[0], found.labels);
      pair(found.images[0], found.labels[0], stem);
    }
    const bool has_labels =
        std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return !part.is_image; });
    const std::string label = has_labels
                                  ? "its .cls, the label"
                                  : "its .cls, the label; unpack the tar if it has a folder for each class";
    for (const std::size_t i : rest)
      if (parts_[i].partner == kNone)
        throw InputError(
            fmt::format("{}: '{}' is there without {}", path_, shown(i),
                        parts_[i].is_image ? label : fmt::format("an image ({})", kImageExtensions)));
  }

  [[noreturn]] void refuse(std::size_t part, const std::vector<std::size_t>& partners) const {
    throw InputError(fmt::format(
        "{}: '{}' may belong to '{}' or to '{}'; an image and its label should have the same name "
        "up to the last dot",
        path_, shown(part), shown(partners[0]), shown(partners[1])));
  }

  const std::string& path_;
  LeftOutFiles& left_out_;
  const std::vector<TarMember> members_;
  std::vector<Part> parts_;
  std::set<std::string_view> paired_;  ///< the stems of pairs
};

}  // namespace

TarImages image_members(const InputFile& tar) {
  TarImages found;
  for (TarMember& member : index_tar(tar)) {
    const NameParts parts = parts_of(member.name);
    if (parts.hidden) continue;
    if (is_image_extension(parts.extension)) {
      found.images.push_back(std::move(member));
      continue;
    }
    found.left_out.add_member(fmt::format("{}: {}", tar.path(), printable(member.name)),
                              is_other_picture(parts.extension));
  }
  return found;
}

Shard read_shard(const InputFile& file, std::int64_t classes) {
  Shard shard;
  Pairing pairing(file, shard.left_out);
  for (const Pairing::Pair& pair : pairing.pairs())
    shard.images.push_back({pair.image->name, pair.image->at, read_label(file, *pair.label, classes)});
  return shard;
}

}  // namespace convnet
