#include "providers/provider.h"

#include <fmt/format.h>

#include <algorithm>

#include "convnet/base/checksum.h"
#include "convnet/base/crop.h"
#include "convnet/base/error.h"
#include "providers/image_parts.h"

namespace convnet {

std::int64_t MatrixInfo::image_bytes() const {
  return uncropped.empty() ? element_count(dims) * size_of(type)
                           : cropped_image_bytes(element_count(uncropped) * size_of(type));
}

const char* to_string(LabelKind kind) {
  switch (kind) {
    case LabelKind::tags: return "tags";
    case LabelKind::numbers: return "numbers";
    default: return "classes";
  }
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

DataBatch empty_piece(std::int64_t images, std::int64_t first, std::int64_t count) {
  DataBatch piece;
  piece.first = first;
  first = std::min(first, images);
  piece.images = std::min(count, images - first);
  piece.last = first + piece.images == images;
  return piece;
}

DataBatch piece_of(const DataBatch& batch, std::int64_t first, std::int64_t count) {
  DataBatch piece = empty_piece(batch.images, first, count);
  first = std::min(first, batch.images);
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

void check_views(const ImageOptions& images) {
  if (images.multiview && images.inner_size == 0)
    throw InputError("--multiview-test needs --inner-size, the side of the views");
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
  const auto add = [&](const CountedFiles& of, const char* text) {
    if (of.count > 0) warnings.push_back(fmt::format(fmt::runtime(text), of.count, of.first));
  };
  add(files.packed_tars,
      "warning: {} compressed tar(s) are left out, as {}; unpack them, because tars are read in place");
  add(files.loose_images,
      "warning: {} image(s) beside the folders of classes are left out, as {}; an image's class is "
      "the folder that it lies in");
  add(files.other_folders,
      "warning: {} folder(s) with images beside that of training images are left out, as {}");
  add(files.unnamed,
      "warning: {} image(s) are left out, as {}, because their names do not end like those of images; give "
      "them names like photo.jpg");
  add(files.unpaired,
      "warning: {} image(s) or label(s) in tars are left out, because their sample has a pair of the "
      "same name without them, as {}");
  add(files.other_members,
      "Note: {} member(s) of tars that are neither images nor labels (.cls) are left out, as {}");
  return fmt::format("{}", fmt::join(warnings, "\n"));
}

}  // namespace convnet
