// The three forms of an image data set, written for tests, and what is read of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convnet/base/error.h"
#include "providers/decode.h"
#include "providers/image.h"
#include "providers/jpeg.h"
#include "providers/pickle_write.h"
#include "providers/registry.h"
#include "tests/catch.h"
#include "tests/providers/tar_writer.h"
#include "tests/providers/test_images.h"
#include "tests/temp_folder.h"

namespace convnet::image_sets {

/// An image of a data set: its file and class.
struct Item {
  std::string bytes;
  int label = 0;
};

/// `count` JPEGs of `classes` classes in turn, of different sizes with shorter sides of at least `side`.
inline std::vector<Item> photographs(int count, int classes, int side) {
  std::vector<Item> items;
  for (int i = 0; i < count; ++i) {
    const int longer = side + 3 + i % 7;
    const bool high = i % 2 == 0;
    items.push_back(
        {encode_jpeg(test_images::waves(high ? longer : side, high ? side : longer, i % 5)), i % classes});
  }
  return items;
}

/// FOLDER/cK/NNN.jpg.
inline void write_folders(const std::string& folder, const std::vector<Item>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string name = folder + "/c" + std::to_string(items[i].label);
    std::filesystem::create_directories(name);
    write_file(name + "/" + std::to_string(1000 + i) + ".jpg", items[i].bytes);
  }
}

/// One shard.
inline std::string tar_of(const std::vector<Item>& items) {
  std::string tar;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string key = "s/" + std::to_string(1000 + i);
    tar += tars::member(key + ".jpg", items[i].bytes) +
           tars::member(key + ".cls", std::to_string(items[i].label)) + tars::member(key + ".json", "{}");
  }
  return tar + tars::end();
}

/// A pickle of cuda-convnet2; `labels` as a list of lists.
inline std::string sub_batch(const std::vector<std::string>& images,
                             const std::vector<std::vector<int>>& labels) {
  std::vector<std::string> data, lists;
  for (const std::string& bytes : images) data.push_back(pickles::str(bytes));
  for (const std::vector<int>& of_image : labels) lists.push_back(pickles::integers(of_image));
  return pickles::pickle_file(
      pickles::dict({{"data", pickles::list(data)}, {"labels", pickles::list(lists)}}));
}

inline std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// batches.meta with `more` entries.
inline std::string meta(int classes, int batch_size, int side,
                        const std::vector<std::pair<std::string, std::string>>& more = {}) {
  std::vector<std::string> names;
  for (int c = 0; c < classes; ++c) names.push_back(pickles::str("class " + std::to_string(c)));
  std::vector<std::pair<std::string, std::string>> entries = {{"label_names", pickles::list(names)},
                                                              {"batch_size", pickles::integer(batch_size)},
                                                              {"img_size", pickles::integer(side)}};
  entries.insert(entries.end(), more.begin(), more.end());
  return pickles::pickle_file(pickles::dict(entries));
}

/// FOLDER/data_batch_`number`/data_batch_`number`.k, of `size` images each.
inline void write_batch(const std::string& folder, int number, const std::vector<Item>& items,
                        std::size_t size) {
  const std::string name = "data_batch_" + std::to_string(number);
  std::filesystem::create_directories(folder + "/" + name);
  for (std::size_t k = 0; k * size < items.size(); ++k) {
    std::vector<std::string> images;
    std::vector<std::vector<int>> labels;
    for (std::size_t i = k * size; i < std::min(items.size(), (k + 1) * size); ++i) {
      images.push_back(items[i].bytes);
      labels.push_back({items[i].label});
    }
    write_file(folder + "/" + name + "/" + name + "." + std::to_string(k), sub_batch(images, labels));
  }
}

/// Provider `image` on the data set at `path`.
inline std::unique_ptr<Provider> open_images(const std::string& path, const ImageOptions& options = {},
                                             std::uint64_t seed = 1) {
  return make_provider("image", path, seed, options);
}

inline std::vector<std::int32_t> image_labels_of(const DataBatch& data) {
  std::vector<std::int32_t> labels(data.matrices[1].size() / 4);
  std::memcpy(labels.data(), data.matrices[1].data(), data.matrices[1].size());
  return labels;
}

inline std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Image `i` of a piece, of u8.
inline std::vector<std::byte> image_of(const DataBatch& data, std::int64_t i) {
  const auto size = static_cast<std::ptrdiff_t>(data.matrices[0].size()) / data.images;
  return {data.matrices[0].begin() + i * size, data.matrices[0].begin() + (i + 1) * size};
}

/// Options: the shorter sides of images become `image_size`; `inner_size` as in --inner-size.
inline ImageOptions sized(int image_size, int inner_size = 0) {
  ImageOptions options;
  options.image_size = image_size;
  options.inner_size = inner_size;
  return options;
}

/// Returns what reading batch 1 of `path` says is wrong.
inline std::string read_error_of(const std::string& path, const ImageOptions& options = {}) {
  return message_of<InputError>([&] { open_images(path, options)->read({1, 0}, {}); });
}

}  // namespace convnet::image_sets
