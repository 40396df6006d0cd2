#include "providers/dummy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "convnet/base/error.h"
#include "convnet/base/philox.h"

namespace convnet {
namespace {

constexpr std::int64_t images_per_batch = 1000;
constexpr std::int64_t max_value = std::int64_t{1} << 31;  // of a size, and of the values in a batch
constexpr std::int64_t default_classes = 10;

struct DummySpec {
  Dims dims;                 // (C,H,W) or (n)
  std::int64_t classes = 0;  // 0: no labels
};

/// A decimal number from 1 to max_value.
std::optional<std::int64_t> parse_size(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > max_value)
    return std::nullopt;
  return value;
}

/// Cuts `prefix` off `text`, if `text` has it.
bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// "CxHxW-K", "n", "labeled-n" or "lr-n".
std::optional<DummySpec> parse_form(std::string_view text) {
  DummySpec spec;
  std::size_t sides = 1;
  if (consume(text, "labeled-") || consume(text, "lr-")) {
    spec.classes = default_classes;
  } else if (const std::size_t dash = text.find('-'); dash != std::string_view::npos) {
    const auto classes = parse_size(text.substr(dash + 1));
    if (!classes) return std::nullopt;
    spec.classes = *classes;
    sides = 3;
    text = text.substr(0, dash);
  }
  for (;;) {
    const std::size_t cut = text.find('x');
    const auto side = parse_size(text.substr(0, cut));
    if (!side || spec.dims.size() == sides) return std::nullopt;
    spec.dims.push_back(*side);
    if (cut == std::string_view::npos) break;
    text.remove_prefix(cut + 1);
  }
  if (spec.dims.size() != sides) return std::nullopt;
  return spec;
}

DummySpec parse_name(const std::string& name) {
  std::string_view form = name;
  const auto spec = consume(form, "dummy-") ? parse_form(form) : std::nullopt;
  if (!spec)
    throw InputError(fmt::format(
        "data provider '{}': the dummy providers are dummy-CxHxW-K (like dummy-3x224x224-1000), dummy-n, "
        "dummy-labeled-n and dummy-lr-n, with numbers from 1 to {}",
        name, max_value));
  std::int64_t room = max_value / images_per_batch;
  for (std::int64_t side : spec->dims) room /= side;
  if (room == 0)
    throw InputError(
        fmt::format("data provider '{}': too large: a batch of {} images would hold over {} values", name,
                    images_per_batch, max_value));
  return *spec;
}

class DummyProvider final : public StoredProvider {
 public:
  DummyProvider(const DummySpec& spec, std::uint64_t seed)
      : data_key_(philox_key(seed, "dummy.data")), label_key_(philox_key(seed, "dummy.labels")) {
    matrices_.push_back({"data", spec.dims, DataType::f32, 0});
    if (spec.classes > 0) matrices_.push_back({"labels", {1}, DataType::s32, spec.classes});
  }

  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }

  void check_range(const BatchRange& range, const std::string& option) const override {
    if (range.first < 0)
      throw InputError(fmt::format("{} {}: batch numbers of dummy data start at 0", option, range.str()));
  }

  std::int64_t images_in(int batch) const override {
    check_range({batch, batch}, "batch");
    return images_per_batch;
  }

  DataBatch load(int batch) const override {
    DataBatch loaded;
    loaded.images = images_in(batch);
    loaded.matrices.push_back(random_images(static_cast<std::uint32_t>(batch)));
    if (matrices_.size() > 1) loaded.matrices.push_back(random_labels(static_cast<std::uint32_t>(batch)));
    return loaded;
  }

  bool has_mean() const override { return false; }
  void check_labels(const BatchRange&) const override {}  // they are right by construction

  std::vector<float> mean_image(const BatchRange&) const override { return {}; }

 private:
  /// The numbers of element_random().
  std::vector<std::byte> random_images(std::uint32_t batch) const {
    constexpr std::uint32_t calls = 16,
                            numbers = 4 * calls;  // together, in a loop that the compiler vectorises
    const std::int64_t size = element_count(matrices_[0].dims);
    std::vector<std::byte> bytes;
    bytes.reserve(static_cast<std::size_t>(size * images_per_batch) * sizeof(float));
    for (std::uint32_t image = 0; image < images_per_batch; ++image) {
      for (std::int64_t begin = 0; begin < size; begin += numbers) {
        float values[numbers];
        for (std::uint32_t call = 0; call < calls; ++call) {
          const auto random =
              philox(data_key_, static_cast<std::uint32_t>(begin / 4) + call, image, batch, 0);
          for (std::uint32_t i = 0; i < 4; ++i) values[4 * call + i] = uniform01(random.value[i]);
        }
        const auto filled = std::as_bytes(
            std::span(values).first(static_cast<std::size_t>(std::min<std::int64_t>(numbers, size - begin))));
        bytes.insert(bytes.end(), filled.begin(), filled.end());
      }
    }
    return bytes;
  }

  std::vector<std::byte> random_labels(std::uint32_t batch) const {
    const auto classes = static_cast<std::uint64_t>(matrices_[1].classes);
    std::vector<std::byte> bytes(static_cast<std::size_t>(images_per_batch) * sizeof(std::int32_t));
    for (std::uint32_t image = 0; image < images_per_batch; ++image) {
      const auto label =
          static_cast<std::int32_t>(element_random(label_key_, batch, image, 0) * classes >> 32);
      std::memcpy(bytes.data() + image * sizeof label, &label, sizeof label);
    }
    return bytes;
  }

  std::uint64_t data_key_, label_key_;
  std::vector<MatrixInfo> matrices_;
};

}  // namespace

std::unique_ptr<StoredProvider> make_dummy_provider(const std::string& name, std::uint64_t seed) {
  return std::make_unique<DummyProvider>(parse_name(name), seed);
}

}  // namespace convnet
