#include "providers/provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "convnet/base/checksum.h"
#include "convnet/base/crop.h"
#include "convnet/base/error.h"
#include "convnet/base/names.h"
#include "providers/augment.h"
#include "providers/cifar.h"
#include "providers/crop.h"
#include "providers/dummy.h"
#include "providers/image.h"
#include "providers/image_parts.h"
#include "providers/mnist.h"
#include "providers/npy.h"
#include "providers/shuffle.h"

namespace convnet {

std::int64_t MatrixInfo::image_bytes() const {
  return uncropped.empty() ? element_count(dims) * size_of(type)
                           : cropped_image_bytes(element_count(uncropped) * size_of(type));
}

LabelKind label_kind(const std::vector<MatrixInfo>& matrices) {
  if (matrices.size() > 2 && matrices[2].name == kTagsMatrix) return LabelKind::tags;
  const bool numbers = matrices.size() > 1 && matrices[1].classes == 0 && matrices[1].type == DataType::f32;
  return numbers ? LabelKind::numbers : LabelKind::classes;
}

namespace {

class FinishedPiece final : public PieceInProgress {
 public:
  explicit FinishedPiece(std::shared_ptr<const DataBatch> piece) : piece_(std::move(piece)) {}
  bool last() const override { return piece_->last; }
  bool done() const override { return true; }
  std::shared_ptr<const DataBatch> wait() override { return piece_; }

 private:
  const std::shared_ptr<const DataBatch> piece_;
};

}  // namespace

std::unique_ptr<PieceInProgress> finished_piece(std::shared_ptr<const DataBatch> piece) {
  return std::make_unique<FinishedPiece>(std::move(piece));
}

DataBatch piece_of(const DataBatch& batch, std::int64_t first, std::int64_t count) {
  DataBatch piece;
  piece.first = first;
  first = std::min(first, batch.images);
  piece.images = std::min(count, batch.images - first);
  piece.last = first + piece.images == batch.images;
  for (const std::vector<std::byte>& matrix : batch.matrices) {
    const auto bytes = std::ssize(matrix) / std::max<std::int64_t>(1, batch.images);
    piece.matrices.emplace_back(matrix.begin() + first * bytes,
                                matrix.begin() + (first + piece.images) * bytes);
  }
  return piece;
}

void StoredProvider::add_labels(const BatchRange& range, Crc32& sum) const {
  for (int batch = range.first; batch <= range.last; ++batch) {
    const DataBatch all = load(batch);
    for (std::size_t m = 1; m < all.matrices.size(); ++m)
      sum.add(all.matrices[m].data(), all.matrices[m].size());
  }
}

std::vector<float> StoredProvider::mean_image(const BatchRange& range) const {
  const MatrixInfo& info = matrices()[0];
  const auto size = static_cast<std::size_t>(element_count(info.dims));
  std::vector<double> sums;
  std::size_t images = 0;
  const auto add = [&]<class Item>(const Item* pixels, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i, pixels += size)
      for (std::size_t j = 0; j < size; ++j) sums[j] += static_cast<double>(pixels[j]);
    images += count;
  };
  for (int batch = range.first; batch <= range.last; ++batch) {
    const std::vector<std::byte> pixels = load_images(batch);
    sums.resize(size);  // now that there are images of that size
    const std::size_t count = pixels.size() / static_cast<std::size_t>(info.image_bytes());
    if (info.type == DataType::f32)
      add(reinterpret_cast<const float*>(pixels.data()), count);
    else
      add(reinterpret_cast<const std::uint8_t*>(pixels.data()), count);
  }
  std::vector<float> mean(size);
  for (std::size_t j = 0; j < size; ++j) mean[j] = static_cast<float>(sums[j] / static_cast<double>(images));
  return mean;
}

const DataBatch& StoredProvider::kept(int batch) const {
  // Files are read and unpickled once: small nets on GPUs would wait for it.
  if (const auto found = kept_.find(batch); found != kept_.end()) return found->second;
  if (passing_) kept_.erase(*passing_);
  passing_.reset();
  const DataBatch& loaded = kept_.emplace(batch, load(batch)).first->second;
  std::int64_t bytes = 0;
  for (const std::vector<std::byte>& matrix : loaded.matrices) bytes += std::ssize(matrix);
  // The first batches are kept: epochs read batches in one order, so the one read last is needed last.
  if (kept_bytes_ + bytes <= most_kept())
    kept_bytes_ += bytes;
  else
    passing_ = batch;
  return loaded;
}

std::string BatchRange::str() const {
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

std::string batches_text(const std::vector<int>& batches) {
  std::string text;
  for (auto at = batches.begin(); at != batches.end();) {
    BatchRange run{*at, *at};
    for (++at; at != batches.end() && *at == run.last + 1; ++at) run.last = *at;
    text += (text.empty() ? "" : ", ") + run.str();
  }
  return text;
}

BatchRange BatchRange::parse(const std::string& text) {
  constexpr int max_batch = 999'999'999;
  const char* const end = text.data() + text.size();
  BatchRange range;
  // Digits only: from_chars() would also take a sign.
  const bool digits = text.find_first_not_of("0123456789-") == std::string::npos && !text.starts_with('-');
  const auto first = std::from_chars(text.data(), end, range.first);
  auto last = first;
  if (first.ptr != end && *first.ptr == '-' && first.ptr + 1 != end && first.ptr[1] != '-')
    last = std::from_chars(first.ptr + 1, end, range.last);
  else
    range.last = range.first;
  if (!digits || first.ec == std::errc::invalid_argument || last.ec == std::errc::invalid_argument ||
      last.ptr != end)
    throw InputError(fmt::format(
        "'{}' is not a range of batches; give a number (6) or the first and the last one (1-5)", text));
  if (first.ec != std::errc() || last.ec != std::errc() || range.first > max_batch || range.last > max_batch)
    throw InputError(fmt::format("'{}': batch numbers are 0 to {}", text, max_batch));
  if (range.first > range.last)
    throw InputError(fmt::format("'{}' is empty: the first batch comes before the last one, as in {}-{}",
                                 text, range.last, range.first));
  return range;
}

namespace {

/// Returns whether this is the provider of CIFAR that crops: its name in cuda-convnet2, or a name that older
/// versions of this program used.
bool is_cropped_cifar(const std::string& name) { return name == "cifar-cropped" || name == "cropped-cifar"; }

std::unique_ptr<StoredProvider> make_stored_provider(const std::string& name, const std::string& path,
                                                     std::uint64_t seed) {
  if (name == "mnist") return make_mnist_provider(path);
  if (name == "npy") return make_npy_provider(path);
  if (name == "cifar" || is_cropped_cifar(name)) return make_cifar_provider(path);
  if (name.starts_with("dummy-")) return make_dummy_provider(name, seed);
  // The names of dummy providers are patterns, not what would be typed.
  std::vector<std::string> typed = provider_names();
  std::erase_if(typed, [](const std::string& known) { return known.starts_with("dummy-"); });
  const int most_edits = name.size() < 6 ? 1 : 2;
  throw InputError("data provider '" + name + "' is not known" +
                   did_you_mean(name, typed, "the known ones are " + join(provider_names()), most_edits));
}

/// Throws InputError naming an option that would do nothing.
void check_stored_options(const std::string& name, const ImageOptions& images) {
  for (const OptionOfImage& option : options_of_image()) {
    if (option.is_on(images))
      throw InputError(fmt::format("--{} is for data provider 'image', not for '{}'", option.name, name));
  }
}

}  // namespace

std::unique_ptr<Provider> make_provider(const std::string& name, const std::string& path, std::uint64_t seed,
                                        const ImageOptions& images,
                                        const std::optional<BatchRange>& shuffled) {
  if (is_cropped_cifar(name) && !images.crops())
    throw InputError(
        fmt::format("data provider '{}' needs --inner-size, the side of the crops, or --crop-pad", name));
  check_views(images);
  if (name == "image") return make_image_provider(path, images, seed, shuffled);
  auto stored = make_stored_provider(name, path, seed);
  check_stored_options(name, images);
  if (images.crops() || images.flip == Flip::on || images.pixel_std || images.scalar_mean >= 0)
    stored = make_cropped_provider(std::move(stored), images, seed);
  std::unique_ptr<Provider> provider =
      shuffled ? make_shuffled_provider(std::move(stored), *shuffled, seed, images.balance)
               : std::move(stored);
  if (images.mixes() || images.distorts() || images.random_erasing > 0)
    provider = make_augmented_provider(std::move(provider), images, seed);
  return provider;
}

void check_views(const ImageOptions& images) {
  if (images.multiview && images.inner_size == 0)
    throw InputError("--multiview-test needs --inner-size, the side of the views");
}

std::vector<std::string> provider_names() {
  return {"image",         "mnist",   "cifar",           "cifar-cropped", "npy",
          "dummy-CxHxW-K", "dummy-n", "dummy-labeled-n", "dummy-lr-n"};
}

std::string left_out_text(const LeftOutFiles& files) {
  std::vector<std::string> warnings;
  if (const auto& links = files.dangling_links; !links.empty())
    warnings.push_back(fmt::format("warning: {} link(s) to images lead nowhere and are left out:\n  {}",
                                   links.size(), fmt::join(links, "\n  ")));
  if (const auto& others = files.other_formats; !others.empty())
    warnings.push_back(fmt::format(
        "warning: {} picture(s) are left out, as {}: only files with these endings are read: {}; convert "
        "them to JPEG or PNG",
        others.size(), others.front(), kImageExtensions));
  if (!files.header.empty())
    warnings.push_back("Note: the table of --labels begins with a header, which is left out: " +
                       files.header);
  if (!files.kind.empty()) warnings.push_back("Note: the table of --labels holds " + files.kind);
  if (const auto& others = files.without_row; !others.empty())
    warnings.push_back(
        fmt::format("warning: {} photo(s) have no line in the table of --labels and are left out, as {}",
                    others.size(), others.front()));
  if (const CountedFiles& packed = files.packed_tars; packed.count > 0)
    warnings.push_back(
        fmt::format("warning: {} compressed tar(s) are left out, as {}; unpack them, because tars are "
                    "read in place",
                    packed.count, packed.first));
  if (const CountedFiles& others = files.unpaired; others.count > 0)
    warnings.push_back(fmt::format(
        "warning: {} image(s) or label(s) in tars are left out, because their sample has a pair of the same "
        "name without them, as {}",
        others.count, others.first));
  if (const CountedFiles& others = files.other_members; others.count > 0)
    warnings.push_back(
        fmt::format("Note: {} member(s) of tars that are neither images nor labels (.cls) are "
                    "left out, as {}",
                    others.count, others.first));
  return fmt::format("{}", fmt::join(warnings, "\n"));
}

}  // namespace convnet
