// Numbers that the forms of operations (form.h) and their kernels share: limits of a launch, and sizes of the
// parts of workspaces.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "kernels/cuda/layout.h"
#include "kernels/ops.h"
#include "kernels/target.h"

namespace convnet::cuda {

// Pointers to the tensors of the replicas of a layer are arguments of a launch, which are limited. More
// replicas take several launches, which keep the intermediate results in the workspace.
constexpr std::int64_t kMostMoments = 64;     ///< means and variances of a launch of BatchNormMerge
constexpr std::int64_t kMostGradients = 192;  ///< gradients of a launch of Update, sources of one of SumRuns

/// A launch of BatchNormMerge stores the count, mean and squares of each channel for the next launch.
constexpr std::int64_t kMomentsBytes = 3 * sizeof(double);
inline std::int64_t merge_bytes(const BatchNormMerge& op) {
  return std::ssize(op.values) > kMostMoments ? op.channels * kMomentsBytes : 0;
}
/// Returns the bytes for sums of gradients, for those parts of an Update that have more gradients than a
/// launch takes.
inline std::int64_t update_bytes(const Update& op) {
  std::int64_t floats = 0;
  for (const Update::Part& part : op.parts) floats += part.gradients > kMostGradients ? part.count : 0;
  return floats * size_of(DataType::f32);
}

/// Number of values whose squares one team of UpdateSquares sums.
constexpr std::int64_t kSquaresPiece = 16384;
inline std::int64_t squares_pieces(std::int64_t count) { return (count + kSquaresPiece - 1) / kSquaresPiece; }
/// Returns the bytes for the sums of all pieces of UpdateSquares, of weights and of gradients.
inline std::int64_t update_squares_bytes(const UpdateSquares& op) {
  std::int64_t pieces = 0;
  for (const UpdateSquares::Part& part : op.parts) pieces += 2 * squares_pieces(part.count);
  return pieces * size_of(DataType::f64);
}
/// Returns the bytes for the three numbers that UpdateScales keeps of each part.
inline std::int64_t update_scales_bytes(const UpdateScales& op) {
  return 3 * std::ssize(op.parts) * size_of(DataType::f64);
}

/// Returns the number of threads that share the pixels of a map in MapProductSums, so that small batches of
/// few maps occupy a GPU, too.
inline std::int64_t map_parts(const View& view) {
  constexpr std::int64_t kThreads = std::int64_t{1} << 17, kMost = 64;
  const std::int64_t maps = std::max<std::int64_t>(1, view.n * view.c / lanes_of(view));
  return std::clamp<std::int64_t>(kThreads / maps, 1,
                                  std::min(kMost, std::max<std::int64_t>(1, view.spatial() / 4)));
}

// Batch normalisation.

/// Divides the values of all channels into parts, each of which a team of threads sums. The division depends
/// only on the shape and the type, so that sums are reproducible. A part is a chunk of consecutive images and
/// `team_columns` columns; the values of a column are shared by `lanes` items, which are added up in the end.
/// If the tensor is channels last, it is a matrix: its rows count as images of one pixel, and a column is
/// `together` consecutive channels. Else a column is a channel, and a team has one.
struct CutSizes {
  static constexpr int kItems = 256;  ///< items of a team: one for each thread

  CutSizes(const View& view, DataType type)
      : images(view.last ? view.n * view.spatial() : view.n),
        pixels(view.last ? 1 : view.spatial()),
        channels(view.c),
        together(view.last ? lanes_of(view.c, type) : 1) {
    constexpr std::int64_t kThreads = 1 << 17;         // enough to keep the memory busy
    constexpr std::int64_t kFewest = 16, kMost = 512;  // values of an item: float sums of more lose digits
    const auto divided_up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
    const std::int64_t columns = channels / together;
    team_columns = view.last ? static_cast<int>(std::min<std::int64_t>(columns, kItems)) : 1;
    column_teams = divided_up(columns, team_columns);
    lanes = kItems / team_columns;
    const std::int64_t values = std::clamp(view.size() / (kThreads * together), kFewest, kMost);
    chunk_images = std::max<std::int64_t>(values * lanes / std::max<std::int64_t>(pixels, 1), 1);
    chunks = divided_up(images, chunk_images);
  }
  std::int64_t images, pixels, channels;
  int together;
  int team_columns = 1, lanes = 1;
  std::int64_t column_teams = 1, chunk_images = 1, chunks = 1;

  std::int64_t size() const { return chunks * channels; }
  std::int64_t teams() const { return chunks * column_teams; }
};

// Costs.

/// Numbers of columns of a CostTable (cost.cu) for each kind of cost: one says whether a value is not finite,
/// the others are the values of the cost.
constexpr int kLogregColumns = 4, kCrossentColumns = 3, kBinaryCostColumns = 4, kSquaresColumns = 2;

inline std::int64_t cost_table_bytes(int columns, std::int64_t rows) {
  return columns * rows * size_of(DataType::f64);
}

/// Returns the bytes for the weights of classes, which a cost copies to the device.
inline std::int64_t class_weight_bytes(const ClassTargets& targets) {
  return std::ssize(targets.class_weights) * size_of(DataType::f32);
}

/// The parts of a tensor whose squares are summed separately; the last one may be smaller.
struct SquaresParts {
  explicit SquaresParts(std::int64_t values) {
    constexpr std::int64_t kSmallest = 4096, kMost = 1024;
    size = std::max((values + kMost - 1) / kMost, kSmallest);
    count = (values + size - 1) / size;
  }
  std::int64_t size, count;
};

// Normalisation across maps.

/// Returns whether windows are so small that a thread keeps all maps of four windows in registers. Then the
/// tensors may have any type, and there is no workspace.
inline bool is_narrow(const CrossMapNorm& p, const View& view) {
  return !p.blocked && lanes_of(view) == kLanes && p.size / 2 <= 4;
}

// Normalisation within maps.

/// Returns whether the sums over the rows of windows are computed first. Small windows are summed whole, with
/// reads that caches answer, which is less than to write a tensor and to read it.
inline bool sums_rows(const WindowNorm& p) { return p.size > 5; }
/// Returns the bytes of `tensors` tensors of floats.
inline std::int64_t window_norm_bytes(const WindowNorm& p, std::int64_t tensors) {
  return tensors * element_count(p.dims()) * size_of(DataType::f32);
}

// Matrix products and what surrounds them.

/// The largest workspace of a matrix product.
constexpr std::int64_t kMostProductBytes = std::int64_t{32} << 20;
/// The most memory for windows ("columns", as in im2col) that are copied at a time, unless one item needs
/// more.
constexpr std::int64_t kMostColumnBytes = std::int64_t{256} << 20;

/// Divides a workspace into parts, one after the other, each aligned to kMemoryAlignment.
class Areas {
 public:
  /// Adds a part and returns its offset.
  std::int64_t add(std::int64_t bytes) { return std::exchange(bytes_, bytes_ + aligned(bytes)); }
  std::int64_t add_floats(std::int64_t count) { return add(count * size_of(DataType::f32)); }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

/// Divides the items [0, items) into chunks of equal size, except for the last one, each of at most
/// `most_bytes` unless a single item has more.
struct Chunks {
  Chunks(std::int64_t items_, std::int64_t bytes_per_item, std::int64_t most_bytes) : items(items_) {
    const std::int64_t most =
        std::max<std::int64_t>(bytes_per_item > 0 ? most_bytes / bytes_per_item : items, 1);
    count = (items + most - 1) / most;
    size = (items + count - 1) / count;
    count = (items + size - 1) / size;
  }
  std::int64_t items, size, count;
  std::int64_t begin(std::int64_t i) const { return i * size; }
  std::int64_t size_of(std::int64_t i) const { return std::min(size, items - begin(i)); }
};

/// Number of consecutive elements that a thread of SumRows (sum_rows.h) adds to its sums at a time.
constexpr int kSumLanes = 8;

/// Returns the number of pieces of a matrix's rows that SumRows sums separately.
inline std::int64_t sum_rows_pieces(std::int64_t rows, std::int64_t columns) {
  // Enough sums to keep the memory busy, of enough rows each to be worth the second kernel.
  constexpr std::int64_t kSums = 262144, kRows = 16;
  // The rows of a piece begin at multiples of the lanes, so that they can be loaded together.
  const std::int64_t multiple = kSumLanes / std::gcd(columns, std::int64_t{kSumLanes});
  const std::int64_t most = std::min(kSums / columns, rows / kRows);
  return std::max<std::int64_t>(most / multiple * multiple, 1);
}
inline std::int64_t sum_rows_bytes(std::int64_t rows, std::int64_t columns) {
  const std::int64_t pieces = sum_rows_pieces(rows, columns);
  return pieces == 1 ? 0 : pieces * columns * size_of(DataType::f32);
}

/// Returns the positions of a locally-connected layer in chunks whose windows and results take at most
/// `most_bytes`.
inline Chunks local_chunks(const LocalGeometry& g, std::int64_t most_bytes) {
  const std::int64_t floats = g.n * (g.c * g.filter.area() + g.k);
  return {g.oh * g.ow, floats * size_of(DataType::f32), most_bytes};
}

// Convolutions.

/// Returns the view of a convolution's input; channels last if that is the same order of elements.
inline View image_view(const TensorDesc& input) {
  View view = channels_view(input);
  view.last = view.last || view.c == 1;
  return view;
}

/// Returns whether the windows of images must be copied; else an image itself is the matrix of its windows.
inline bool copies_windows(const ConvGeometry& g, const View& image) {
  return !image.last || g.filter != Sides(1) || g.stride != Sides(1) || g.pad != Sides(0) || g.oh != g.h ||
         g.ow != g.w;
}
/// Returns the bytes of the copied windows of an image, as elements of type `type`.
inline std::int64_t window_bytes(const ConvGeometry& g, const View& image, DataType type) {
  return copies_windows(g, image) ? g.oh * g.ow * g.c * g.filter.area() * size_of(type) : 0;
}

/// Returns whether our own kernels for depthwise convolutions (depthwise.h) can do it, whose input or its
/// gradient is `images`.
inline bool is_depthwise(const ConvGeometry& g, const TensorDesc& images) {
  return g.groups > 1 && g.groups == g.c && g.groups == g.k && image_view(images).last;
}
/// Returns the bytes of the copy of the filters that the kernels make.
inline std::int64_t depthwise_filter_bytes(const ConvGeometry& g, DataType type) {
  return aligned(element_count(g.weights()) * size_of(type));
}
/// The pieces of the outputs of all images for which the gradients of filters are summed separately.
struct DepthwisePieces {
  DepthwisePieces(const ConvGeometry& g, DataType type) {
    constexpr std::int64_t kThreads = 1 << 17;         // enough to keep the memory busy
    constexpr std::int64_t kFewest = 16, kMost = 512;  // values of a piece: float sums of more lose digits
    const std::int64_t outputs = g.n * g.oh * g.ow, lanes = kLoadBytes / size_of(type);
    const std::int64_t sums = g.filter.area() * (g.c % lanes == 0 ? g.c / lanes : g.c);
    // All threads together are less than 2^31, which they are for any tensor that fits into memory.
    size = std::clamp(outputs * sums / kThreads, kFewest, kMost);
    count = (outputs + size - 1) / size;
  }
  std::int64_t size, count;
};
inline std::int64_t depthwise_gradient_bytes(const ConvGeometry& g, DataType type, bool bias) {
  const std::int64_t pieces = DepthwisePieces(g, type).count, weights = element_count(g.weights());
  Areas areas;
  areas.add_floats(pieces * weights);
  areas.add(sum_rows_bytes(pieces, weights));
  areas.add(bias ? sum_rows_bytes(g.n * g.oh * g.ow, g.k) : 0);
  areas.add_floats(type == DataType::f32 ? 0 : weights);
  return areas.bytes();
}

/// Returns by how many pixels the last window hangs over the far border.
inline std::int64_t overhang(const WindowLine& line) {
  return std::max<std::int64_t>(0, line.end() - line.pixels);
}
/// Returns whether there is as much padding behind the images as before them.
inline bool symmetric(const ConvGeometry& g) {
  return overhang(g.rows()) == g.pad.y && overhang(g.columns()) == g.pad.x;
}
/// Returns the geometry of the same convolution over blocks of `side` x `side` pixels (conv_edges.h), which
/// hold all padding. `side` must divide the stride. Filters must be copied into blocks, too; they are filled
/// up with zeros to whole blocks, and the channels of a block to a multiple of `channels`. Blocks of more
/// than one pixel need groups = 1 and square, undilated filters.
inline ConvGeometry over_blocks(const ConvGeometry& g, std::int64_t side, std::int64_t channels) {
  ConvGeometry blocks = g;
  blocks.c = (g.c * side * side + channels - 1) / channels * channels;
  blocks.filter = {(g.filter.y + side - 1) / side, (g.filter.x + side - 1) / side};
  blocks.stride = {g.stride.y / side, g.stride.x / side};
  blocks.pad = 0;
  blocks.h = blocks.rows().end();
  blocks.w = blocks.columns().end();
  return blocks;
}
/// Returns the geometry of the same convolution over images that include all padding.
inline ConvGeometry with_padding(const ConvGeometry& g) { return over_blocks(g, 1, 1); }
/// Returns whether a convolution has too few channels for engines that load 16 bytes of a pixel at once. Then
/// blocks as large as its stride are tried, if its filters are square and undilated.
inline bool has_few_channels(const ConvGeometry& g) { return g.square() && g.groups == 1 && g.c < 8; }
/// Returns the bytes of a convolution's images.
inline std::int64_t image_bytes(const ConvGeometry& g, DataType type) {
  return element_count(g.src()) * size_of(type);
}

/// Bytes of workspace that a convolution of a library needs besides the workspace of the library.
struct ConvExtras {
  std::int64_t images = 0;   ///< a copy of the images with padding, or as blocks
  std::int64_t weights = 0;  ///< a copy of the weights or their gradient in blocks, or as f32
  bool sums_bias = false;    ///< the gradient of the bias is summed
};
/// The offsets of the parts of the workspace of a convolution of a library, and the size of the workspace.
struct ConvAreas {
  ConvAreas(const ConvGeometry& g, const ConvExtras& extras, std::int64_t library_bytes) {
    Areas areas;
    images = areas.add(extras.images);
    weights = areas.add(extras.weights);
    library = areas.add(library_bytes);
    sums = areas.add(extras.sums_bias ? sum_rows_bytes(g.n * g.oh * g.ow, g.k) : 0);
    bytes = areas.bytes();
  }
  std::int64_t images, weights, library, sums, bytes;
};

}  // namespace convnet::cuda
