#include "kernels/cuda/form.h"

#include <concepts>
#include <initializer_list>
#include <stdexcept>
#include <variant>

#include "convnet/base/error.h"
#include "kernels/arguments.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/sources.h"
#include "kernels/image_math.h"

namespace convnet::cuda {
namespace {

template <class Op, class... Ops>
concept one_of = (std::same_as<Op, Ops> || ...);

/// Returns the form of an operation that our own kernels do.
OpForm own(std::vector<TensorDesc> args, std::int64_t workspace_bytes = 0) {
  return {std::move(args), workspace_bytes, "own"};
}
std::int64_t bytes_of_floats(std::int64_t count) { return count * size_of(DataType::f32); }

/// Returns another activation of an operation, in the layout of `main`.
TensorDesc matching(const TensorDesc& main, const Dims& dims, DataType type = DataType::f32) {
  const View view = view_of(main);
  // Tensors of one channel or one pixel are the same in both layouts; this backend prefers channels last.
  const bool last = view.last || view.c == 1 || view.spatial() == 1;
  return last ? channels_last(dims, type) : TensorDesc{dims, type, nullptr};
}

void check_sources(const std::string& who, std::int64_t count, const char* what) {
  if (count > kMostSources) throw DeviceError(who + "more than " + std::to_string(kMostSources) + " " + what);
}

/// Makes the form of every kind of operation.
class Former {
 public:
  Former(const LayoutHints& hints, Precision precision)
      : hints_(hints), product_type_(product_type(precision)) {}

  // Operations on vectors: all arguments are plain.

  template <one_of<CrossentBackward, LoadLabels, CopyRuns, SumRuns, BatchNormTrack, AnyNonFinite, Average> Op>
  OpForm operator()(const Op& op) const {
    return own(argument_tensors(op));
  }
  OpForm operator()(const LogregForward& op) const {
    return own(argument_tensors(op), cost_table_bytes(kLogregColumns, op.n) + class_weight_bytes(op.targets));
  }
  OpForm operator()(const LogregBackward& op) const {
    return own(argument_tensors(op), class_weight_bytes(op.targets));
  }
  /// Probabilities are f32. What they are made of may be bf16, and so may outputs of which views are
  /// averaged.
  template <one_of<SoftmaxForward, AverageViews> Op>
  OpForm operator()(const Op& op) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    args[0].type = hinted_type(hints_, 0);
    return own(std::move(args));
  }
  /// A product makes what goes into a softmax or a logistic, and reads its gradient, which has the product's
  /// type.
  template <one_of<SoftmaxBackward, SoftmaxCrossentBackward, LogisticBinaryCostBackward> Op>
  OpForm operator()(const Op& op) const {
    return own(to_product(argument_tensors(op)));
  }
  OpForm operator()(const SoftmaxLogregBackward& op) const {
    return own(to_product(argument_tensors(op)), class_weight_bytes(op.targets));
  }
  OpForm operator()(const CrossentForward& op) const { return of_costs(op, kCrossentColumns, op.n); }
  /// These read outputs of any layer.
  OpForm operator()(const BinaryCostForward& op) const {
    OpForm form = of_costs(op, kBinaryCostColumns, op.n);
    form.args[1].type = hinted_type(hints_, 1);
    return form;
  }
  OpForm operator()(const BinaryCostBackward& op) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    args[1].type = args[2].type = hinted_type(hints_, 1);
    return own(std::move(args));
  }
  OpForm operator()(const BatchNormMerge& op) const { return own(argument_tensors(op), merge_bytes(op)); }
  OpForm operator()(const Update& op) const { return own(argument_tensors(op), update_bytes(op)); }
  OpForm operator()(const UpdateSquares& op) const {
    return own(argument_tensors(op), update_squares_bytes(op));
  }
  OpForm operator()(const UpdateScales& op) const {
    return own(argument_tensors(op), update_scales_bytes(op));
  }

  // Operations on the elements of tensors that have the same layout.

  /// Neurons and dropout write the type in which the first argument is stored, except for probabilities,
  /// which are f32.
  template <one_of<Dropout, NoisyRelu> Op>
  OpForm operator()(const Op& op) const {
    return own(argument_tensors(op, activation(op.dims, 0)));
  }
  OpForm operator()(const NeuronForward& op) const {
    OpForm form = own(argument_tensors(op, activation(op.dims, 0)));
    if (gives_probabilities(op.f)) form.args[1] = with_type(form.args[1], DataType::f32);
    return form;
  }
  OpForm operator()(const NeuronBackward& op) const {
    OpForm form = own(argument_tensors(op, activation(op.dims, 0)));
    if (gives_probabilities(op.f)) {
      for (TensorDesc& arg : form.args) arg = with_type(arg, DataType::f32);
      form.args = to_product(std::move(form.args));
    }
    return form;
  }
  /// Adds numbers of any type to the sum.
  OpForm operator()(const Accumulate& op) const {
    OpForm form = own(argument_tensors(op, activation(op.dims, 1)));
    form.args[0] = with_type(form.args[0], hinted_type(hints_, 0));
    return form;
  }
  OpForm operator()(const EltwiseSum& op) const { return alike(op, op.dims, hinted_type(hints_, 0)); }
  OpForm operator()(const EltwiseMax& op) const {
    check_sources(op_name(op) + ": ", op.inputs, "inputs");
    return alike(op, op.dims, common_type());
  }
  OpForm operator()(const EltwiseMaxBackward& op) const {
    check_sources(op_name(op) + ": ", op.inputs, "inputs");
    return alike(op, op.dims, common_type());
  }
  OpForm operator()(const EltwiseProduct& op) const {
    return op.by_map ? of_maps(op, op.dims) : alike(op, op.dims, hinted_type(hints_, 0));
  }
  /// The workspace holds the sums of the parts of all maps.
  OpForm operator()(const MapProductSums& op) const {
    OpForm form = of_maps(op, op.dims);
    form.workspace_bytes = bytes_of_floats(map_parts(channels_view(form.args[0])) * op.dims[0] * op.dims[1]);
    return form;
  }
  OpForm operator()(const ColorTransform& op) const {
    return own(argument_tensors(op, hinted_or_preferred(op.dims, 0)));
  }
  OpForm operator()(const SquaresForward& op) const {
    const std::int64_t parts = SquaresParts(element_count(op.dims)).count;
    return own(argument_tensors(op, activation(op.dims, 0)), cost_table_bytes(kSquaresColumns, parts));
  }
  template <one_of<Scale, SquaresBackward> Op>
  OpForm operator()(const Op& op) const {
    return own(argument_tensors(op, activation(op.dims, 0)));
  }
  OpForm operator()(const FillZero& op) const { return own(argument_tensors(op, op.what.layout)); }
  OpForm operator()(const Reorder& op) const {
    const DataType from = op.from.type, to = op.to.type;
    const auto is = [&](DataType a, DataType b) { return from == a && to == b; };
    if (from != to && !is(DataType::f32, DataType::bf16) && !is(DataType::bf16, DataType::f32))
      throw DeviceError(std::string("reorder: from ") + to_string(from) + " to " + to_string(to));
    return own({op.from, op.to});
  }
  OpForm operator()(const Constrain& op) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    args[0] = op.what;
    if (!hints_.empty() && hints_[0]) args[0].layout = hints_[0]->layout;
    return own(std::move(args));
  }

  // Operations that depend on the position of an element.

  OpForm operator()(const AddBias& op) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    args[1] = activation(op.dims, 1);
    return own(std::move(args));
  }
  OpForm operator()(const BiasBackward& op) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    args[0] = activation(op.dims, 0);
    const View view = view_of(args[0]);
    const std::int64_t per_image = element_count({op.dims.begin() + 1, op.dims.end()});
    Areas areas;
    areas.add_floats(view.last && view.c > 1 && view.spatial() > 1 ? per_image : 0);
    areas.add(op.dims[0] > 0 && per_image > 0 ? sum_rows_bytes(op.dims[0], per_image) : 0);
    return own(std::move(args), areas.bytes());
  }
  /// Keeps the layout of all activations: no other layout would save a copy.
  template <one_of<Concat, Split> Op>
  OpForm operator()(const Op& op) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    for (std::size_t i = 0; i < args.size(); ++i)
      args[i] = hinted_or_preferred(args[i].dims, i, common_type());
    return own(std::move(args));
  }
  OpForm operator()(const TakeMaps& op) const {
    const TensorDesc src = activation(op.from, 0);
    return own({src, matching(src, op.to, src.type)});
  }
  OpForm operator()(const LoadImages& op) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    args.back() = hinted_or_preferred(op.dims, args.size() - 1);
    // Maps go into products; vectors may be labels, which costs want as they are.
    if (op.dims.size() == 4) args.back() = with_type(args.back(), product_type_);
    return own(std::move(args));
  }
  OpForm operator()(const SampleForward& op) const {
    const TensorDesc src = hinted_or_preferred(op.p.src(), 0);
    return own({src, matching(src, op.p.dst())});
  }
  OpForm operator()(const SampleBackward& op) const {
    const TensorDesc dst = hinted_or_preferred(op.p.dst(), 0);
    return own({dst, matching(dst, op.p.src())});
  }
  /// The workspace holds the image that is filtered along its rows, and the weights of the taps.
  OpForm operator()(const Blur& op) const {
    const TensorDesc tensor = hinted_or_preferred(op.dims, 0);
    return own(argument_tensors(op, tensor), tensor.bytes() + bytes_of_floats(op.size / 2 + 1));
  }
  OpForm operator()(const Resize& op) const {
    const TensorDesc src = hinted_or_preferred(op.src(), 0);
    return own({src, matching(src, op.dst())});
  }
  /// The workspace holds a draw for every image.
  OpForm operator()(const RandomScale& op) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    args[0] = hinted_or_preferred(op.src(), 0);
    args[1] = matching(args[0], op.dst());
    return own(std::move(args), op.n * static_cast<std::int64_t>(sizeof(ScaleDraw)));
  }

  // Pooling.

  OpForm operator()(const PoolForward& op) const {
    const TensorDesc src = activation(op.g.src(), 0);
    std::vector<TensorDesc> args = {src, matching(src, op.g.dst(), src.type)};
    if (op.keep_workspace) args.push_back(matching(src, op.g.dst(), op.g.workspace_type()));
    return own(std::move(args));
  }
  OpForm operator()(const PoolBackward& op) const {
    const PoolGeometry& g = op.g;
    TensorDesc dst = activation(g.dst(), 0);
    // Follows the layout of the positions: the pooled tensor has it, too, and is larger than the gradient.
    if (g.keeps_workspace() && hints_.size() > 1 && hints_[1]) dst = matching(*hints_[1], g.dst(), dst.type);
    std::vector<TensorDesc> args = {dst};
    if (g.keeps_workspace()) args.push_back(matching(dst, g.dst(), g.workspace_type()));
    args.push_back(matching(dst, g.src(), dst.type));
    return own(std::move(args));
  }
  OpForm operator()(const CrossMapPoolForward& op) const {
    const TensorDesc src = activation(op.p.src(), 0);
    return own({src, matching(src, op.p.dst(), src.type)});
  }
  /// The workspace holds the map of every maximum.
  OpForm operator()(const CrossMapPoolBackward& op) const {
    const TensorDesc src = activation(op.p.src(), 0), dst = matching(src, op.p.dst(), src.type);
    return own({src, dst, src}, element_count(op.p.dst()) * size_of(DataType::s32));
  }

  // Normalisation.

  OpForm operator()(const CrossMapNormForward& op) const {
    return own(argument_tensors(op, activation(op.p.dims(), 0)));
  }
  /// The workspace holds ratios and parts of the gradient, where they are not in registers.
  OpForm operator()(const CrossMapNormBackward& op) const {
    const TensorDesc tensor = activation(op.p.dims(), 0);
    return own(argument_tensors(op, tensor),
               is_narrow(op.p, channels_view(tensor)) ? 0 : bytes_of_floats(2 * element_count(op.p.dims())));
  }
  /// The workspace holds sums over rows, and, for contrast normalisation, the input less the means of its
  /// windows.
  OpForm operator()(const WindowNormForward& op) const {
    return own(argument_tensors(op, activation(op.p.dims(), 0)),
               window_norm_bytes(op.p, (sums_rows(op.p) ? 1 : 0) + (op.p.contrast ? 1 : 0)));
  }
  /// Besides, it holds ratios and parts of the gradient.
  OpForm operator()(const WindowNormBackward& op) const {
    return own(argument_tensors(op, activation(op.p.dims(), 0)),
               window_norm_bytes(op.p, 2 + (sums_rows(op.p) ? 1 : 0) + (op.p.contrast ? 1 : 0)));
  }
  OpForm operator()(const BatchNormMoments& op) const { return of_parts(op, op.dims, 3); }
  OpForm operator()(const BatchNormBackwardWeights& op) const { return of_parts(op, op.dims, 2); }
  template <one_of<BatchNormForward, BatchNormBackwardData> Op>
  OpForm operator()(const Op& op) const {
    return own(argument_tensors(op, normalised(op.dims)));
  }

  // Matrix products: cuBLASLt.

  OpForm operator()(const InnerProductForward& op) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    args[0].type = args[1].type = args.back().type = product_type_;
    return {std::move(args), product_bytes(op.g), {}};
  }
  OpForm operator()(const InnerProductBackwardData& op) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    for (TensorDesc& arg : args) arg.type = product_type_;
    return {std::move(args), product_bytes(op.g), {}};
  }
  OpForm operator()(const InnerProductBackwardWeights& op) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    args[0].type = args[1].type = product_type_;
    Areas areas;
    areas.add(product_bytes(op.g));
    areas.add(op.g.n > 0 && op.bias ? sum_rows_bytes(op.g.n, op.g.dst()[1]) : 0);
    return {std::move(args), areas.bytes(), {}};
  }
  OpForm operator()(const LocalForward& op) const { return of_local(op, op.g, {1}, 0); }
  /// The gradient of the input is summed over chunks of positions as f32.
  OpForm operator()(const LocalBackwardData& op) const {
    const bool sums = product_type_ != DataType::f32 && local_chunks(op.g, kMostColumnBytes).count > 1;
    return of_local(op, op.g, {1}, sums ? element_count(op.g.src()) : 0);
  }
  OpForm operator()(const LocalBackwardWeights& op) const { return of_local(op, op.g, {}, 0); }

  // Convolutions: cuDNN, or matrix products where there is none.

  /// The bias has the type of the activations, as the library's engines want it: an update keeps such a copy.
  OpForm operator()(const ConvForward& op) const {
    OpForm form = of_conv(op, op.g, 0, {});
    if (op.bias) form.args[2].type = product_type_;
    return with_depthwise(std::move(form), op.g, 0, depthwise_filter_bytes(op.g, product_type_));
  }
  OpForm operator()(const ConvBackwardData& op) const {
    return with_depthwise(of_conv(op, op.g, 2, {}), op.g, 2, depthwise_filter_bytes(op.g, product_type_));
  }
  /// The gradient has the type of the weights that the library reads, as its engines want it. Sums over
  /// several chunks of images are f32 in the workspace.
  OpForm operator()(const ConvBackwardWeights& op) const {
    const bool rounds = product_type_ != DataType::f32;
    OpForm form = of_conv(
        op, op.g, 0,
        {.weights = rounds ? bytes_of_floats(element_count(op.g.weights())) : 0, .sums_bias = op.bias});
    return with_depthwise(std::move(form), op.g, 0, depthwise_gradient_bytes(op.g, product_type_, op.bias));
  }

 private:
  /// Returns argument `index`, of type `type`, in the layout that it has, or channels last if it has none
  /// yet.
  TensorDesc hinted_or_preferred(const Dims& dims, std::size_t index, DataType type = DataType::f32) const {
    if (index < hints_.size() && hints_[index]) return {dims, type, hinted_layout(hints_, index, type)};
    return channels_last(dims, type);
  }
  /// Returns the same in the type that it is stored in.
  TensorDesc activation(const Dims& dims, std::size_t index) const {
    return hinted_or_preferred(dims, index, hinted_type(hints_, index));
  }
  /// Gives the last argument, the gradient of what a product has made, the product's type.
  std::vector<TensorDesc> to_product(std::vector<TensorDesc> args) const {
    args.back() = with_type(args.back(), product_type_);
    return args;
  }
  /// Returns the type of operations that copy numbers: bf16 if all arguments that exist have it, so that no
  /// number is rounded.
  DataType common_type() const {
    bool any = false, all = true;
    for (const std::optional<TensorDesc>& hint : hints_) {
      if (!hint) continue;
      any = true;
      all = all && hint->type == DataType::bf16;
    }
    return any && all ? DataType::bf16 : DataType::f32;
  }
  /// Gives all arguments one layout: channels last, or plain if one is hinted plain. That one may be a flat
  /// vector that is read as maps and has no other layout.
  OpForm alike(const OpDesc& op, const Dims& dims, DataType type) const {
    TensorDesc tensor = channels_last(dims, type);
    for (const std::optional<TensorDesc>& hint : hints_)
      if (hint && hint->plain()) tensor.layout = nullptr;
    return own(argument_tensors(op, tensor));
  }
  /// Gives the arguments that have a number for each map the type of the first one.
  OpForm of_maps(const OpDesc& op, const Dims& dims) const {
    const TensorDesc maps = activation(dims, 0);
    std::vector<TensorDesc> args = argument_tensors(op, maps);
    for (TensorDesc& arg : args) arg.type = maps.type;
    return own(std::move(args));
  }
  static OpForm of_costs(const OpDesc& op, int columns, std::int64_t images) {
    return own(argument_tensors(op), cost_table_bytes(columns, images));
  }
  TensorDesc normalised(const Dims& dims) const {
    if (dims.size() != 2 && dims.size() != 4)
      throw std::logic_error("bnorm: " + to_string(dims) + " is not (N,C[,H,W])");
    return activation(dims, 0);
  }
  /// The workspace holds `floats` for every part of the tensor.
  OpForm of_parts(const OpDesc& op, const Dims& dims, std::int64_t floats) const {
    const TensorDesc tensor = normalised(dims);
    return own(argument_tensors(op, tensor),
               bytes_of_floats(floats * CutSizes(channels_view(tensor), tensor.type).size()));
  }
  static std::int64_t product_bytes(const InnerProductGeometry& g) {
    return g.n * g.in * g.out == 0 ? 0 : kMostProductBytes;
  }

  /// Makes activations and the arguments `factors` have the products' type. The workspace holds the windows
  /// and the results of a chunk of positions, and `sums` numbers more.
  OpForm of_local(const OpDesc& op, const LocalGeometry& g, std::initializer_list<std::size_t> factors,
                  std::int64_t sums) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    for (std::size_t i = 0; i < args.size(); ++i)
      if (args[i].dims.size() == 4) args[i] = hinted_or_preferred(args[i].dims, i, product_type_);
    for (const std::size_t factor : factors) args[factor].type = product_type_;
    if (g.n == 0) return {std::move(args), 0, {}};
    const std::int64_t rows = local_chunks(g, kMostColumnBytes).size * g.n;
    Areas areas;
    areas.add_floats(rows * g.c * g.filter.area());
    areas.add_floats(rows * g.k);
    areas.add_floats(sums);
    areas.add(kMostProductBytes);
    return {std::move(args), areas.bytes(), {}};
  }

  /// Returns the bytes of workspace that the library may take. The engines of cuDNN that it proposes first
  /// copy arguments as tensor cores want them: as f32 at most, with the channels of each group filled up
  /// to 8. Blocks, which it may get instead of images, take less.
  static std::int64_t library_bytes(const ConvGeometry& g) {
    constexpr std::int64_t kMost = std::int64_t{2} << 30;
    const auto filled = [](std::int64_t channels) { return (channels + 7) / 8 * 8; };
    const std::int64_t inputs = filled(g.c / g.groups), outputs = filled(g.k / g.groups) * g.groups;
    const std::int64_t count = g.n * inputs * g.groups * g.h * g.w + g.n * outputs * g.oh * g.ow +
                               outputs * inputs * g.filter.area();
    return std::min(kMost, kMostProductBytes + bytes_of_floats(count));
  }

  /// Lays activations and weights channels last, except for the input or its gradient, argument `input`, if
  /// that is hinted plain: it may be a flat vector that is read as maps and has no other layout.
  /// `extras` come without the copy of the images, which this function adds.
  OpForm of_conv(const OpDesc& op, const ConvGeometry& g, std::size_t input, ConvExtras extras) const {
    std::vector<TensorDesc> args = argument_tensors(op);
    for (TensorDesc& arg : args)
      arg = channels_last(arg.dims, arg.dims.size() == 4 ? product_type_ : arg.type);
    if (input < hints_.size() && hints_[input] && hints_[input]->plain()) args[input].layout = nullptr;
    if (g.n * g.oh * g.ow == 0) return {std::move(args), 0, {}};
    const ConvGeometry seen = symmetric(g) ? g : with_padding(g);
    if (!symmetric(g)) extras.images = image_bytes(seen, product_type_);
    // The sums that a gradient of images is made of are f32.
    const std::int64_t windows =
        window_bytes(g, image_view(args[input]), input == 2 ? DataType::f32 : product_type_);
    const std::int64_t columns = Chunks(g.n, windows, kMostColumnBytes).size * windows;
    const std::int64_t library = std::max(library_bytes(seen), aligned(columns) + kMostProductBytes);
    return {std::move(args), ConvAreas(g, extras, library).bytes, {}};
  }

  /// Makes room for our own kernels where they can do a convolution whose input or its gradient is argument
  /// `images`.
  static OpForm with_depthwise(OpForm form, const ConvGeometry& g, std::size_t images, std::int64_t bytes) {
    if (g.n * g.oh * g.ow > 0 && is_depthwise(g, form.args[images]))
      form.workspace_bytes = std::max(form.workspace_bytes, bytes);
    return form;
  }

  const LayoutHints& hints_;
  DataType product_type_;
};

/// Target::fuses(): own kernels do more in the same pass; cuDNN's convolutions do not.
bool fuses(const OpDesc& op) {
  return std::visit(
      []<class Op>(const Op&) {
        return one_of<Op, BatchNormMoments, BatchNormMerge, BatchNormForward, BatchNormBackwardWeights,
                      BatchNormBackwardData>;
      },
      static_cast<const AnyOp&>(op));
}

class CudaTarget : public Target {
 public:
  explicit CudaTarget(Precision precision) : precision_(precision) {}

  std::string name() const override { return "cuda"; }
  std::string precision() const override { return to_string(precision_); }
  OpForm form(const OpDesc& op, const LayoutHints& hints) const override {
    return cuda::form(op, hints, precision_);
  }
  bool fuses(const OpDesc& op) const override { return cuda::fuses(op); }
  bool runs_streams_together() const override { return true; }
  std::int64_t joined_update_bytes() const override { return std::int64_t{4} << 20; }

 private:
  Precision precision_;
};

}  // namespace

OpForm form(const OpDesc& op, const LayoutHints& hints, Precision precision) {
  if (is_fused(op) && !fuses(op))
    throw std::logic_error(op_name(op) + ": this backend fuses only into batch normalisation");
  return std::visit(Former(hints, precision), op);
}

}  // namespace convnet::cuda

namespace convnet {

std::unique_ptr<const Target> make_cuda_target(Precision precision) {
  return std::make_unique<cuda::CudaTarget>(precision);
}

}  // namespace convnet
