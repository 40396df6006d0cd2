// The cache of decoded pictures: what it keeps, and what it does not trust.
#include "providers/picture_cache.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "convnet/base/error.h"
#include "providers/resize.h"
#include "tests/catch.h"
#include "tests/providers/image_sets.h"
#include "tests/providers/test_images.h"
#include "tests/temp_folder.h"

namespace convnet {
namespace {

using namespace image_sets;

constexpr int kSide = 20;
constexpr std::size_t kRecord = 64;

ImageWindow whole(ImageSize size) { return {0, 0, size.height, size.width}; }

PictureOrigin origin_of(int picture, std::int64_t modified = 5) {
  return {"/photos/" + std::to_string(picture) + ".jpg", 100, modified};
}
DecodedImage picture_of(int picture) { return test_images::waves(kSide, kSide + picture, picture); }

/// A folder with a cache of three pictures.
class Cached {
 public:
  Cached() {
    PictureCache cache(folder.path(), kSide);
    for (int i = 0; i < 3; ++i) cache.add(origin_of(i), picture_of(i));
  }

  /// Returns which of the three pictures a new cache finds.
  std::vector<bool> found() const {
    PictureCache cache(folder.path(), kSide);
    std::vector<bool> all;
    for (int i = 0; i < 3; ++i) {
      const auto picture = cache.read(origin_of(i), whole);
      all.push_back(picture.has_value());
      if (picture) CHECK(picture->pixels == picture_of(i).pixels);
    }
    return all;
  }
  /// Replaces `count` bytes of a file.
  void damage(const std::string& file, std::size_t at, std::size_t count = 1) const {
    std::string bytes = read_file(file);
    for (std::size_t i = at; i < at + count; ++i) bytes.at(i) = static_cast<char>(bytes.at(i) ^ 0x55);
    write_file(file, bytes);
  }

  TempFolder folder;
  const std::string index = folder / "pictures-20.index", data = folder / "pictures-20.data";
};

/// Limits the size of files as long as it lives.
class FileLimit {
 public:
  explicit FileLimit(std::uint64_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int) = nullptr;
};

ImageOptions cached_options(const std::string& folder, double random_resized_crop) {
  ImageOptions options = sized(kSide, 16);
  options.cache = folder;
  options.random_resized_crop = random_resized_crop;
  return options;
}

}  // namespace

TEST_CASE("a cache keeps pictures, and returns windows of them", "[picture_cache]") {
  const Cached cached;
  CHECK(cached.found() == std::vector<bool>{true, true, true});
  PictureCache cache(cached.folder.path(), kSide);
  for (int time = 0; time < 2; ++time) {  // before and after its checksum is compared
    const ImageWindow window = {3, 4, 5, 6};
    const auto part = cache.read(origin_of(1), [&](ImageSize size) {
      CHECK(size.height == kSide);
      CHECK(size.width == kSide + 1);
      return window;
    });
    REQUIRE(part);
    CHECK(part->pixels == cut_window(picture_of(1), window).pixels);
  }
  CHECK_FALSE(cache.read(origin_of(7), whole));
  // Caches for other sides have files of their own.
  PictureCache other(cached.folder.path(), kSide + 1);
  CHECK_FALSE(other.read(origin_of(1), whole));
}

TEST_CASE("a picture whose file has changed is replaced", "[picture_cache]") {
  const Cached cached;
  {
    PictureCache cache(cached.folder.path(), kSide);
    CHECK_FALSE(cache.read(origin_of(1, 6), whole));
    PictureOrigin longer = origin_of(1);
    ++longer.size;
    CHECK_FALSE(cache.read(longer, whole));
    cache.add(origin_of(1, 6), picture_of(2));
    CHECK(cache.read(origin_of(1, 6), whole)->pixels == picture_of(2).pixels);
  }
  CHECK(cached.found() == std::vector<bool>{true, false, true});
}

TEST_CASE("processes that share a cache see what the others add, and add nothing twice", "[picture_cache]") {
  const TempFolder folder;
  PictureCache one(folder.path(), kSide), two(folder.path(), kSide);
  one.add(origin_of(0), picture_of(0));
  CHECK(two.read(origin_of(0), whole)->pixels == picture_of(0).pixels);
  two.add(origin_of(1), picture_of(1));
  const auto size = std::filesystem::file_size(folder / "pictures-20.index");
  one.add(origin_of(1), picture_of(1));
  CHECK(std::filesystem::file_size(folder / "pictures-20.index") == size);
  std::vector<std::thread> threads;
  for (PictureCache* const cache : {&one, &two, &one, &two})
    threads.emplace_back([cache] {
      for (int i = 0; i < 30; ++i) {
        if (!cache->read(origin_of(i), whole)) cache->add(origin_of(i), picture_of(i));
      }
    });
  for (std::thread& thread : threads) thread.join();
  PictureCache three(folder.path(), kSide);
  for (int i = 0; i < 30; ++i) CHECK(three.read(origin_of(i), whole)->pixels == picture_of(i).pixels);
  CHECK(std::filesystem::file_size(folder / "pictures-20.index") == 31 * kRecord);
}

TEST_CASE("half-written and damaged pictures are not trusted, and can be added again", "[picture_cache]") {
  const Cached cached;
  const std::vector<bool> none = {false, false, false}, first = {true, false, false},
                          not_second = {true, false, true};
  const std::string index = read_file(cached.index), data = read_file(cached.data);
  const std::size_t second = kRecord + 3 * kSide * kSide;
  SECTION("pixels are wrong") {
    cached.damage(cached.data, second + 100);
    CHECK(cached.found() == not_second);
  }
  SECTION("an entry is wrong") {
    cached.damage(cached.index, 2 * kRecord + 8);
    CHECK(cached.found() == not_second);
  }
  SECTION("pixels are missing") {
    write_file(cached.data, data.substr(0, second + 50));
    CHECK(cached.found() == first);
  }
  SECTION("the last entry is cut off") {
    write_file(cached.index, index.substr(0, 2 * kRecord + 17));
    CHECK(cached.found() == first);
  }
  SECTION("pixels without an entry are overwritten") {
    write_file(cached.index, index.substr(0, 2 * kRecord));
    CHECK(cached.found() == first);
  }
  SECTION("one of the files is missing") {
    std::filesystem::remove(cached.data);
    CHECK(cached.found() == none);
  }
  SECTION("the files are of two caches") {
    cached.damage(cached.data, 24);
    CHECK(cached.found() == none);
  }
  SECTION("a killed process has written a part of the header") {
    write_file(cached.index, index.substr(0, 20));
    CHECK(cached.found() == none);
  }
  {
    PictureCache cache(cached.folder.path(), kSide);
    for (int i = 0; i < 3; ++i) {
      if (!cache.read(origin_of(i), whole)) cache.add(origin_of(i), picture_of(i));
    }
  }
  CHECK(cached.found() == std::vector<bool>{true, true, true});
}

TEST_CASE("pixels that become damaged while a cache is open are noticed at the first look",
          "[picture_cache]") {
  const Cached cached;
  PictureCache cache(cached.folder.path(), kSide);
  write_file(cached.data, "");
  CHECK_FALSE(cache.read(origin_of(0), whole));
}

TEST_CASE("files that are no cache stay as they are", "[picture_cache]") {
  const Cached cached;
  const auto refusal = [&] {
    return message_of<InputError>([&] { PictureCache(cached.folder.path(), kSide); });
  };
  const std::string no_cache = ": is no cache of pictures; choose another folder for --cache-images";
  SECTION("index") {
    write_file(cached.index, "something else");
    CHECK(refusal() == cached.index + no_cache);
    CHECK(read_file(cached.index) == "something else");
  }
  SECTION("pixels") {
    write_file(cached.data, "something else");
    CHECK(refusal() == cached.data + no_cache);
    std::filesystem::remove(cached.index);
    CHECK(refusal() == cached.data + no_cache);
    CHECK(read_file(cached.data) == "something else");
  }
  SECTION("header") {
    cached.damage(cached.index, 40);
    CHECK(refusal() ==
          cached.index + ": is damaged; remove it and " + cached.data + ", and the next run makes them anew");
  }
  SECTION("a link") {
    std::filesystem::rename(cached.index, cached.folder / "elsewhere");
    std::filesystem::create_symlink(cached.folder / "elsewhere", cached.index);
    CHECK_THROWS_AS(PictureCache(cached.folder.path(), kSide), RunError);
  }
}

TEST_CASE("a cache that is removed while it is in use is read on, and gets no more", "[picture_cache]") {
  const Cached cached;
  PictureCache cache(cached.folder.path(), kSide);
  std::filesystem::remove(cached.index);
  std::filesystem::remove(cached.data);
  CHECK(cache.read(origin_of(0), whole));
  cache.add(origin_of(5), picture_of(5));
  CHECK_FALSE(cache.read(origin_of(5), whole));
  CHECK(cached.found() == std::vector<bool>{false, false, false});
}

TEST_CASE("a full disk is an error that names the file, and leaves a sound cache", "[picture_cache]") {
  const Cached cached;
  const auto size = std::filesystem::file_size(cached.data);
  {
    PictureCache cache(cached.folder.path(), kSide);
    const FileLimit limit(size + 100);
    const std::string message = message_of<DiskFullError>([&] { cache.add(origin_of(5), picture_of(5)); });
    CHECK(message.starts_with(cached.data + ": cannot be written: "));
    CHECK(message.find("; it keeps 3 decoded pictures in ") != std::string::npos);
  }
  CHECK(std::filesystem::file_size(cached.data) == size);
  CHECK(cached.found() == std::vector<bool>{true, true, true});
}

TEST_CASE("the image provider reads the same pixels while it fills a cache and afterwards",
          "[picture_cache]") {
  const TempFolder folder;
  const std::vector<Item> items = photographs(12, 3, 40);
  write_folders(folder / "set", items);
  for (const double crop : {0.0, 0.1}) {
    INFO(crop);
    const ImageOptions options = cached_options(folder / "cache", crop);
    const auto filling = open_images(folder / "set", options);
    const DataBatch first = filling->read({1, 1}, {}), again = filling->read({1, 1}, {});
    CHECK(again.matrices == first.matrices);
    CHECK(open_images(folder / "set", options)->read({1, 1}, {}).matrices == first.matrices);
    ImageOptions bare = options;
    bare.cache.clear();
    const auto without = open_images(folder / "set", bare);
    CHECK((without->read({1, 1}, {}).matrices == first.matrices) == (crop == 0));
    // Tests, statistics and grey pictures are the same with every cache.
    CHECK(without->read({1, 0}, {}).matrices == filling->read({1, 0}, {}).matrices);
    CHECK(without->statistics({1, 1}).mean == filling->statistics({1, 1}).mean);
  }
  // A photo with another content is read anew.
  const ImageOptions options = cached_options(folder / "cache", 0);
  const DataBatch before = open_images(folder / "set", options)->read({1, 0}, {});
  write_file(folder / "set/c0/1000.jpg", items[4].bytes);
  const DataBatch after = open_images(folder / "set", options)->read({1, 0}, {});
  CHECK(before.matrices != after.matrices);
  ImageOptions bare = options;
  bare.cache.clear();
  CHECK(open_images(folder / "set", bare)->read({1, 0}, {}).matrices == after.matrices);
}

}  // namespace convnet
