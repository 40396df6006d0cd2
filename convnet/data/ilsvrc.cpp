#include "convnet/data/ilsvrc.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "convnet/data/synsets.h"

namespace convnet {
namespace {

/// The real devkit has 10 MB.
constexpr std::size_t kMaxDevkitBytes = std::size_t{256} << 20;

constexpr const char* meta_file = "data/meta.mat";
constexpr const char* truth_name = "data/ILSVRC2012_validation_ground_truth.txt";

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

/// A gzip file's contents, bounded; a file that is not gzip is refused.
std::string gunzip(const std::string& path) {
  const auto fail = [&](const std::string& what) { throw InputError(fmt::format("{}: {}", path, what)); };
  const InputFile file(path);
  if (file.size() > kMaxDevkitBytes) fail(fmt::format("is larger than {} MiB", kMaxDevkitBytes >> 20));
  const std::string packed = file.read(0, file.size());
  z_stream stream = {};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) throw std::bad_alloc();
  struct End {
    z_stream& stream;
    ~End() { inflateEnd(&stream); }
  } end{stream};
  std::string out;
  std::string_view left = packed;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    if (out.size() >= kMaxDevkitBytes)
      fail(fmt::format("is larger than {} MiB when decompressed", kMaxDevkitBytes >> 20));
    const std::size_t done = out.size(), step = std::size_t{1} << 20;
    const std::string_view piece = left.substr(0, std::size_t{1} << 20);
    out.resize(done + step);
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(piece.data()));
    stream.avail_in = static_cast<uInt>(piece.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream.avail_out = static_cast<uInt>(step);
    state = inflate(&stream, Z_NO_FLUSH);
    left.remove_prefix(piece.size() - stream.avail_in);
    out.resize(done + step - stream.avail_out);
    if (state == Z_BUF_ERROR || (state == Z_OK && left.empty() && out.size() == done))
      fail("the gzip data is truncated");
    if (state != Z_OK && state != Z_STREAM_END)
      fail(fmt::format("corrupt gzip data: {}", stream.msg != nullptr ? stream.msg : "no gzip file"));
  }
  return out;
}

struct Devkit {
  std::vector<Synset> synsets;
  std::vector<int> truth;  ///< ILSVRC2012_IDs of the validation images
};

std::vector<int> read_truth(std::string_view text, const std::string& name) {
  std::vector<int> ids;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.size(), text.find('\n', at));
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    int id = 0;
    const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), id);
    if (error != std::errc() || stop != line.data() + line.size() || id < 1)
      throw InputError(fmt::format("{}:{}: '{}' is no ILSVRC2012_ID", name, ids.size() + 1, printable(line)));
    ids.push_back(id);
  }
  return ids;
}

Devkit read_devkit(const std::string& path) {
  const InputFile tar(path, gunzip(path));
  std::optional<FileRegion> meta, truth;
  for (const TarMember& member : index_tar(tar)) {
    if (member.name.ends_with(meta_file)) meta = member.at;
    if (member.name.ends_with(truth_name)) truth = member.at;
  }
  if (!meta || !truth) throw InputError(fmt::format("{}: has no {}", path, meta ? truth_name : meta_file));
  return {read_synsets(tar.read(meta->offset, meta->size), path + ": " + meta_file),
          read_truth(tar.read(truth->offset, truth->size), path + ": " + truth_name)};
}

/// Adds the images of one class's tar, in order of their names.
void add_class(LabelledImages& found, const TarMember& tar, int label) {
  const std::size_t first = found.training.size();
  for (TarMember& member : index_tar(*found.tars[0], tar.at))
    found.training.push_back({std::move(member.name), 0, member.at, label});
  if (found.training.size() == first)
    throw InputError(fmt::format("{}: {}: holds no images", found.tars[0]->path(), printable(tar.name)));
  std::sort(found.training.begin() + static_cast<std::ptrdiff_t>(first), found.training.end(),
            [](const LabelledImage& a, const LabelledImage& b) { return a.name < b.name; });
}

/// The training tar's class tars by ILSVRC2012_ID.
std::map<int, TarMember> class_tars(const InputFile& file, const std::vector<Synset>& synsets) {
  std::map<std::string, int> ids;
  for (const Synset& synset : synsets) ids[synset.wnid] = synset.id;
  std::map<int, TarMember> tars;
  for (TarMember& member : index_tar(file)) {
    const std::string name = file_name(member.name);
    const auto id = name.ends_with(".tar") ? ids.find(name.substr(0, name.size() - 4)) : ids.end();
    if (id == ids.end())
      throw InputError(fmt::format("{}: {}: is not the tar of a class in the devkit's {}", file.path(),
                                   printable(member.name), meta_file));
    if (!tars.emplace(id->second, std::move(member)).second)
      throw InputError(fmt::format("{}: has two tars of ILSVRC2012_ID {}", file.path(), id->second));
  }
  if (tars.empty()) throw InputError(file.path() + ": holds no tars of classes");
  return tars;
}

}  // namespace

LabelledImages find_ilsvrc_images(const IlsvrcTars& tars) {
  LabelledImages found;
  found.tars = {std::make_shared<const InputFile>(tars.training),
                std::make_shared<const InputFile>(tars.validation)};
  const Devkit devkit = read_devkit(tars.devkit);
  const std::map<int, TarMember> classes = class_tars(*found.tars[0], devkit.synsets);
  // The synsets beyond the last with images are unions of others.
  const int count = classes.rbegin()->first;
  found.class_names.resize(static_cast<std::size_t>(count));
  std::vector<bool> named(found.class_names.size(), false);
  for (const Synset& synset : devkit.synsets) {
    if (synset.id > count) continue;
    const auto label = static_cast<std::size_t>(synset.id - 1);
    if (named[label])
      throw InputError(
          fmt::format("{}: {}: has two synsets of ILSVRC2012_ID {}", tars.devkit, meta_file, synset.id));
    named[label] = true;
    found.class_names[label] = synset.words;
  }
  if (const auto gap = std::find(named.begin(), named.end(), false); gap != named.end())
    throw InputError(fmt::format("{}: {}: has no synset of ILSVRC2012_ID {}", tars.devkit, meta_file,
                                 gap - named.begin() + 1));
  for (const auto& [id, tar] : classes) add_class(found, tar, id - 1);

  std::vector<TarMember> validation = index_tar(*found.tars[1]);
  std::sort(validation.begin(), validation.end(),
            [](const TarMember& a, const TarMember& b) { return a.name < b.name; });
  if (validation.size() != devkit.truth.size())
    throw InputError(fmt::format("{}: holds {} images, but {} of {} has {} lines", tars.validation,
                                 validation.size(), truth_name, tars.devkit, devkit.truth.size()));
  for (std::size_t i = 0; i < validation.size(); ++i) {
    const int id = devkit.truth[i];
    if (id > count)
      throw InputError(fmt::format("{}: {}:{}: ILSVRC2012_ID {} has no training images; there are 1 to {}",
                                   tars.devkit, truth_name, i + 1, id, count));
    found.validation.push_back({std::move(validation[i].name), 1, validation[i].at, id - 1});
  }
  return found;
}

}  // namespace convnet
