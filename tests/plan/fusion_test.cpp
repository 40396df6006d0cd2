// Tasks that do the work of two (convnet/plan/fusion.h).
#include "convnet/plan/fusion.h"

#include <map>
#include <string>

#include "kernels/cpu/instruction_set.h"
#include "tests/catch.h"
#include "tests/plan/hand_made_plan.h"
#include "tests/plan/planned_net.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Number of tasks by name.
std::map<std::string, int> counts(const Plan& plan) {
  std::map<std::string, int> all;
  for (const Task& task : plan.tasks) ++all[work_name(task)];
  return all;
}

bool has_winograd() { return instruction_set() >= InstructionSet::avx2; }

/// A target that fuses everything, and wants all tensors plain.
class FusingTarget : public Target {
 public:
  std::string name() const override { return "fusing"; }
  std::string precision() const override { return "fp32"; }
  OpForm form(const OpDesc& op, const LayoutHints&) const override {
    OpForm form;
    for (const Argument& arg : arguments(op)) form.args.push_back({arg.dims, arg.type, nullptr});
    return form;
  }
  bool fuses(const OpDesc&) const override { return true; }
  bool runs_streams_together() const override { return false; }
  std::int64_t joined_update_bytes() const override { return 0; }
};

const Dims kDims = {2, 16, 4, 4};

/// A convolution whose output is added to another tensor, and whose sum has its moments taken.
struct SmallPlan {
  Plan plan;
  Graph graph;
  BufferId src, weights, part, other, total, mean, variance;

  SmallPlan() {
    const auto tensor = [&](const char* name, const Dims& dims) {
      return add_buffer(plan.buffers, name, BufferKind::activation, DeviceId(0),
                        {dims, DataType::f32, nullptr});
    };
    src = tensor("src", kDims);
    weights = tensor("weights", {16, 16, 3, 3});
    part = tensor("part", kDims);
    other = tensor("other", kDims);
    total = tensor("total", kDims);
    mean = tensor("mean", {16});
    variance = tensor("variance", {16});
    ConvGeometry g;
    g.n = 2;
    g.c = g.k = 16;
    g.h = g.w = g.oh = g.ow = 4;
    g.filter = 3;
    g.pad = 1;
    fill(src);
    fill(weights);
    fill(other);
    add(ConvForward{g, false}, {src, weights, part});
    add(EltwiseSum{kDims, {1, 1}}, {other, part, total});
    add(BatchNormMoments{kDims}, {total, mean, variance});
  }

  void fill(BufferId buffer) { add(FillZero{plan.buffers[buffer].desc}, {buffer}); }
  void add(const OpDesc& op, const std::vector<BufferId>& buffers) {
    Task task;
    task.op = op;
    task.form = FusingTarget().form(op, {});
    const std::vector<Argument> args = arguments(op);
    for (std::size_t k = 0; k < buffers.size(); ++k) task.uses.push_back({buffers[k], args[k].access});
    plan.tasks.push_back(std::move(task));
  }
  /// Swaps the last two tasks.
  void swap_last() { std::swap(plan.tasks[plan.tasks.size() - 1], plan.tasks[plan.tasks.size() - 2]); }
  std::map<std::string, int> fused() {
    fuse_tasks(plan, graph, FusingTarget());
    return counts(plan);
  }
};

}  // namespace

TEST_CASE("a convolution adds a tensor and takes moments") {
  SmallPlan small;
  CHECK(small.fused() == std::map<std::string, int>{{"zero", 3}, {"conv.forward+sum+moments", 1}});
  const Task& task = small.plan.tasks.back();
  std::vector<std::string> names;
  for (const BufferUse& use : task.uses) names.push_back(small.plan.buffers[use.buffer].name);
  CHECK(names == std::vector<std::string>{"src", "weights", "other", "total", "mean", "variance"});
  CHECK(small.plan.buffers.size() == names.size());  // without that of the sum's term
}

TEST_CASE("what somebody else reads is not added up on the way") {
  SmallPlan small;
  small.add(NeuronForward{{}, kDims}, {small.part, small.other});
  CHECK(small.fused()["eltsum"] == 1);
  SmallPlan before;
  before.add(NeuronForward{{}, kDims}, {before.part, before.src});
  std::rotate(before.plan.tasks.end() - 3, before.plan.tasks.end() - 1, before.plan.tasks.end());
  CHECK(before.fused()["eltsum"] == 1);
}

TEST_CASE("a convolution does not move behind a change of its input") {
  SmallPlan small;
  small.fill(small.src);
  std::rotate(small.plan.tasks.end() - 3, small.plan.tasks.end() - 1, small.plan.tasks.end());
  CHECK(small.fused()["eltsum"] == 1);
}

TEST_CASE("a sum that goes to the convolution's input is not fused") {
  SmallPlan small;
  Task& sum = small.plan.tasks[small.plan.tasks.size() - 2];
  sum.uses[2].buffer = small.src;
  small.plan.tasks.back().uses[0].buffer = small.src;
  CHECK(small.fused()["eltsum"] == 1);
}

TEST_CASE("sums with factors, of one tensor with itself, or on another device are not fused") {
  SmallPlan factors;
  factors.plan.tasks[factors.plan.tasks.size() - 2].op = OpDesc(EltwiseSum{kDims, {1, 2}});
  CHECK(factors.fused()["eltsum"] == 1);
  SmallPlan twice;
  twice.plan.tasks[twice.plan.tasks.size() - 2].uses[0].buffer = twice.part;
  CHECK(twice.fused()["eltsum"] == 1);
  SmallPlan remote;
  remote.plan.tasks[remote.plan.tasks.size() - 2].device = DeviceId(1);
  CHECK(remote.fused()["eltsum"] == 1);
}

TEST_CASE("moments of what was changed after the convolution are taken afterwards") {
  SmallPlan small;
  small.add(NeuronForward{{}, kDims}, {small.total, small.total});
  small.swap_last();
  CHECK(small.fused()["bnorm.moments"] == 1);
}

TEST_CASE("sums into a tensor that is there are written over it") {
  SmallPlan small;
  Task& sum = small.plan.tasks[small.plan.tasks.size() - 2];
  sum.op = OpDesc(Accumulate{kDims});
  sum.uses = {{small.part, Access::read}, {small.other, Access::read_write}};
  small.plan.tasks.pop_back();
  CHECK(small.fused() == std::map<std::string, int>{{"zero", 3}, {"conv.forward+sum", 1}});
  const Task& task = small.plan.tasks.back();
  CHECK(small.plan.buffers[task.uses[2].buffer].name == "other");
  CHECK(task.uses[3].buffer == task.uses[2].buffer);
}

namespace {

/// A batch norm whose output is added to another tensor, and a relu of the sum.
struct ReluPlan : SmallPlan {
  ReluPlan() {
    plan.tasks.resize(plan.tasks.size() - 3);
    for (const BufferId b : {mean, variance}) fill(b);
    add(BatchNormForward{kDims}, {src, mean, variance, mean, variance, part});
    add(EltwiseSum{kDims, {1, 1}}, {other, part, total});
    add_relu(total);
  }
  void add_relu(BufferId to) { add(NeuronForward{{NeuronKind::relu}, kDims}, {total, to}); }
};

}  // namespace

TEST_CASE("a batch norm applies the relu of a sum") {
  ReluPlan in_place;
  CHECK(in_place.fused()["bnorm.forward+sum+relu"] == 1);
  ReluPlan elsewhere;
  elsewhere.plan.tasks.pop_back();
  elsewhere.add_relu(elsewhere.weights);
  CHECK(elsewhere.fused()["bnorm.forward+sum+relu"] == 1);
  CHECK(elsewhere.plan.buffers[elsewhere.plan.tasks.back().uses.back().buffer].name == "weights");
}

TEST_CASE(
    "relus of sums that others read, on other devices, or into what the batch norm reads are not fused") {
  ReluPlan read;
  read.plan.tasks.pop_back();
  read.add_relu(read.part);
  read.add(NeuronForward{{}, kDims}, {read.total, read.total});
  CHECK(read.fused()["neuron.forward"] == 2);
  ReluPlan between;
  between.add(NeuronForward{{}, kDims}, {between.total, between.weights});
  between.swap_last();
  CHECK(between.fused()["neuron.forward"] == 2);
  ReluPlan remote;
  remote.plan.tasks.back().device = DeviceId(1);
  CHECK(remote.fused()["neuron.forward"] == 1);
  ReluPlan input;
  input.plan.tasks.pop_back();
  input.add_relu(input.src);
  CHECK(input.fused()["neuron.forward"] == 1);
}

namespace {

/// The gradient of a batch norm below a relu of a sum, which two layers make together.
struct GradientPlan : SmallPlan {
  BufferId gradient;
  GradientPlan() {
    plan.tasks.resize(plan.tasks.size() - 3);
    gradient = add_buffer(plan.buffers, "gradient", BufferKind::activation, DeviceId(0),
                          {kDims, DataType::f32, nullptr});
    for (const BufferId b : {mean, variance, part, gradient}) fill(b);
  }
  void add_all() {
    add(Accumulate{kDims}, {other, gradient});
    add_mask(gradient);
    add_sums(gradient);
  }
  void add_mask(BufferId to) { add(NeuronBackward{{NeuronKind::relu}, kDims}, {part, gradient, to}); }
  void add_sums(BufferId of) {
    add(BatchNormBackwardWeights{kDims}, {src, of, mean, variance, weights, total});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const BufferUse& use : plan.tasks.back().uses) all.push_back(plan.buffers[use.buffer].name);
    return all;
  }
};

}  // namespace

TEST_CASE("a batch norm adds gradients and applies the mask of a relu before its sums") {
  GradientPlan in_place;
  in_place.add_all();
  CHECK(in_place.fused()["bnorm.backward_weights+sum+mask"] == 1);
  CHECK(in_place.plan.tasks.size() == 8);
  CHECK(in_place.names() == std::vector<std::string>{"src", "gradient", "mean", "variance", "other", "part",
                                                     "weights", "total", "gradient"});
  GradientPlan elsewhere;
  elsewhere.add_mask(elsewhere.other);
  elsewhere.add(FillZero{elsewhere.plan.buffers[elsewhere.gradient].desc}, {elsewhere.gradient});
  elsewhere.add_sums(elsewhere.other);
  CHECK(elsewhere.fused()["bnorm.backward_weights+mask"] == 1);
}

TEST_CASE(
    "gradients are not added up in a batch norm's sums if somebody else reads them or in another order") {
  GradientPlan read;  // before the mask, which is written elsewhere
  read.add(Accumulate{kDims}, {read.other, read.gradient});
  read.add_mask(read.other);
  read.add_sums(read.other);
  read.add(NeuronForward{{}, kDims}, {read.gradient, read.part});
  auto counts = read.fused();
  CHECK(counts["bnorm.backward_weights+mask"] == 1);
  CHECK(counts["accumulate"] == 1);
  GradientPlan between;
  between.add_mask(between.gradient);
  between.add(FillZero{between.plan.buffers[between.src].desc}, {between.src});
  between.add_sums(between.gradient);
  CHECK(between.fused()["neuron.backward"] == 1);
  GradientPlan order;  // the sum is behind the mask
  order.add_mask(order.gradient);
  order.add(Accumulate{kDims}, {order.other, order.gradient});
  order.add_sums(order.gradient);
  counts = order.fused();
  CHECK(counts["bnorm.backward_weights+sum"] == 1);
  CHECK(counts["neuron.backward"] == 1);
  GradientPlan other;
  other.add(NeuronBackward{{NeuronKind::tanh, 1, 1}, kDims}, {other.part, other.gradient, other.gradient});
  other.add_sums(other.gradient);
  CHECK(other.fused()["neuron.backward"] == 1);
}

TEST_CASE("running statistics are moved by what computes those of the batch") {
  SmallPlan small;
  const auto running = small.other;
  small.add(BatchNormTrack{16, 32, 0.5F}, {small.mean, small.variance, running, small.part});
  small.plan.tasks.erase(small.plan.tasks.end() - 4, small.plan.tasks.end() - 2);  // no convolution, no sum
  SmallPlan wrong = small;
  CHECK(small.fused()["bnorm.moments+track"] == 1);
  wrong.plan.tasks.back().op = OpDesc(BatchNormTrack{16, 31, 0.5F});
  CHECK(wrong.fused()["bnorm.track"] == 1);
  SmallPlan merged;
  merged.plan.tasks.resize(3);
  merged.add(BatchNormMerge{16, {3, 4}},
             {merged.src, merged.weights, merged.src, merged.weights, merged.mean, merged.variance});
  merged.add(BatchNormTrack{16, 7, 0.5F}, {merged.mean, merged.variance, merged.other, merged.part});
  CHECK(merged.fused()["bnorm.merge+track"] == 1);
}

TEST_CASE("residual nets are fused in training on CPUs, and not in tests") {
  if (!has_winograd()) return skip("this processor has no AVX2");
  PlannedNet wrn("wrn-16-4");
  std::map<std::string, int> train = counts(wrn.plan(Phase::train, 16));
  CHECK(train["conv.forward+sum+moments"] == 6);
  CHECK(train["eltsum"] == 0);
  CHECK(train["accumulate"] == 0);
  CHECK(train["bnorm.moments"] == 1);  // of the first convolution, whose channels are too few
  std::map<std::string, int> test = counts(wrn.plan(Phase::test, 4));
  CHECK(test["eltsum"] == 6);
  PlannedNet resnet("resnet18-imagenet");
  std::map<std::string, int> forward = counts(resnet.plan(Phase::train, 2));
  CHECK(forward["bnorm.forward+sum+relu"] == 8);
  CHECK(forward["neuron.forward"] == 0);
}

TEST_CASE("GPUs fuse sums with batch normalisation only") {
  PlannedNet wrn("wrn-16-4", true, false, 0, Precision::bf16, "cuda");
  std::map<std::string, int> train = counts(wrn.plan(Phase::train, 4));
  CHECK(train["eltsum"] == 6);  // of convolutions
  CHECK(train["accumulate"] == 0);
  CHECK(train["bnorm.backward_weights+sum+relu"] == 3);
  CHECK(train["bnorm.backward_data+sum+relu"] == 3);
  PlannedNet resnet("resnet18-imagenet", true, false, 0, Precision::bf16, "cuda");
  train = counts(resnet.plan(Phase::train, 2));
  CHECK(train["bnorm.forward+sum+relu"] == 8);
  CHECK(train["bnorm.moments+track"] == 20);
  CHECK(train["bnorm.track"] == 0);
  CHECK(train["bnorm.backward_weights+sum+mask"] + train["bnorm.backward_weights+mask"] == 8);
  CHECK(train["neuron.backward"] == 0);
  CHECK(train["accumulate"] == 1);  // of a pool
  ConvGeometry g;
  g.n = g.c = g.k = g.h = g.w = g.oh = g.ow = 1, g.filter = 1;
  const auto target = make_cuda_target(Precision::fp32);
  for (const OpDesc& op :
       {OpDesc(ConvForward{g, false, false, false, true}), OpDesc(ConvBackwardData{g, true})}) {
    CHECK_FALSE(target->fuses(op));
    CHECK_THROWS_AS(target->form(op, {}), std::logic_error);
  }
  CHECK(target->fuses(BatchNormForward{kDims, 1e-5F, {}, true}));
}
