#include "providers/labelled_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <unordered_map>

#include "kernels/error.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr int max_classes = 1'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// "shard-2.tar" before "shard-10.tar".
bool natural_less(std::string_view a, std::string_view b) {
  const auto take_number = [](std::string_view& text) {
    const std::size_t end = std::min(text.size(), text.find_first_not_of("0123456789"));
    std::string_view digits = text.substr(0, end);
    text.remove_prefix(end);
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    return digits;
  };
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const std::string_view x = take_number(a), y = take_number(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else if (a[0] != b[0]) {
      return a[0] < b[0];
    } else {
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;
}

/// "jpg" of "x.JPG"; "" without one.
std::string extension_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return "";
  std::string extension(name.substr(dot + 1));
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension;
}

bool is_image_extension(std::string_view extension) {
  constexpr std::array<std::string_view, 4> known = {"jpg", "jpeg", "png", "bmp"};
  return std::find(known.begin(), known.end(), extension) != known.end();
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

/// The names of a folder's sub-folders and tar files, each in their order.
struct Contents {
  std::vector<std::string> folders, shards;
  bool empty() const { return folders.empty() && shards.empty(); }
};
Contents contents_of(const fs::path& folder) {
  Contents contents;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (is_hidden(entry.path())) continue;
    if (entry.is_directory()) contents.folders.push_back(name);
    if (entry.is_regular_file() && extension_of(name) == "tar") contents.shards.push_back(name);
  }
  std::sort(contents.folders.begin(), contents.folders.end());
  std::sort(contents.shards.begin(), contents.shards.end(), natural_less);
  return contents;
}

class Finder {
 public:
  explicit Finder(LabelledImages& found) : found_(found) {}

  /// `part` of the data set's folder, "" or "train": class folders or shards. Training comes first: it
  /// decides what the classes are.
  void find(const std::string& part, std::vector<LabelledImage>& images) {
    const fs::path root(found_.folder), folder = part.empty() ? root : root / part;
    const Contents contents = contents_of(folder);
    if (!contents.folders.empty() && !contents.shards.empty())
      throw InputError(
          fmt::format("{}: holds folders ({}, …) and tar shards ({}, …): it should be one or the other",
                      folder.string(), printable(contents.folders[0]), printable(contents.shards[0])));
    if (contents.empty())
      throw InputError(folder.string() +
                       ": holds no images: folders CLASS/*.jpg|jpeg|png|bmp, or *.tar shards with KEY.jpg "
                       "and KEY.cls, should be in it, or train/ (and val/) with either");
    if (&images == &found_.training) found_.class_names = contents.folders;
    for (const std::string& name : contents.folders) find_class(part, name, images);
    for (const std::string& name : contents.shards) find_shard((folder / name).string(), images);
  }

  void find_shard(const std::string& path, std::vector<LabelledImage>& images);
  void name_classes();

 private:
  void find_class(const std::string& part, const std::string& name, std::vector<LabelledImage>& images);
  int class_of(const std::string& folder, const std::string& name) const;
  int read_label(const InputFile& file, const TarMember& member) const;

  LabelledImages& found_;
  bool numbered_ = false;  // classes are numbers in shards
  int most_label_ = -1;
};

int Finder::class_of(const std::string& folder, const std::string& name) const {
  if (numbered_)
    throw InputError(folder + ": a folder of a class, where training has shards with numbers of classes");
  const std::vector<std::string>& names = found_.class_names;
  const auto place = std::lower_bound(names.begin(), names.end(), name);
  if (place == names.end() || *place != name)
    throw InputError(fmt::format("{}: training has no class '{}'", folder, printable(name)));
  return static_cast<int>(place - names.begin());
}

void Finder::find_class(const std::string& part, const std::string& name,
                        std::vector<LabelledImage>& images) {
  const fs::path root(found_.folder);
  const fs::path folder = root / part / name;
  const int label = class_of(folder.string(), name);
  const std::size_t first = images.size();
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (is_hidden(entry.path()) || !is_image_extension(extension_of(entry.path().filename().string())) ||
        !entry.is_regular_file())
      continue;
    images.push_back({entry.path().lexically_relative(root).string(), -1, {0, entry.file_size()}, label});
  }
  if (images.size() == first)
    throw InputError(folder.string() +
                     ": holds no image (jpg, jpeg, png, bmp), though it stands for a class");
  std::sort(images.begin() + static_cast<std::ptrdiff_t>(first), images.end(),
            [](const LabelledImage& a, const LabelledImage& b) { return a.name < b.name; });
}

int Finder::read_label(const InputFile& file, const TarMember& member) const {
  const auto fail = [&](const std::string& what) {
    throw InputError(fmt::format("{}: {}: {}", file.path(), printable(member.name), what));
  };
  if (member.at.size > 32) fail(fmt::format("has {} bytes instead of the number of a class", member.at.size));
  std::string text = file.read(member.at.offset, member.at.size);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  int label = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
  if (error != std::errc() || end != text.data() + text.size() || label < 0 || label >= max_classes)
    fail(fmt::format("'{}' is no number of a class, 0 to {}", printable(text), max_classes - 1));
  return label;
}

void Finder::find_shard(const std::string& path, std::vector<LabelledImage>& images) {
  if (!numbered_ && !found_.training.empty())
    throw InputError(path + ": a shard with numbers of classes, where training has folders with names");
  numbered_ = true;
  const auto file = std::make_shared<const InputFile>(path);
  const auto tar = static_cast<std::int32_t>(found_.tars.size());
  found_.tars.push_back(file);
  const std::string shard = fs::path(path).filename().string();
  std::vector<TarMember> members = index_tar(*file);
  // A key is a member's name up to the first dot after its folder.
  const auto key_of = [](const std::string& name) {
    const std::size_t slash = name.rfind('/');
    return name.substr(0, name.find('.', slash == std::string::npos ? 0 : slash));
  };
  std::unordered_map<std::string, int> labels;
  for (const TarMember& member : members)
    if (extension_of(member.name) == "cls" &&
        !labels.emplace(key_of(member.name), read_label(*file, member)).second)
      throw InputError(fmt::format("{}: {}: its key has two classes", path, printable(member.name)));
  std::set<std::string> seen;
  for (TarMember& member : members) {
    if (!is_image_extension(extension_of(member.name))) continue;
    const std::string key = key_of(member.name);
    const auto label = labels.find(key);
    if (label == labels.end())
      throw InputError(fmt::format("{}: {}: there is no {}.cls with its class", path, printable(member.name),
                                   printable(key)));
    if (!seen.insert(key).second)
      throw InputError(fmt::format("{}: {}: its key has two images", path, printable(member.name)));
    most_label_ = std::max(most_label_, label->second);
    images.push_back({shard + ": " + member.name, tar, member.at, label->second});
  }
}

/// Of shards: after classes.txt, or numbers.
void Finder::name_classes() {
  if (!numbered_) return;
  std::optional<std::string> file;
  for (const char* name : {"classes.txt", "train/classes.txt"}) {
    const std::string path = (fs::path(found_.folder) / name).string();
    if (!file && fs::is_regular_file(path)) file = path;
  }
  if (!file) {
    for (int label = 0; label <= most_label_; ++label) found_.class_names.push_back(std::to_string(label));
    return;
  }
  std::istringstream lines(read_whole_file(*file));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    found_.class_names.push_back(line);
  }
  if (found_.class_names.size() > static_cast<std::size_t>(max_classes))
    throw InputError(fmt::format("{}: has {} lines; there are at most {} classes", *file,
                                 found_.class_names.size(), max_classes));
  if (most_label_ >= static_cast<int>(found_.class_names.size()))
    throw InputError(fmt::format("{}: names {} classes, but there are images of class {}", *file,
                                 found_.class_names.size(), most_label_));
}

/// Calls `find` to fill `found`; what the file system refuses is a RunError.
template <class Find>
void fill(LabelledImages& found, const Find& find) {
  try {
    Finder finder(found);
    find(finder);
    finder.name_classes();
  } catch (const fs::filesystem_error& e) {
    throw RunError(fmt::format("{}: cannot be read: {}", e.path1().string(), e.code().message()));
  }
  if (found.training.empty())
    throw InputError((found.folder.empty() ? "the shards" : found.folder) + ": there are no training images");
}

}  // namespace

std::string LabelledImages::read(const LabelledImage& image) const {
  if (image.tar < 0) return read_whole_file((fs::path(folder) / image.name).string());
  return tars[static_cast<std::size_t>(image.tar)]->read(image.at.offset, image.at.size);
}

LabelledImages find_labelled_images(const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) throw InputError(folder + ": no such folder");
  LabelledImages found;
  found.folder = folder;
  fill(found, [&](Finder& finder) {
    const auto has = [&](const char* part) { return fs::is_directory(fs::path(folder) / part); };
    // A class may be called "train": images lie in it, not folders.
    const bool parts = has("train") && !contents_of(fs::path(folder) / "train").empty();
    finder.find(parts ? "train" : "", found.training);
    if (parts && (has("val") || has("test"))) finder.find(has("val") ? "val" : "test", found.validation);
  });
  return found;
}

LabelledImages find_labelled_images(const std::vector<std::string>& shards) {
  LabelledImages found;
  fill(found, [&](Finder& finder) {
    for (const std::string& shard : shards) finder.find_shard(shard, found.training);
  });
  return found;
}

}  // namespace convnet
