#include "providers/shuffle.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "convnet/base/available_memory.h"
#include "convnet/base/error.h"
#include "convnet/base/philox.h"

namespace convnet {
namespace {

class ShuffledProvider final : public Provider {
 public:
  ShuffledProvider(std::unique_ptr<StoredProvider> ordered, BatchRange range, std::uint64_t seed)
      : ordered_(std::move(ordered)), range_(range), seed_(seed) {}

  const std::vector<MatrixInfo>& matrices() const override { return ordered_->matrices(); }
  void check_range(const BatchRange& range, const std::string& option) const override {
    ordered_->check_range(range, option);
  }
  std::optional<BatchSplit> split() const override { return ordered_->split(); }
  std::string image_name(int batch, std::int64_t image) const override {
    return ordered_->image_name(batch, image);
  }
  std::int64_t images_in(int batch) const override { return ordered_->images_in(batch); }
  void check_labels(const BatchRange& range) const override { ordered_->check_labels(range); }
  bool has_mean() const override { return ordered_->has_mean(); }
  bool step_subtracts_mean() const override { return ordered_->step_subtracts_mean(); }
  PixelStatistics statistics(const BatchRange& range) const override { return ordered_->statistics(range); }
  int views() const override { return ordered_->views(); }
  void load_training_data(const std::function<bool()>& stopped) const override {
    if (order_) return;
    std::vector<std::int64_t> images;
    batches_.clear();  // those of a load that did not get to its end
    for (int b = range_.first; b <= range_.last; ++b) {
      if (stopped()) return;
      batches_.push_back(ordered_->load(b));
      if (b == range_.first) check_rest_fits();
      images.push_back(batches_.back().images);
    }
    order_.emplace(images, seed_);
  }
  DataBatch read(const LoadRequest& request, const PixelStatistics& statistics) const override {
    if (request.epoch == 0) return ordered_->read(request, statistics);
    return ordered_->finish(shuffled(request), request, statistics);
  }

 private:
  /// Throws DeviceError if the batches after the first one do not fit into memory.
  void check_rest_fits() const {
    std::int64_t bytes = 0, images = 0;
    for (const std::vector<std::byte>& matrix : batches_[0].matrices) bytes += std::ssize(matrix);
    for (int b = range_.first + 1; b <= range_.last; ++b) images += ordered_->images_in(b);
    const std::int64_t needed = bytes / std::max<std::int64_t>(1, batches_[0].images) * images;
    const std::int64_t available = available_memory();
    if (needed <= available) return;
    constexpr double gigabyte = 1e9;
    throw DeviceError(fmt::format(
        "--shuffle 1 keeps all images of batches {} in memory: {:.1f} GB more, but {:.1f} GB are available; "
        "shuffle the data set once, when you make it, and train without --shuffle",
        range_.str(), static_cast<double>(needed) / gigabyte, static_cast<double>(available) / gigabyte));
  }

  DataBatch shuffled(const LoadRequest& request) const {
    load_training_data([] { return false; });
    order_->prepare(request.epoch);
    const auto at = static_cast<std::size_t>(request.batch - range_.first);
    // The piece consists of places in the batch, which other images take.
    DataBatch piece = piece_of({batches_[at].images, {}}, request.first, request.count);
    piece.matrices.resize(batches_[at].matrices.size());
    for (std::int64_t i = 0; i < piece.images; ++i) {
      const EpochOrder::Stored stored = order_->at(at, piece.first + i);
      const DataBatch& from = batches_[stored.batch];
      for (std::size_t m = 0; m < piece.matrices.size(); ++m) {
        const auto bytes = std::ssize(from.matrices[m]) / from.images;
        const auto begin = from.matrices[m].begin() + stored.image * bytes;
        piece.matrices[m].insert(piece.matrices[m].end(), begin, begin + bytes);
      }
    }
    return piece;
  }

  const std::unique_ptr<StoredProvider> ordered_;
  const BatchRange range_;
  const std::uint64_t seed_;
  // Only read() and load_training_data() use these, and they have one caller at a time.
  mutable std::vector<DataBatch> batches_;  ///< loaded at the first call
  mutable std::optional<EpochOrder> order_;
};

}  // namespace

EpochOrder::EpochOrder(const std::vector<std::int64_t>& images, std::uint64_t seed)
    : key_(philox_key(seed, "shuffle")) {
  for (const std::int64_t count : images) first_.push_back(first_.back() + count);
}

void EpochOrder::prepare(int epoch) {
  if (epoch_ == epoch) return;
  order_.resize(static_cast<std::size_t>(first_.back()));
  std::iota(order_.begin(), order_.end(), 0U);
  for (std::size_t i = order_.size(); i > 1; --i) {
    const auto random = philox(key_, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(epoch), 0, 0);
    const std::uint64_t word = std::uint64_t{random.value[0]} << 32 | random.value[1];
    std::swap(order_[i - 1], order_[static_cast<std::size_t>(word % i)]);
  }
  epoch_ = epoch;
}

EpochOrder::Stored EpochOrder::at(std::size_t batch, std::int64_t place) const {
  const std::int64_t image = order_[static_cast<std::size_t>(first_[batch] + place)];
  const auto owner =
      static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), image) - first_.begin() - 1);
  return {owner, image - first_[owner]};
}

std::unique_ptr<Provider> make_shuffled_provider(std::unique_ptr<StoredProvider> ordered, BatchRange range,
                                                 std::uint64_t seed) {
  return std::make_unique<ShuffledProvider>(std::move(ordered), range, seed);
}

}  // namespace convnet
