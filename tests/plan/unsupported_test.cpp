// Errors about operations that a device cannot do name the layer.
#include "tests/catch.h"
#include "tests/plan/planned_net.h"
#include "tests/temp_folder.h"

namespace convnet {
namespace {

/// A target for CPUs that cannot do one operation, as libraries that lack an implementation of it.
class LackingTarget : public Target {
 public:
  LackingTarget(std::string lacks, std::int64_t images)
      : lacks_(std::move(lacks)), images_(images), whole_(make_cpu_target(1)) {}

  std::string name() const override { return whole_->name(); }
  std::string precision() const override { return whole_->precision(); }
  OpForm form(const OpDesc& op, const LayoutHints& hints) const override {
    if (op_name(op) == lacks_ && arguments(op)[0].dims[0] == images_)
      throw DeviceError(lacks_ + ": is too slow");
    return whole_->form(op, hints);
  }
  bool fuses(const OpDesc& op) const override { return whole_->fuses(op); }
  bool runs_streams_together() const override { return whole_->runs_streams_together(); }
  std::int64_t joined_update_bytes() const override { return whole_->joined_update_bytes(); }

 private:
  const std::string lacks_;
  const std::int64_t images_;
  const std::unique_ptr<const Target> whole_;
};

/// Returns the message of planning a step of lenet with 4 images where `lacks` cannot be done for `images`.
std::string message_without(const std::string& lacks, std::int64_t images) {
  const test::PlannedNet net("lenet");
  const LackingTarget target(lacks, images);
  PlanOptions options{1, true, true, false};
  options.images = 8;
  return message_of<DeviceError>([&] {
    PlanSet plans(net.graph, net.matrices, target, options);
    plans.plan(Phase::train, 4);
  });
}

const std::string kFile = CONVNET_SOURCE_DIR "/configs/lenet.cfg:";

}  // namespace

TEST_CASE("an operation that a device cannot do is reported with the layer's name and line") {
  const std::string forward = message_without("conv.forward", 4);
  CHECK(forward.starts_with(kFile));
  CHECK(forward.ends_with(": layer 'conv1': conv.forward: is too slow"));
  // When layouts of weights are chosen.
  const std::string layouts = message_without("conv.forward", 8);
  CHECK(layouts == forward);
  // Backward begins at the costs: fc2 is the first layer that has such an operation.
  const std::string backward = message_without("inner_product.backward_data", 4);
  CHECK(backward.starts_with(kFile));
  CHECK(backward.ends_with(": layer 'fc2': inner_product.backward_data: is too slow"));
}

}  // namespace convnet
