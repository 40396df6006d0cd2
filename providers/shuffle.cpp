#include "providers/shuffle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
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
  ShuffledProvider(std::unique_ptr<StoredProvider> ordered, BatchRange range, std::uint64_t seed,
                   bool balance)
      : ordered_(std::move(ordered)), range_(range), seed_(seed), balance_(balance) {
    const std::vector<MatrixInfo>& matrices = ordered_->matrices();
    if (balance && (matrices.size() < 2 || matrices[1].classes == 0))
      throw InputError(
          "--balance 1 draws classes evenly, and the data set has none (matrix 1 holds no labels)");
  }

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
  void add_labels(const BatchRange& range, Crc32& sum) const override { ordered_->add_labels(range, sum); }
  std::vector<std::int64_t> class_counts(const BatchRange& range) const override {
    return ordered_->class_counts(range);
  }
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
    if (balance_)
      order_.emplace(images, classes(), seed_);
    else
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
        "--{} 1 keeps all images of batches {} in memory: {:.1f} GB more, but {:.1f} GB are available; "
        "shuffle the data set once, when you make it, and train without it",
        balance_ ? "balance" : "shuffle", range_.str(), static_cast<double>(needed) / gigabyte,
        static_cast<double>(available) / gigabyte));
  }

  /// Returns the classes of all images in the stored order.
  std::vector<std::int32_t> classes() const {
    std::vector<std::int32_t> all;
    for (const DataBatch& batch : batches_) {
      const std::int64_t bytes = ordered_->matrices()[1].image_bytes();
      for (std::int64_t i = 0; i < batch.images; ++i) {
        std::int32_t& label = all.emplace_back();
        std::memcpy(&label, batch.matrices[1].data() + i * bytes, sizeof label);
      }
    }
    return all;
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
  const bool balance_;
  // Only read() and load_training_data() use these, and they have one caller at a time.
  mutable std::vector<DataBatch> batches_;  ///< loaded at the first call
  mutable std::optional<EpochOrder> order_;
};

}  // namespace

EpochOrder::EpochOrder(const std::vector<std::int64_t>& images, std::uint64_t seed)
    : key_(philox_key(seed, "shuffle")) {
  for (const std::int64_t count : images) first_.push_back(first_.back() + count);
}

EpochOrder::EpochOrder(const std::vector<std::int64_t>& images, const std::vector<std::int32_t>& classes,
                       std::uint64_t seed)
    : EpochOrder(images, seed) {
  std::map<std::int32_t, std::vector<std::uint32_t>> by_class;
  for (std::size_t i = 0; i < classes.size(); ++i)
    if (classes[i] >= 0) by_class[classes[i]].push_back(static_cast<std::uint32_t>(i));
  if (by_class.empty()) throw InputError("--balance 1: no image of the training range has a class");
  for (auto& [number, of_class] : by_class) by_class_.push_back(std::move(of_class));
}

void EpochOrder::shuffle(std::vector<std::uint32_t>& items, std::uint32_t stream) const {
  for (std::size_t i = items.size(); i > 1; --i) {
    const auto random =
        philox(key_, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(epoch_), stream, 0);
    const std::uint64_t word = std::uint64_t{random.value[0]} << 32 | random.value[1];
    std::swap(items[i - 1], items[static_cast<std::size_t>(word % i)]);
  }
}

void EpochOrder::prepare(int epoch) {
  if (epoch_ == epoch) return;
  epoch_ = epoch;
  order_.resize(static_cast<std::size_t>(first_.back()));
  if (by_class_.empty())
    std::iota(order_.begin(), order_.end(), 0U);
  else
    draw_evenly();
  shuffle(order_, 0);
}

/// Fills the order with images of all classes in turn, which begin with a random one, because their number
/// may not divide that of the images. Each class takes its images in a random order, again and again.
void EpochOrder::draw_evenly() {
  std::vector<std::uint32_t> turns(by_class_.size());
  std::iota(turns.begin(), turns.end(), 0U);
  shuffle(turns, 1);
  for (std::size_t turn = 0; turn < turns.size(); ++turn) {
    std::vector<std::uint32_t> images = by_class_[turns[turn]];
    shuffle(images, 2 + turns[turn]);
    std::size_t next = 0;
    for (std::size_t at = turn; at < order_.size(); at += turns.size())
      order_[at] = images[next++ % images.size()];
  }
}

EpochOrder::Stored EpochOrder::at(std::size_t batch, std::int64_t place) const {
  const std::int64_t image = order_[static_cast<std::size_t>(first_[batch] + place)];
  const auto owner =
      static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), image) - first_.begin() - 1);
  return {owner, image - first_[owner]};
}

std::unique_ptr<Provider> make_shuffled_provider(std::unique_ptr<StoredProvider> ordered, BatchRange range,
                                                 std::uint64_t seed, bool balance) {
  return std::make_unique<ShuffledProvider>(std::move(ordered), range, seed, balance);
}

}  // namespace convnet
