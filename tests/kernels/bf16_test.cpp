#include "kernels/bf16.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/own_kernels.h"
#include "tests/catch.h"
#include "tests/kernels/dnn_reference.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_runner.h"
#include "tests/rounding.h"

namespace convnet::bf16_test {
namespace {

using test::Values;

/// Products of numbers with 8 bits of mantissa, relative to the largest result.
constexpr double kBf16Tolerance = 1e-2;

float rounded(float v) { return to_float(to_bf16(v)); }
Values rounded(Values values) {
  for (double& v : values) v = static_cast<double>(rounded(static_cast<float>(v)));
  return values;
}

/// The type in which products of bf16 runs read their weights: where products are those of f32, the operation
/// itself rounds the weights.
DataType type_of_weights() {
  return instruction_set() >= InstructionSet::avx512_core_bf16 ? DataType::bf16 : DataType::f32;
}

template <class Op>
void check(const Op& op, const std::vector<Values>& inputs, std::size_t which, const Values& expected,
           std::vector<DataType> types) {
  const auto prepared = cpu::prepare(op, LayoutHints(inputs.size()), DataType::bf16);
  INFO(op_name(op) << " by " << prepared->algorithm());
  for (std::size_t i = 0; i < types.size(); ++i) CHECK(prepared->args()[i].type == types[i]);
  CHECK(test::relative_error(test::run_plain(OpDesc(op), *prepared, inputs)[which], expected) <=
        kBf16Tolerance);
}

/// Operations that compute with activations of bf16 as they are stored.
const std::set<std::string> kKeepBf16 = {"accumulate",
                                         "bias.backward",
                                         "bias.forward",
                                         "blur",
                                         "bnorm.backward_data",
                                         "bnorm.backward_data+relu",
                                         "bnorm.backward_data+brelu",
                                         "bnorm.backward_data+leaky",
                                         "bnorm.backward_data+hswish",
                                         "bnorm.backward_data+silu",
                                         "bnorm.backward_data+sum",
                                         "bnorm.backward_data+sum+relu",
                                         "bnorm.backward_data+sum+brelu",
                                         "bnorm.backward_data+sum+leaky",
                                         "bnorm.backward_data+sum+hswish",
                                         "bnorm.backward_data+sum+silu",
                                         "bnorm.backward_weights",
                                         "bnorm.backward_weights+relu",
                                         "bnorm.backward_weights+brelu",
                                         "bnorm.backward_weights+leaky",
                                         "bnorm.backward_weights+hswish",
                                         "bnorm.backward_weights+silu",
                                         "bnorm.backward_weights+sum",
                                         "bnorm.backward_weights+sum+mask",
                                         "bnorm.backward_weights+sum+mask+relu",
                                         "bnorm.backward_weights+sum+mask+brelu",
                                         "bnorm.backward_weights+sum+mask+leaky",
                                         "bnorm.backward_weights+sum+mask+hswish",
                                         "bnorm.backward_weights+sum+mask+silu",
                                         "bnorm.backward_weights+sum+relu",
                                         "bnorm.backward_weights+sum+brelu",
                                         "bnorm.backward_weights+sum+leaky",
                                         "bnorm.backward_weights+sum+hswish",
                                         "bnorm.backward_weights+sum+silu",
                                         "bnorm.backward_weights+mask",
                                         "bnorm.backward_weights+mask+relu",
                                         "bnorm.backward_weights+mask+brelu",
                                         "bnorm.backward_weights+mask+leaky",
                                         "bnorm.backward_weights+mask+hswish",
                                         "bnorm.backward_weights+mask+silu",
                                         "bnorm.forward",
                                         "bnorm.forward+relu",
                                         "bnorm.forward+brelu",
                                         "bnorm.forward+leaky",
                                         "bnorm.forward+hswish",
                                         "bnorm.forward+silu",
                                         "bnorm.forward+sum",
                                         "bnorm.forward+sum+relu",
                                         "bnorm.forward+sum+brelu",
                                         "bnorm.forward+sum+leaky",
                                         "bnorm.forward+sum+hswish",
                                         "bnorm.forward+sum+silu",
                                         "bnorm.moments",
                                         "bnorm.moments+track",
                                         "cmpool.backward",
                                         "cmpool.forward",
                                         "cmrnorm.backward",
                                         "cmrnorm.forward",
                                         "cnorm.backward",
                                         "cnorm.forward",
                                         "concat",
                                         "dropout",
                                         "eltmax.backward",
                                         "eltmax.forward",
                                         "eltmul",
                                         "eltmul.maps",
                                         "eltmul.sums",
                                         "eltsum",
                                         "neuron.backward",
                                         "neuron.forward",
                                         "nrelu.forward",
                                         "pool.backward",
                                         "pool.forward",
                                         "pool.forward+relu",
                                         "resize",
                                         "rgb2lab",
                                         "rgb2yuv",
                                         "rnorm.backward",
                                         "rnorm.forward",
                                         "rscale",
                                         "sample.backward",
                                         "sample.forward",
                                         "scale",
                                         "split",
                                         "take_maps"};

/// Returns hints that the activations of `op` are stored as `type`, in blocks of `block` channels.
LayoutHints hints_of(const OpDesc& op, int block, DataType type) {
  LayoutHints hints;
  for (const Argument& arg : arguments(op)) {
    hints.emplace_back();
    if (arg.type != DataType::f32 || (arg.dims.size() != 2 && arg.dims.size() != 4)) continue;
    hints.back() = arg.dims.size() == 4 && block > 1 ? cpu::blocked_activations(arg.dims, block, type)
                                                     : TensorDesc{arg.dims, type, nullptr};
  }
  return hints;
}

/// Returns whether an argument is stored as bf16 that could also be f32.
bool keeps_bf16(const OpDesc& op, const PreparedOp& prepared) {
  const std::vector<Argument> args = arguments(op);
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i].type == DataType::f32 && prepared.args()[i].type == DataType::bf16) return true;
  }
  return false;
}

/// The inputs of a case, rounded where they may be stored as bf16.
std::vector<Values> inputs_of(const test::OpCase& c) {
  const std::vector<Argument> args = arguments(c.op);
  std::vector<Values> inputs;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const DataType type = args[i].type;
    if (i < c.raw.size() && !c.raw[i].empty())
      inputs.push_back(test::unpacked(c.raw[i], type));
    else if (args[i].access == Access::write)
      inputs.emplace_back();
    else if (i < c.inputs.size() && !c.inputs[i].empty())
      inputs.push_back(c.inputs[i]);
    else
      inputs.push_back(test::test_values(args[i].dims, static_cast<std::uint32_t>(i + 1)));
    if (type != DataType::f32) continue;
    for (double& v : inputs.back()) v = static_cast<double>(rounded(static_cast<float>(v)));
  }
  return inputs;
}

}  // namespace

TEST_CASE("own operations keep activations of bf16, and compute what they do with f32") {
  std::set<std::string> kept;
  for (const test::OpCase& c : test::op_cases()) {
    for (const int block : {1, 8, 16}) {
      if (std::holds_alternative<Reorder>(c.op) || std::holds_alternative<FillZero>(c.op)) continue;
      const cpu::Prepared stored = cpu::prepare(c.op, hints_of(c.op, block, DataType::bf16));
      if (!keeps_bf16(c.op, *stored)) continue;
      INFO(op_name(c.op) << " of " << to_string(stored->args()[0].dims) << " in blocks of " << block);
      kept.insert(op_name(c.op));
      const std::vector<Values> inputs = inputs_of(c);
      test::Results expected =
          test::run_plain(c.op, *cpu::prepare(c.op, hints_of(c.op, block, DataType::f32)), inputs);
      const test::Results actual = test::run_plain(c.op, *stored, inputs);
      if (const auto* norm = std::get_if<BatchNormBackwardWeights>(&c.op);
          norm != nullptr && norm->writes_dy()) {
        // The sums are those of the gradient that is written, and may be much smaller than its numbers.
        std::vector<Values> rounded_inputs = {inputs[0], actual.back(), inputs[2], inputs[3]};
        if (!norm->neuron.is_ident()) rounded_inputs.insert(rounded_inputs.end(), {inputs[4], inputs[5]});
        const std::size_t sums = rounded_inputs.size();
        rounded_inputs.resize(sums + 2);
        const test::Results of_rounded = test::run_plain(
            BatchNormBackwardWeights{norm->dims, norm->epsilon, norm->neuron}, rounded_inputs);
        std::copy_n(of_rounded.begin() + static_cast<std::ptrdiff_t>(sums), 2, expected.end() - 3);
      }
      const std::vector<Argument> args = arguments(c.op);
      for (std::size_t i = 0; i < args.size(); ++i) {
        if (args[i].access == Access::read) continue;
        INFO(args[i].name);
        CHECK(test::relative_error(actual[i], expected[i]) <= 1.0 / 256);  // half of a last bit, and sums
      }
    }
  }
  CHECK(kept == kKeepBf16);
}

TEST_CASE("images are loaded as the type of products") {
  for (const test::OpCase& c : test::op_cases()) {
    const auto* load = std::get_if<LoadImages>(&c.op);
    if (load == nullptr) continue;
    const std::vector<std::optional<TensorDesc>> hints(arguments(c.op).size());
    const cpu::Prepared stored = cpu::prepare(c.op, hints, DataType::bf16);
    CHECK(stored->args().back().type == (load->dims.size() == 4 ? DataType::bf16 : DataType::f32));
    std::vector<Values> inputs = inputs_of(c);
    if (load->source == DataType::u8 && c.raw.empty())
      for (double& v : inputs[0]) v = std::floor(std::abs(v) * 255);
    const Values expected = test::run_plain(c.op, *cpu::prepare(c.op, hints), inputs).back();
    const Values actual = test::run_plain(c.op, *stored, inputs).back();
    REQUIRE(actual.size() == expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const auto wanted = static_cast<float>(expected[i]);
      if (actual[i] != static_cast<double>(load->dims.size() == 4 ? rounded(wanted) : wanted))
        FAIL(op_name(c.op) << " gives " << actual[i] << " instead of " << wanted);
    }
  }
}

TEST_CASE("bf16 rounds to the nearest number, ties to even") {
  CHECK(rounded(1.0F) == 1.0F);
  CHECK(rounded(-0.0F) == 0.0F);
  CHECK(std::signbit(rounded(-0.0F)));
  CHECK(rounded(1.0F + 1.0F / 128) == 1.0F + 1.0F / 128);
  CHECK(rounded(1.0F + 1.0F / 256) == 1.0F);
  CHECK(rounded(1.0F + 3.0F / 256) == 1.0F + 4.0F / 256);
  CHECK(rounded(1.0F + 1.1F / 256) == 1.0F + 1.0F / 128);
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(rounded(infinity) == infinity);
  CHECK(rounded(-infinity) == -infinity);
  CHECK(rounded(std::numeric_limits<float>::max()) == infinity);
  CHECK(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(rounded(-std::numeric_limits<float>::signaling_NaN())));
  CHECK(rounded(std::numeric_limits<float>::denorm_min()) == 0.0F);
}

TEST_CASE("own kernels of every instruction set round as the host does, subnormal numbers included") {
  // Every bf16 number, and f32 numbers beside it and beside the middle between it and the next one.
  std::vector<float> wide;
  std::vector<BFloat16> expected;
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      const std::uint32_t bits = high << 16 | low;
      wide.emplace_back();
      std::memcpy(&wide.back(), &bits, sizeof bits);
      expected.push_back(to_bf16(wide.back()));
    }
  }
  wide.resize(wide.size() - 3), expected.resize(wide.size());  // vectors, and a tail
  const Dims dims = {std::ssize(wide)};
  const TensorDesc f32{dims, DataType::f32, nullptr}, bf16{dims, DataType::bf16, nullptr};
  int sets = 0;
  for (const InstructionSet set : {InstructionSet::base, InstructionSet::avx2, InstructionSet::avx512_core,
                                   InstructionSet::avx512_core_bf16}) {
    if (set < lowest_compiled_instruction_set() || set > instruction_set()) continue;
    INFO(name_of(set));
    ++sets;
    const cpu::OwnKernels& kernels = cpu::own_kernels(set);
    const auto run = [&](const Reorder& op, auto& from, auto& to) {
      std::byte* pointers[] = {reinterpret_cast<std::byte*>(from.data()),
                               reinterpret_cast<std::byte*>(to.data())};
      const cpu::Prepared prepared = kernels.prepare_reorder(op);
      REQUIRE(prepared != nullptr);
      prepared->run(pointers, nullptr, nullptr);
    };
    std::vector<BFloat16> rounded_numbers(wide.size());
    run({f32, bf16}, wide, rounded_numbers);
    CHECK(std::memcmp(rounded_numbers.data(), expected.data(), expected.size() * sizeof(BFloat16)) == 0);
    std::vector<float> widened(wide.size()), factors(wide.size());
    run({bf16, f32}, rounded_numbers, widened);
    kernels.round_factors(wide.data(), std::ssize(wide), factors.data());
    CHECK(std::memcmp(factors.data(), widened.data(), widened.size() * sizeof(float)) == 0);
    const bool same =
        std::equal(widened.begin(), widened.end(), expected.begin(), [](float v, BFloat16 stored) {
          const std::uint32_t wanted = std::uint32_t{stored.bits} << 16;
          return std::memcmp(&v, &wanted, sizeof v) == 0;
        });
    CHECK(same);
  }
  CHECK(sets >= 1);
}

TEST_CASE("subnormal numbers of bf16 survive reorders and operations on activations") {
  Values all;  // numbers that are not NaN
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float v = to_float(BFloat16{static_cast<std::uint16_t>(bits)});
    all.push_back(std::isnan(v) ? 1 : static_cast<double>(v));
  }
  const Dims dims = {2, 32, 32, 32};
  const auto equal = [](const Values& a, const Values& b) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i]) FAIL(a[i] << " instead of " << b[i]);
  };
  std::vector<TensorDesc> layouts = {{dims, DataType::bf16, nullptr}};
  for (const int block : {8, 16}) layouts.push_back(cpu::blocked_activations(dims, block, DataType::bf16));
  const TensorDesc plain{dims, DataType::f32, nullptr};
  for (const TensorDesc& from : layouts) {
    INFO(from.layout_name());
    const auto stored = test::reordered(test::packed(all, DataType::f32), plain, from);
    equal(test::unpacked(test::reordered(stored, from, plain), DataType::f32), all);
    for (const TensorDesc& to : layouts) {
      INFO(to.layout_name());
      const auto there = test::reordered(stored, from, to);
      equal(test::unpacked(test::reordered(there, to, plain), DataType::f32), all);
    }
    const auto pooled = [&](PoolKind kind) {
      const PoolForward op{test::pool(kind, dims, 1, 1)};
      LayoutHints hints(arguments(OpDesc(op)).size());
      hints[0] = from;
      std::vector<Values> inputs(hints.size());
      inputs[0] = all;
      return test::run_plain(op, *cpu::prepare(op, hints), inputs)[1];
    };
    equal(pooled(PoolKind::max), all);
    equal(pooled(PoolKind::average), all);
  }
}

TEST_CASE("tensors of bf16 are converted and laid out like those of f32") {
  const TensorDesc wide{{2, 19, 3, 5}, DataType::f32, nullptr};
  const TensorDesc blocked = cpu::blocked_activations(wide.dims, 16, DataType::bf16);
  CHECK(with_type(blocked, DataType::f32).layout->equals(*cpu::blocked_activations(wide.dims, 16).layout));
  CHECK_FALSE(same_layout(blocked, with_type(blocked, DataType::f32)));
  const Values values = test::test_values(wide.dims, 7);
  const auto there = test::reordered(test::packed(values, DataType::f32), wide, blocked);
  const auto back = test::unpacked(test::reordered(there, blocked, wide), DataType::f32);
  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK(back[i] == static_cast<double>(rounded(static_cast<float>(values[i]))));
}

TEST_CASE("convolutions and inner products take bf16 factors, and give f32 gradients of weights") {
  const DataType f = DataType::f32, b = DataType::bf16, factor = type_of_weights();
  for (const std::int64_t channels : {3, 16, 40}) {
    ConvGeometry g;
    g.n = 2, g.c = channels, g.h = 9, g.w = 7, g.k = 24, g.filter = 5, g.stride = 1, g.pad = 2;
    g.oh = g.h, g.ow = g.w;
    const Values src = test::test_values(g.src(), 1), weights = test::test_values(g.weights(), 2),
                 bias = test::test_values(g.k, 3), diff_dst = test::test_values(g.dst(), 4);
    Values expected = test::reference_forward(g, src, weights);
    test::add_bias(expected, g.dst(), bias);
    check(ConvForward{g, true, false, false}, {src, weights, bias, {}}, 3, expected, {b, factor, f, b});
    check(ConvBackwardData{g}, {diff_dst, weights, {}}, 2,
          test::reference_backward_data(g, diff_dst, weights), {b, factor, b});
    check(ConvBackwardWeights{g, false}, {src, diff_dst, {}}, 2,
          test::reference_backward_weights(g, src, diff_dst), {b, b, f});
  }
}

TEST_CASE("convolutions of all shapes take bf16 factors") {
  for (const ConvGeometry& g : test::conv_geometries()) {
    INFO(to_string(g.src()) << " * " << to_string(g.weights()) << " stride " << to_string(g.stride) << " pad "
                            << to_string(g.pad) << " dilation " << to_string(g.dilation));
    const Values src = test::test_values(g.src(), 1), weights = test::test_values(g.weights(), 2),
                 diff_dst = test::test_values(g.dst(), 4);
    check(ConvForward{g, false, false, false}, {src, weights, {}}, 2,
          test::reference_forward(g, src, weights), {});
    check(ConvBackwardData{g}, {diff_dst, weights, {}}, 2,
          test::reference_backward_data(g, diff_dst, weights), {});
    check(ConvBackwardWeights{g, false}, {src, diff_dst, {}}, 2,
          test::reference_backward_weights(g, src, diff_dst), {});
  }
}

TEST_CASE("factors of products are rounded to bf16 on every processor") {
  ConvGeometry g = test::conv(2, 3, 9, 7, 8, 3, 1, 1);
  const Values src = rounded(test::test_values(g.src(), 1)), weights = test::test_values(g.weights(), 2),
               diff_dst = rounded(test::test_values(g.dst(), 4));
  const auto run = [](const OpDesc& op, const std::vector<Values>& inputs) {
    return test::run_plain(op, *cpu::prepare(op, LayoutHints(inputs.size()), DataType::bf16), inputs).back();
  };
  // Results are rounded once, by at most half of the last of 8 bits.
  const auto check_rounded_once = [](const Values& actual, const Values& exact) {
    REQUIRE(actual.size() == exact.size());
    for (std::size_t i = 0; i < exact.size(); ++i)
      CHECK(std::abs(actual[i] - exact[i]) <= std::abs(exact[i]) / 256 + 1e-5);
  };
  check_rounded_once(run(ConvForward{g, false}, {src, weights, {}}),
                     test::reference_forward(g, src, rounded(weights)));
  check_rounded_once(run(ConvBackwardData{g}, {diff_dst, weights, {}}),
                     test::reference_backward_data(g, diff_dst, rounded(weights)));
  CHECK(test::relative_error(run(ConvBackwardWeights{g, false}, {src, diff_dst, {}}),
                             test::reference_backward_weights(g, src, diff_dst)) < 1e-5);
  // One product for each result: the exact product of rounded factors, rounded.
  const InnerProductGeometry one{7, 1, 5};
  const Values x = test::test_values(one.src(), 5), matrix = test::test_values(one.weights(), 6);
  Values products;
  for (const double a : rounded(x))
    for (const double b : rounded(matrix)) products.push_back(a * b);
  CHECK(run(InnerProductForward{one, false}, {x, matrix, {}}) == rounded(products));
}

TEST_CASE("products in f32 of activations stored as bf16 take a minibatch in pieces that fit into caches") {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(2);
  const ConvGeometry g = test::conv(5, 4, 300, 300, 8, 3, 1, 1);
  const Values src = rounded(test::test_values(g.src(), 1)),
               weights = rounded(test::test_values(g.weights(), 2)), bias = test::test_values(g.k, 3),
               diff_dst = rounded(test::test_values(g.dst(), 4)),
               before = rounded(test::test_values(g.dst(), 5));
  const auto check_pieces = [&g](const OpDesc& op, const std::vector<Values>& inputs) {
    INFO(op_name(op));
    const cpu::Prepared stored = cpu::prepare_in_f32(op, LayoutHints(inputs.size()));
    const test::Results actual = test::run_plain(op, *stored, inputs),
                        expected = test::run_plain(op, *cpu::prepare(op, LayoutHints(inputs.size())), inputs);
    const std::vector<Argument> args = arguments(op);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (stored->args()[i].type == DataType::bf16) bytes += stored->args()[i].bytes();
      if (args[i].access == Access::read) continue;
      INFO(args[i].name);
      const bool rounds = stored->args()[i].type == DataType::bf16;
      const double sums = test::rounding_of(static_cast<double>(g.n * g.oh * g.ow));
      CHECK(test::relative_error(actual[i], expected[i]) <= (rounds ? 1.0 / 256 : sums));
    }
    // Less than all of them as f32. Without AVX2 oneDNN computes by columns, which take more.
    if (instruction_set() >= InstructionSet::avx2) CHECK(stored->workspace_bytes() < 2 * bytes);
  };
  check_pieces(ConvForward{g, true, false, true}, {src, weights, bias, {}});
  check_pieces(ConvForward{g, false, true, false}, {src, weights, before});
  check_pieces(ConvBackwardData{g}, {diff_dst, weights, {}});
  check_pieces(ConvBackwardWeights{g, true}, {src, diff_dst, {}, {}});
  omp_set_num_threads(threads);
}

TEST_CASE("depthwise convolutions give f32 gradients of weights for bf16 factors") {
  for (const std::int64_t filter : {3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      const ConvGeometry g = test::conv(9, 40, 9, 7, 40, filter, stride, filter / 2, 40);
      const Values src = test::test_values(g.src(), 1), diff_dst = test::test_values(g.dst(), 4);
      check(ConvBackwardWeights{g, false}, {src, diff_dst, {}}, 2,
            test::reference_backward_weights(g, src, diff_dst),
            {DataType::bf16, DataType::bf16, DataType::f32});
    }
  }
}

TEST_CASE("convolutions of few maps give f32 gradients of weights for bf16 factors") {
  for (const std::int64_t filter : {3, 5, 7, 11}) {
    for (const std::int64_t stride : {1, 2}) {
      const ConvGeometry g = test::conv(9, 3, 19, 17, 40, filter, stride, filter / 2);
      const Values src = test::test_values(g.src(), 1), diff_dst = test::test_values(g.dst(), 4);
      check(ConvBackwardWeights{g, false}, {src, diff_dst, {}}, 2,
            test::reference_backward_weights(g, src, diff_dst),
            {DataType::bf16, DataType::bf16, DataType::f32});
    }
  }
}

// oneDNN 2.6 does not write some gradients of bf16 weights in convolutions that it computes as they are
// given.
TEST_CASE("strided convolutions of images smaller than their filters write every gradient") {
  const DataType f = DataType::f32, b = DataType::bf16, factor = type_of_weights();
  for (const std::int64_t filter : {3, 4, 5, 7}) {
    for (const std::int64_t stride : {1, 2, 3, 4}) {
      for (std::int64_t pad = 0; pad < filter; ++pad) {
        for (std::int64_t h = 1; h <= 3; ++h) {
          for (std::int64_t w = 1; w <= 3; ++w) {
            if (std::min(h, w) + 2 * pad < filter) continue;
            const std::int64_t groups = 1 + pad % 2;
            const ConvGeometry g = test::conv(2, 16 * groups, h, w, 32, filter, stride, pad, groups);
            INFO(to_string(g.src()) << " filter " << filter << " stride " << stride << " pad " << pad);
            const Values src = test::test_values(g.src(), 1), weights = test::test_values(g.weights(), 2),
                         diff_dst = test::test_values(g.dst(), 4);
            check(ConvForward{g, false, false, false}, {src, weights, {}}, 2,
                  test::reference_forward(g, src, weights), {b, factor, b});
            check(ConvBackwardData{g}, {diff_dst, weights, {}}, 2,
                  test::reference_backward_data(g, diff_dst, weights), {b, factor, b});
            check(ConvBackwardWeights{g, false}, {src, diff_dst, {}}, 2,
                  test::reference_backward_weights(g, src, diff_dst), {b, b, f});
          }
        }
      }
    }
  }
}

}  // namespace convnet::bf16_test
