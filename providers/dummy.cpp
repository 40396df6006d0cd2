#include "providers/dummy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/philox.h"

namespace convnet {
namespace {

constexpr std::int64_t kImagesPerBatch = 1000;
/// The limit of a size, and of the values in a batch.
constexpr std::int64_t kMaxValue = std::int64_t{1} << 31;
constexpr std::int64_t kDefaultClasses = 10;

/// Parses a decimal number from 1 to kMaxValue.
std::optional<std::int64_t> parse_size(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxValue)
    return std::nullopt;
  return value;
}

/// Cuts `prefix` off `text`, if `text` has it.
bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Parses "CxHxW" or "n", with `sides` sides.
std::optional<Dims> parse_sides(std::string_view text, std::size_t sides) {
  Dims dims;
  for (;;) {
    const std::size_t cut = text.find('x');
    const auto side = parse_size(text.substr(0, cut));
    if (!side || dims.size() == sides) return std::nullopt;
    dims.push_back(*side);
    if (cut == std::string_view::npos) break;
    text.remove_prefix(cut + 1);
  }
  if (dims.size() != sides) return std::nullopt;
  return dims;
}

MatrixInfo numbers(std::string name, Dims dims) {
  return {std::move(name), std::move(dims), DataType::f32, 0};
}
MatrixInfo labels(std::string name, std::int64_t classes) {
  return {std::move(name), {1}, DataType::s32, classes};
}

/// Parses "CxHxW-K", "n", "labeled-n" or "lr-n": the images, and their labels if there are any.
std::optional<std::vector<MatrixInfo>> parse_images(std::string_view text) {
  std::int64_t classes = 0;  // 0: no labels
  std::size_t sides = 1;
  if (consume(text, "labeled-") || consume(text, "lr-")) {
    classes = kDefaultClasses;
  } else if (const std::size_t dash = text.find('-'); dash != std::string_view::npos) {
    const auto count = parse_size(text.substr(dash + 1));
    if (!count) return std::nullopt;
    classes = *count;
    sides = 3;
    text = text.substr(0, dash);
  }
  const auto dims = parse_sides(text, sides);
  if (!dims) return std::nullopt;
  std::vector<MatrixInfo> matrices = {numbers("data", *dims)};
  if (classes > 0) matrices.push_back(labels("labels", classes));
  return matrices;
}

/// Parses a further matrix: "n" or "CxHxW" numbers, or labels of K classes, "kK".
std::optional<MatrixInfo> parse_further(std::string_view text, std::string name) {
  if (consume(text, "k")) {
    const auto classes = parse_size(text);
    if (!classes) return std::nullopt;
    return labels(std::move(name), *classes);
  }
  const auto dims = parse_sides(text, text.find('x') == std::string_view::npos ? 1 : 3);
  if (!dims) return std::nullopt;
  return numbers(std::move(name), *dims);
}

std::vector<MatrixInfo> parse_name(const std::string& name) {
  std::string_view form = name;
  consume(form, "dummy-");
  const auto plus = [&] { return std::min(form.find('+'), form.size()); };
  auto matrices = parse_images(form.substr(0, plus()));
  if (!matrices)
    throw InputError(fmt::format(
        "data provider '{}': the dummy providers are dummy-CxHxW-K (like dummy-3x224x224-1000), dummy-n, "
        "dummy-labeled-n and dummy-lr-n, with numbers from 1 to {}",
        name, kMaxValue));
  for (form.remove_prefix(plus()); !form.empty(); form.remove_prefix(plus())) {
    form.remove_prefix(1);
    const std::string_view part = form.substr(0, plus());
    const auto matrix = parse_further(part, fmt::format("matrix{}", matrices->size()));
    if (!matrix)
      throw InputError(fmt::format(
          "data provider '{}': after a plus comes a further matrix: N or CxHxW numbers, or labels of K "
          "classes, kK, as in dummy-3x32x32-10+168+3x64x64+k7; '{}' is none of these",
          name, part));
    matrices->push_back(*matrix);
  }
  std::int64_t room = kMaxValue / kImagesPerBatch;
  for (const MatrixInfo& matrix : *matrices) {
    std::int64_t left = room;
    for (const std::int64_t side : matrix.dims) left /= side;
    room -= left > 0 ? element_count(matrix.dims) : room;
    if (left == 0 || room < 0)
      throw InputError(
          fmt::format("data provider '{}': too large: a batch of {} images would hold over {} values", name,
                      kImagesPerBatch, kMaxValue));
  }
  return *matrices;
}

class DummyProvider final : public StoredProvider {
 public:
  DummyProvider(std::vector<MatrixInfo> matrices, bool has_mean, std::uint64_t seed)
      : matrices_(std::move(matrices)), has_mean_(has_mean) {
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      matrices_[m].uncropped.clear();
      const std::string stream = m == 0                                    ? "data"
                                 : m == 1 && matrices_[m].name == "labels" ? "labels"
                                                                           : fmt::format("matrix{}", m);
      keys_.push_back(philox_key(seed, "dummy." + stream));
    }
  }

  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }

  void check_range(const BatchRange& range, const std::string& option) const override {
    if (range.first < 0)
      throw InputError(fmt::format("{} {}: batch numbers of dummy data start at 0", option, range.str()));
  }

  std::optional<BatchSplit> split() const override { return BatchSplit{{1, 1}, BatchRange{2, 2}}; }
  std::int64_t images_in(int batch) const override {
    check_range({batch, batch}, "batch");
    return kImagesPerBatch;
  }

  DataBatch load(int batch) const override { return piece({.batch = batch}); }
  /// Makes only the images of this process if there are several, for each request anew. Batches for one
  /// process stay in memory.
  DataBatch read(const LoadRequest& request, const PixelStatistics& statistics) const override {
    return request.share == nullptr ? StoredProvider::read(request, statistics) : piece(request);
  }

  bool has_mean() const override { return has_mean_; }
  void check_labels(const BatchRange&) const override {}        // they are right by construction
  void add_labels(const BatchRange&, Crc32&) const override {}  // they follow from the seed

  std::vector<float> mean_image(const BatchRange&) const override {
    return std::vector<float>(has_mean_ ? static_cast<std::size_t>(element_count(matrices_[0].dims)) : 0);
  }

 private:
  DataBatch piece(const LoadRequest& request) const {
    DataBatch made = empty_piece(images_in(request.batch), request.first, request.count);
    const auto batch = static_cast<std::uint32_t>(request.batch);
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      std::vector<std::byte>& bytes = made.matrices.emplace_back();
      const auto image_bytes = static_cast<std::size_t>(matrices_[m].image_bytes());
      bytes.reserve(static_cast<std::size_t>(made.images) * image_bytes);
      for (std::int64_t i = 0; i < made.images; ++i) {
        const auto image = static_cast<std::uint32_t>(request.first + i);
        if (matrices_[m].classes > 0)
          add_label(m, batch, image, bytes);
        else if (request.share != nullptr && !request.share->wants(i, made.images))
          bytes.resize(bytes.size() + image_bytes);
        else if (matrices_[m].type == DataType::u8)
          add_numbers(
              m, batch, image, [](float v) { return static_cast<std::uint8_t>(v * 256); }, bytes);
        else
          add_numbers(
              m, batch, image, [](float v) { return v; }, bytes);
      }
    }
    return made;
  }

  /// Adds the numbers of element_random() of an image, as `stored` gives them.
  template <class Stored>
  void add_numbers(std::size_t m, std::uint32_t batch, std::uint32_t image, const Stored& stored,
                   std::vector<std::byte>& bytes) const {
    constexpr std::uint32_t calls = 16,
                            numbers = 4 * calls;  // together, in a loop that the compiler vectorises
    const std::int64_t size = element_count(matrices_[m].dims);
    for (std::int64_t begin = 0; begin < size; begin += numbers) {
      decltype(stored(0.0F)) values[numbers];
      for (std::uint32_t call = 0; call < calls; ++call) {
        const auto random = philox(keys_[m], static_cast<std::uint32_t>(begin / 4) + call, image, batch, 0);
        for (std::uint32_t i = 0; i < 4; ++i) values[4 * call + i] = stored(uniform01(random.value[i]));
      }
      const auto filled = std::as_bytes(
          std::span(values).first(static_cast<std::size_t>(std::min<std::int64_t>(numbers, size - begin))));
      bytes.insert(bytes.end(), filled.begin(), filled.end());
    }
  }

  void add_label(std::size_t m, std::uint32_t batch, std::uint32_t image,
                 std::vector<std::byte>& bytes) const {
    const auto classes = static_cast<std::uint64_t>(matrices_[m].classes);
    std::vector<std::int32_t> values(static_cast<std::size_t>(element_count(matrices_[m].dims)));
    values[0] = static_cast<std::int32_t>(element_random(keys_[m], batch, image, 0) * classes >> 32);
    if (values.size() > 1) values[1] = values[0];  // the image is mixed with itself, with weight 0
    const auto filled = std::as_bytes(std::span(values));
    bytes.insert(bytes.end(), filled.begin(), filled.end());
  }

  std::vector<MatrixInfo> matrices_;
  std::vector<std::uint64_t> keys_;  ///< a key of random numbers for each matrix
  bool has_mean_;
};

}  // namespace

std::unique_ptr<StoredProvider> make_dummy_provider(const std::string& name, std::uint64_t seed) {
  return std::make_unique<DummyProvider>(parse_name(name), false, seed);
}

std::unique_ptr<StoredProvider> make_dummy_provider(const std::vector<MatrixInfo>& matrices, bool has_mean,
                                                    std::uint64_t seed) {
  return std::make_unique<DummyProvider>(matrices, has_mean, seed);
}

}  // namespace convnet
