#include "providers/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "convnet/base/checksum.h"
#include "convnet/base/cores.h"
#include "convnet/base/error.h"
#include "convnet/base/output_file.h"
#include "convnet/base/philox.h"
#include "convnet/base/utf8.h"
#include "providers/augment.h"
#include "providers/color_pca.h"
#include "providers/image_source.h"
#include "providers/picture_reader.h"
#include "providers/shuffle.h"
#include "providers/view_writer.h"
#include "providers/workers.h"

namespace convnet {
namespace {

/// Number of images, and largest number of batches, over which mean image and colours are measured.
constexpr std::int64_t kSampleImages = 1024;
constexpr int kSampleBatches = 16;

std::vector<MatrixInfo> matrices_of(const ImageSetInfo& info, const ImageOptions& options, int image_size,
                                    int side) {
  const DataType type = options.read_subtracts_mean() || options.pixel_std ? DataType::f32 : DataType::u8;
  std::vector<MatrixInfo> matrices = {{"data", {options.channels(), side, side}, type, 0}};
  if (info.number_names.empty()) {
    matrices.push_back({"labels", {1}, DataType::s32, info.classes, escape_non_utf8(info.class_names)});
    matrices.push_back({info.has_tags ? kTagsMatrix : "multi-hot labels", {info.classes}, DataType::f32, 0});
  } else {
    matrices.push_back(
        {"numbers", {std::ssize(info.number_names)}, DataType::f32, 0, escape_non_utf8(info.number_names)});
  }
  matrices[0].stored_type = DataType::u8;
  if (options.inner_size > 0) matrices[0].stored = {options.channels(), image_size, image_size};
  return matrices;
}

int choose_image_size(const ImageSetInfo& info, const ImageOptions& options) {
  if (info.image_size > 0 && options.image_size > 0 && options.image_size != info.image_size)
    throw InputError(
        fmt::format("--image-size {}: batches.meta says that the images are of size {}; this is for "
                    "folders and tars of images of any size",
                    options.image_size, info.image_size));
  constexpr int usual = 256;
  const int size = options.image_size > 0   ? options.image_size
                   : info.image_size > 0    ? info.image_size
                   : options.inner_size > 0 ? static_cast<int>(size_around(options.inner_size))
                                            : usual;
  if (options.inner_size > size)
    throw InputError(fmt::format(
        "--inner-size {}: the images are of size {} (their shorter side), and a crop can be at most that; {}",
        options.inner_size, size,
        options.image_size > 0
            ? fmt::format("without --image-size, or with --image-size {}, they are larger",
                          size_around(options.inner_size))
            : fmt::format("'convnet make-data --size {}' makes larger ones of the original photos",
                          size_around(options.inner_size))));
  return size;
}

/// Memory for pixels that is used again, because the kernel clears new memory and so would vectors. Its
/// functions may be called from several threads at once.
class BufferPool {
 public:
  /// Returns a buffer with any contents.
  std::vector<std::byte> take(std::size_t bytes) {
    std::vector<std::byte> buffer;
    {
      const std::lock_guard lock(mutex_);
      // A buffer that is much larger is left to others.
      const auto fits = std::find_if(spare_.begin(), spare_.end(), [&](const std::vector<std::byte>& b) {
        return b.capacity() >= bytes && b.capacity() / 2 <= bytes;
      });
      if (fits != spare_.end()) {
        buffer = std::move(*fits);
        spare_.erase(fits);
      }
    }
    buffer.resize(bytes);
    return buffer;
  }
  void give(std::vector<std::byte> buffer) {
    constexpr std::size_t most_spare = 4;
    const std::lock_guard lock(mutex_);
    if (spare_.size() == most_spare) spare_.erase(spare_.begin());
    spare_.push_back(std::move(buffer));
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<std::byte>> spare_;  // the oldest one first
};

class ImageProvider final : public Provider {
 public:
  ImageProvider(std::unique_ptr<ImageSource> source, std::string path, const ImageOptions& options,
                std::uint64_t seed, const std::optional<BatchRange>& shuffled)
      : source_(std::move(source)),
        path_(std::move(path)),
        options_(options),
        channels_(static_cast<std::size_t>(options.channels())),
        image_size_(choose_image_size(source_->info(), options)),
        side_(options.inner_size > 0 ? options.inner_size : image_size_),
        augmentation_(options, matrices_of(source_->info(), options, image_size_, side_), seed),
        matrices_(augmentation_.matrices()),
        reader_(*source_, path_, options, image_size_, side_, seed),
        writer_(options, image_size_, side_, augmentation_, seed),
        seed_(seed),
        shuffled_(shuffled),
        label_key_(philox_key(seed, "image.label")),
        workers_(std::make_unique<WorkerPool>(options.decode_threads)) {
    if (options.crop_pad > 0)
      throw InputError("--crop-pad is for providers of small images, not for 'image'");
    if (options.color_noise > 0 && options.grey)
      throw InputError("--color-noise adds colours, and --grey makes the photographs grey; leave one out");
    if (shuffled && !source_->any_order())
      throw InputError(
          fmt::format("--{}: cuda-convnet2's batches are read a file at a time, and their images "
                      "were mixed when they were made; folders and tars of images can be shuffled",
                      options.balance ? "balance" : "shuffle"));
    if (!options.cache.empty()) check_folder_writable(options.cache, "decoded pictures are to be kept in");
    const ImageSetInfo& info = source_->info();
    if (options.balance && (info.has_tags || !info.number_names.empty()))
      throw InputError(
          fmt::format("--balance 1 draws classes evenly, and the table of --labels holds {}",
                      info.has_tags ? "tags; posWeight of cost.bce weighs rare ones" : "numbers"));
  }

  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }

  void check_range(const BatchRange& range, const std::string& option) const override {
    for (int batch = range.first; batch <= range.last; ++batch)
      if (!source_->has(batch))
        throw InputError(fmt::format("{} {}: batch {} is not in {}; its batch numbers: {}", option,
                                     range.str(), batch, path_, source_->contents()));
  }

  bool reads_files() const override { return source_->any_order(); }
  std::optional<BatchSplit> split() const override { return source_->split(); }
  std::string image_name(int batch, std::int64_t image) const override {
    return source_->name(batch, reader_.stand_in(batch, image));
  }
  std::int64_t images_in(int batch) const override {
    check_range({batch, batch}, "batch");
    return source_->images_in(batch);
  }
  std::int64_t count_images(int batch) const override {
    check_range({batch, batch}, "batch");
    return source_->extent(batch, 0, LoadRequest::all).images;
  }
  void add_labels(const BatchRange& range, Crc32& sum) const override {
    if (!source_->knows_labels()) return;
    for (int batch = range.first; batch <= range.last; ++batch) {
      for (std::int64_t image = 0; image < source_->images_in(batch); ++image) {
        const ImageLabels labels = source_->labels(batch, image);
        const std::string name = source_->name(batch, image);
        sum.add(labels.classes.data(), labels.classes.size() * sizeof labels.classes[0]);
        sum.add(labels.numbers.data(), labels.numbers.size() * sizeof labels.numbers[0]);
        sum.add(name.data(), name.size());
      }
    }
  }
  std::vector<std::int64_t> class_counts(const BatchRange& range) const override {
    const ImageSetInfo& info = source_->info();
    if (!source_->knows_labels() || info.has_tags || !info.number_names.empty()) return {};
    std::vector<std::int64_t> counts(static_cast<std::size_t>(info.classes));
    for (int batch = range.first; batch <= range.last; ++batch)
      for (std::int64_t image = 0; image < source_->images_in(batch); ++image)
        ++counts[static_cast<std::size_t>(source_->labels(batch, image).classes.at(0))];
    return counts;
  }
  bool has_mean() const override { return true; }
  bool step_subtracts_mean() const override { return !options_.read_subtracts_mean(); }
  int views() const override { return options_.multiview ? 10 : 1; }

  std::vector<std::string> skipped_images() const override { return reader_.skipped(); }

  LeftOutFiles left_out() const override { return source_->left_out(); }

  std::string faster_reading() const override {
    std::string text;
    if (options_.cache.empty())
      text = "--cache-images FOLDER keeps decoded pictures, for later epochs and runs";
    else
      text = "the first epoch decodes what --cache-images keeps, and later ones only read it";
    if (options_.decode_threads > 0 && options_.decode_threads < usable_cores())
      text += fmt::format("; there are {} cores, and --decode-threads is {}", usable_cores(),
                          options_.decode_threads);
    if (options_.cache.empty() && source_->info().image_size == 0)
      text += "; 'convnet make-data' makes large photos small, which are decoded faster";
    return text;
  }

  DataBatch read(const LoadRequest& request, const PixelStatistics& statistics) const override {
    return Piece(*this, request, statistics).read();
  }
  std::unique_ptr<PieceInProgress> begin(const LoadRequest& request,
                                         const PixelStatistics& statistics) const override {
    return std::make_unique<Piece>(*this, request, statistics);
  }

  PixelStatistics statistics(const BatchRange& range) const override {
    const ImageSetInfo& info = source_->info();
    PixelStatistics statistics;
    const bool wants_mean = options_.scalar_mean < 0;
    const bool wants_pca = options_.color_noise > 0;
    const std::size_t plane = static_cast<std::size_t>(side_) * static_cast<std::size_t>(side_);
    if (!wants_mean) statistics.mean.assign(channels_ * plane, static_cast<float>(options_.scalar_mean));
    if (wants_mean && !info.mean.empty()) statistics.mean = centre_of(info.mean);
    if (wants_pca) statistics.color_pca = info.color_pca;
    if (statistics.mean.empty() || (wants_pca && statistics.color_pca.empty()) || options_.pixel_std) {
      const Sample sample = measure(range);
      if (statistics.mean.empty()) statistics.mean = sample.mean;
      if (wants_pca && statistics.color_pca.empty()) statistics.color_pca = color_pca(sample.colors);
      if (options_.pixel_std) {
        statistics.deviations = color_deviations(sample.colors);
        statistics.deviations.resize(channels_);
      }
    }
    for (std::size_t i = 0; i < statistics.mean.size() && options_.pixel_std; ++i)
      statistics.mean[i] /= statistics.deviations[i / plane];
    return statistics;
  }

 private:
  struct Extent {
    std::int64_t images = 0;
    bool last = true;
    std::int64_t end = 0;  ///< end of the batch's images that may be mixed with those of the piece
    std::shared_ptr<const void> held = nullptr;  ///< ImageSource::Extent::held
  };

  /// A piece whose images the workers write.
  class Piece final : public PieceInProgress {
   public:
    Piece(const ImageProvider& provider, const LoadRequest& request, const PixelStatistics& statistics)
        : provider_(provider), request_(request), statistics_(statistics) {
      provider.check_range({request.batch, request.batch}, "batch");
      if (request.epoch > 0 && provider.shuffled_) order_ = provider.order_of(request.epoch);
      extent_ = provider.extent_of(request);
      views_ = request.epoch > 0 ? 1 : provider.views();
      const std::int64_t rows = extent_.images * views_;
      batch_ = provider.piece_with(rows, provider.buffers_->take(provider.pixel_bytes(rows)));
      batch_.first = request.first;
      batch_.last = extent_.last;
      job_ = provider.workers_->begin(extent_.images, [this](std::int64_t i) { write(i); });
    }

    bool last() const override { return extent_.last; }
    bool done() const override { return job_->done(); }
    std::shared_ptr<const DataBatch> wait() override {
      const auto kept = std::make_shared<Returned>(read(), provider_.buffers_);
      return {kept, &kept->batch};
    }
    DataBatch read() {
      job_->wait();
      return std::move(batch_);
    }

   private:
    /// A complete piece. The memory of its pixels is used again for a later one.
    struct Returned {
      Returned(DataBatch complete, std::shared_ptr<BufferPool> pool)
          : batch(std::move(complete)), buffers(std::move(pool)) {}
      Returned(const Returned&) = delete;
      Returned& operator=(const Returned&) = delete;
      ~Returned() { buffers->give(std::move(batch.matrices[0])); }

      DataBatch batch;
      const std::shared_ptr<BufferPool> buffers;
    };

    void write(std::int64_t i) {
      const ImagePlace place{request_.epoch, request_.batch, request_.first + i};
      // If bad images are replaced, all are decoded, because only that tells which image replaces a bad one.
      const bool wanted = request_.share == nullptr || provider_.options_.skip_bad_images ||
                          request_.share->wants(i, extent_.images);
      if (!wanted) provider_.clear_image(batch_, i * views_, views_);
      if (!wanted && place.epoch > 0) return;
      provider_.write_image(place, order_.get(), wanted, statistics_, batch_, i * views_);
      const Augmentation& augmentation = provider_.augmentation_;
      if (place.epoch == 0 || !augmentation.mixes()) return;
      const Mixture mixture = augmentation.mixture(place, extent_.end);
      if (mixture.weight == 0) return;
      DataBatch other = provider_.piece_with(1, std::vector<std::byte>(provider_.pixel_bytes(1)));
      provider_.write_image({place.epoch, place.batch, mixture.other}, order_.get(), true, statistics_, other,
                            0);
      augmentation.mix(mixture, batch_, i, other);
    }

    const ImageProvider& provider_;
    const LoadRequest request_;
    const PixelStatistics& statistics_;
    std::shared_ptr<const EpochOrder> order_;  // null: the stored order
    Extent extent_;
    std::int64_t views_ = 1;
    DataBatch batch_;
    std::unique_ptr<WorkerPool::Job> job_;  // last: its destructor waits for calls that use the others
  };

  struct Sample {
    std::vector<float> mean;  ///< (C,side,side)
    ColorSums colors;
  };

  template <class Item>
  Item* row(DataBatch& piece, std::size_t matrix, std::int64_t image) const {
    return reinterpret_cast<Item*>(piece.matrices[matrix].data() + image * matrices_[matrix].image_bytes());
  }

  /// Makes the images of a piece ready to be read, with the groups that they are mixed in.
  Extent extent_of(const LoadRequest& request) const {
    const bool mixes = request.epoch > 0 && augmentation_.mixes();
    constexpr std::int64_t group = Augmentation::group;
    const std::int64_t first = mixes ? request.first / group * group : request.first;
    std::int64_t count = request.count;
    if (mixes && count < LoadRequest::all - request.first - group)
      count = (request.first + count + group - 1) / group * group - first;
    const ImageSource::Extent found = source_->extent(request.batch, first, count);
    const std::int64_t end = first + found.images;
    const std::int64_t images = std::clamp<std::int64_t>(end - request.first, 0, request.count);
    return {images, found.last && request.first + images >= end, end, found.held};
  }

  /// Returns the number of bytes of the pixels of some images.
  std::size_t pixel_bytes(std::int64_t images) const {
    return static_cast<std::size_t>(images * matrices_[0].image_bytes());
  }
  /// Returns a piece with these pixels and labels of zeros.
  DataBatch piece_with(std::int64_t images, std::vector<std::byte> pixels) const {
    DataBatch piece;
    piece.images = images;
    piece.matrices.push_back(std::move(pixels));
    for (std::size_t m = 1; m < matrices_.size(); ++m)
      piece.matrices.emplace_back(static_cast<std::size_t>(images * matrices_[m].image_bytes()));
    return piece;
  }

  /// Fills rows of pixels with zeros.
  void clear_image(DataBatch& piece, std::int64_t first_row, std::int64_t rows) const {
    const std::int64_t bytes = matrices_[0].image_bytes();
    std::fill_n(piece.matrices[0].begin() + first_row * bytes, rows * bytes, std::byte{0});
  }

  /// Returns the order of the images in an epoch. Pieces in progress may still use that of another one.
  std::shared_ptr<const EpochOrder> order_of(int epoch) const {
    if (order_ && order_->epoch() == epoch) return order_;
    std::shared_ptr<EpochOrder> order;
    if (order_) {
      order = std::make_shared<EpochOrder>(*order_);
    } else {
      std::vector<std::int64_t> images;
      for (int batch = shuffled_->first; batch <= shuffled_->last; ++batch)
        images.push_back(source_->extent(batch, 0, LoadRequest::all).images);
      order = options_.balance ? std::make_shared<EpochOrder>(images, classes_of(images), seed_)
                               : std::make_shared<EpochOrder>(images, seed_);
    }
    order->prepare(epoch);
    return order_ = order;
  }

  /// Returns the classes of the images of the shuffled range, which has `images` in each batch.
  std::vector<std::int32_t> classes_of(const std::vector<std::int64_t>& images) const {
    std::vector<std::int32_t> classes;
    for (std::size_t b = 0; b < images.size(); ++b)
      for (std::int64_t i = 0; i < images[b]; ++i) {
        const ImageLabels labels = source_->labels(shuffled_->first + static_cast<int>(b), i);
        classes.push_back(labels.classes.empty() ? -1 : labels.classes.front());
      }
    return classes;
  }

  /// Writes a row of a piece, or in tests a row for each view, from row `first_row` on. Writes the image
  /// itself only if it is wanted.
  void write_image(const ImagePlace& place, const EpochOrder* order, bool wanted,
                   const PixelStatistics& statistics, DataBatch& piece, std::int64_t first_row) const {
    int batch = place.batch;
    std::int64_t image = place.image;
    if (order != nullptr) {
      const EpochOrder::Stored stored =
          order->at(static_cast<std::size_t>(batch - shuffled_->first), place.image);
      batch = shuffled_->first + static_cast<int>(stored.batch);
      image = stored.image;
    }
    const auto crop = writer_.resizes_crops(place) ? std::optional(place) : std::nullopt;
    const PictureReader::Picture found =
        wanted ? reader_.read(batch, image, crop) : PictureReader::Picture{{}, source_->labels(batch, image)};
    if (wanted) writer_.write(found.image, place, statistics, row<std::byte>(piece, 0, first_row));
    const std::int64_t copies = place.epoch > 0 ? 1 : views();
    for (std::int64_t copy = first_row; copy < first_row + copies; ++copy) {
      if (!source_->info().number_names.empty()) {
        std::ranges::copy(found.labels.numbers, row<float>(piece, 1, copy));
        continue;
      }
      std::int32_t* const label = row<std::int32_t>(piece, 1, copy);
      label[0] = choose_label(found.labels.classes, place);
      if (augmentation_.mixes()) label[1] = label[0];
      for (const std::int32_t of_image : found.labels.classes) row<float>(piece, 2, copy)[of_image] = 1;
    }
  }

  std::int32_t choose_label(const std::vector<std::int32_t>& labels, const ImagePlace& place) const {
    if (labels.empty()) return -1;
    if (place.epoch == 0) return labels.front();
    return labels[static_cast<std::size_t>(
        uniform(draw(label_key_, place).value[0], static_cast<int>(labels.size()) - 1))];
  }

  /// Cuts the centre out of a mean image (3,H,W) of image_size_; makes it grey if the net sees grey.
  std::vector<float> centre_of(const std::vector<float>& mean) const {
    std::vector<float> out;
    const std::ptrdiff_t border = (image_size_ - side_) / 2;
    for (std::ptrdiff_t c = 0; c < 3; ++c)
      for (std::ptrdiff_t y = 0; y < side_; ++y) {
        const auto from = mean.begin() + (c * image_size_ + border + y) * image_size_ + border;
        out.insert(out.end(), from, from + side_);
      }
    if (channels_ == 3) return out;
    const std::size_t plane = out.size() / 3;
    for (std::size_t i = 0; i < plane; ++i)
      out[i] = (299 * out[i] + 587 * out[plane + i] + 114 * out[2 * plane + i]) / 1000;
    out.resize(plane);
    return out;
  }

  /// Measures the centres of a fixed sample of the range's images.
  Sample measure(const BatchRange& range) const {
    const int batches = std::min(kSampleBatches, range.count());
    const std::size_t plane = static_cast<std::size_t>(side_) * static_cast<std::size_t>(side_);
    std::vector<std::int64_t> sums(channels_ * plane, 0);  // integers: the order of adding does not matter
    Sample sample;
    std::mutex mutex;
    for (int b = 0; b < batches; ++b) {
      const int batch = range.first + static_cast<int>(std::int64_t{b} * range.count() / batches);
      const std::int64_t images = source_->extent(batch, 0, LoadRequest::all).images;
      const std::int64_t taken = std::min<std::int64_t>(images, kSampleImages / batches);
      workers_->run(taken, [&](std::int64_t i) {
        const DecodedImage square = writer_.centre(reader_.read(batch, i * images / taken).image);
        ColorSums colors;
        colors.add(square);
        const std::lock_guard lock(mutex);
        sample.colors.add(colors);
        for (std::size_t c = 0; c < channels_; ++c)
          for (std::size_t p = 0; p < plane; ++p) sums[c * plane + p] += square.pixels[3 * p + c];
      });
    }
    const double images = static_cast<double>(sample.colors.pixels) / static_cast<double>(plane);
    for (const std::int64_t sum : sums)
      sample.mean.push_back(static_cast<float>(static_cast<double>(sum) / images));
    return sample;
  }

  const std::unique_ptr<ImageSource> source_;
  const std::string path_;
  const ImageOptions options_;
  const std::size_t channels_;   ///< number of channels that the net sees
  const int image_size_, side_;  ///< shorter side of scaled images; side of what the net sees
  const Augmentation augmentation_;
  const std::vector<MatrixInfo> matrices_;
  const PictureReader reader_;
  const ViewWriter writer_;
  const std::uint64_t seed_;
  const std::optional<BatchRange> shuffled_;
  mutable std::shared_ptr<const EpochOrder> order_;  // that of the latest piece
  const std::uint64_t label_key_;
  const std::shared_ptr<BufferPool> buffers_ = std::make_shared<BufferPool>();
  const std::unique_ptr<WorkerPool> workers_;
};

}  // namespace

std::unique_ptr<Provider> make_image_provider(const std::string& path, const ImageOptions& options,
                                              std::uint64_t seed, const std::optional<BatchRange>& shuffled) {
  return make_image_provider(open_image_source(path, options.hold_out, options.labels, options.label_kind),
                             path, options, seed, shuffled);
}

std::unique_ptr<Provider> make_image_provider(std::unique_ptr<ImageSource> source, const std::string& path,
                                              const ImageOptions& options, std::uint64_t seed,
                                              const std::optional<BatchRange>& shuffled) {
  return std::make_unique<ImageProvider>(std::move(source), path, options, seed, shuffled);
}

const std::vector<OptionOfImage>& options_of_image() {
  using Options = ImageOptions;
  static const std::vector<OptionOfImage> all = {
      {"labels", [](const Options& o) { return !o.labels.empty(); }},
      {"label-kind", [](const Options& o) { return o.label_kind != LabelKind::automatic; }},
      {"grey", [](const Options& o) { return o.grey; }},
      {"image-size", [](const Options& o) { return o.image_size > 0; }},
      {"color-noise", [](const Options& o) { return o.color_noise > 0; }},
      {"skip-bad-images", [](const Options& o) { return o.skip_bad_images; }},
      {"random-resized-crop", [](const Options& o) { return o.random_resized_crop > 0; }},
      {"decode-threads", [](const Options& o) { return o.decode_threads > 0; }},
      {"cache-images", [](const Options& o) { return !o.cache.empty(); }}};
  return all;
}

}  // namespace convnet
