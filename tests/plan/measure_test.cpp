// Measured operations: what they are given, how often they run, and what happens when one fails.
#include "convnet/runtime/measure.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/plan/hand_made_plan.h"
#include "tests/temp_folder.h"
#include "tests/wrapped_backend.h"

using namespace convnet;

namespace convnet::test {
namespace {

/// The observations of all runs of the tests' operations.
struct Witness {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  int runs = 0;
  std::set<std::string> complaints;
};

/// Checks its memory, then fills what it may write with ones.
class CheckingOp : public PreparedOp {
 public:
  CheckingOp(Witness& witness, std::vector<TensorDesc> args, std::vector<Access> access,
             std::vector<std::int64_t> bytes, std::int64_t workspace, bool in_place = false)
      : witness_(witness), access_(std::move(access)), bytes_(std::move(bytes)), in_place_(in_place) {
    args_ = std::move(args);
    workspace_bytes_ = workspace;
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const override {
    std::set<std::string> wrong;
    if (pointers.size() != bytes_.size()) wrong.insert("number of arguments");
    for (std::size_t k = 0; k < pointers.size(); ++k) {
      if (reinterpret_cast<std::uintptr_t>(pointers[k]) % 64 != 0) wrong.insert("alignment");
      const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
      if (!std::all_of(pointers[k], pointers[k] + bytes_[k], is_zero)) wrong.insert("not zero");
    }
    if (in_place_ != (pointers[0] == pointers[1])) wrong.insert("place");
    for (std::size_t k = 0; k < pointers.size(); ++k) {
      if (access_[k] != Access::read) std::memset(pointers[k], 255, static_cast<std::size_t>(bytes_[k]));
    }
    if (workspace_bytes_ > 0) std::memset(workspace, 255, static_cast<std::size_t>(workspace_bytes_));
    const std::lock_guard lock(witness_.mutex);
    witness_.threads.insert(std::this_thread::get_id());
    ++witness_.runs;
    witness_.complaints.merge(wrong);
  }

 private:
  Witness& witness_;
  std::vector<Access> access_;
  std::vector<std::int64_t> bytes_;
  bool in_place_;
};

class ThrowingOp : public PreparedOp {
 public:
  void run(std::span<std::byte* const>, std::byte*, Queue*) const override { throw RunError("it broke"); }
};

TensorDesc floats(std::int64_t count) { return {{count}, DataType::f32, nullptr}; }

/// A task that runs an operation of the test's own, in its form.
void add_prepared(Plan& plan, MarkingBackend& backend, OpDesc op,
                  const std::shared_ptr<const PreparedOp>& prepared, std::vector<BufferUse> uses) {
  Task task;
  task.op = std::move(op);
  task.form = prepared->form();
  task.form.change().algorithm = backend.mark_given(prepared);
  task.uses = std::move(uses);
  plan.tasks.push_back(std::move(task));
}

/// A task whose arguments are buffers of their own, as `backend` wants them.
void add_real(Plan& plan, const Backend& backend, const OpDesc& op) {
  const std::vector<Argument> args = arguments(op);
  OpForm form = backend.target().form(op, LayoutHints(args.size()));
  std::vector<BufferUse> uses;
  for (std::size_t k = 0; k < args.size(); ++k) {
    const std::int64_t unsized_bytes = args[k].name == "step" ? step_block_bytes(3) : 64 * 8;
    const std::int64_t bytes = form.args[k].bytes();
    uses.push_back({add_buffer(plan, 0, bytes > 0 ? bytes : unsized_bytes), args[k].access});
  }
  Task task;
  task.op = op;
  task.form = std::move(form);
  task.uses = std::move(uses);
  plan.tasks.push_back(std::move(task));
}

}  // namespace

TEST_CASE("measure: operations get aligned zeros of the right size, their own place or the same") {
  MarkingBackend backend(make_cpu_backend(1));
  Witness witness;
  Plan plan;
  const BufferId a = add_buffer(plan, 0, 40000), b = add_buffer(plan, 0, 40000),
                 big = add_buffer(plan, 0, 400000), costs = add_buffer(plan, 0, 4096, BufferKind::costs);
  using Accesses = std::vector<Access>;
  // Two apart, the same in place, one that reads and writes ranges, one whose second argument has no size.
  add_prepared(plan, backend, Scale{{10000}, 1},
               std::make_shared<CheckingOp>(witness, std::vector{floats(10000), floats(10000)},
                                            Accesses{Access::read, Access::write},
                                            std::vector<std::int64_t>{40000, 40000}, 1000),
               {{a, Access::read}, {b, Access::write}});
  add_prepared(plan, backend, Scale{{10000}, 1},
               std::make_shared<CheckingOp>(witness, std::vector{floats(10000), floats(10000)},
                                            Accesses{Access::read, Access::write},
                                            std::vector<std::int64_t>{40000, 40000}, 0, true),
               {{a, Access::read}, {a, Access::write}});
  add_prepared(plan, backend, Accumulate{{100}},
               std::make_shared<CheckingOp>(witness, std::vector{floats(100), floats(100)},
                                            Accesses{Access::read, Access::read_write},
                                            std::vector<std::int64_t>{400, 400}, 0),
               {{big, Access::read, 0, 4000, 400}, {big, Access::read_write, 0, 8000, 400}});
  add_prepared(plan, backend, SquaresForward{{100}, 1},
               std::make_shared<CheckingOp>(
                   witness, std::vector{floats(100), TensorDesc{{0}, DataType::f64, nullptr}},
                   Accesses{Access::read, Access::read_write}, std::vector<std::int64_t>{400, 4096}, 0),
               {{big, Access::read, 0, 0, 400}, {costs, Access::read_write}});
  for (const int devices : {1, 3}) {
    witness.threads.clear();
    witness.runs = 0;
    const std::vector<double> seconds = measure_seconds(plan, backend, devices);
    REQUIRE(seconds.size() == 4);
    for (const double s : seconds) CHECK(s > 0);
    CHECK(witness.complaints == std::set<std::string>{});
    CHECK(witness.threads.size() == static_cast<std::size_t>(devices));
    CHECK(witness.runs >= 3 * 4 * devices);
    CHECK(witness.runs <= 9 * 4 * devices);
  }
}

TEST_CASE("measure: equal operations are measured once, different ones apart") {
  MarkingBackend backend(make_cpu_backend(1));
  Plan plan;
  for (const std::int64_t n : {1 << 18, 1 << 18, 64, 1 << 18}) add_real(plan, backend, Scale{{1, n}, 2});
  const std::vector<double> seconds = measure_seconds(plan, backend, 2);
  CHECK(seconds[0] == seconds[1]);
  CHECK(seconds[0] == seconds[3]);
  CHECK(seconds[2] != seconds[0]);
}

TEST_CASE("measure: settings that do not show in the arguments' shapes tell operations apart") {
  MarkingBackend backend(make_cpu_backend(1));
  Plan plan;
  WindowNorm norm;
  norm.n = 2;
  norm.c = 4;
  norm.h = norm.w = 12;
  norm.scale = 1;
  norm.power = 0.5F;
  for (const std::int64_t size : {3, 9}) {
    norm.size = size;
    add_real(plan, backend, WindowNormForward{norm});
  }
  const std::vector<double> seconds = measure_seconds(plan, backend, 1);
  CHECK(seconds[0] != seconds[1]);
}

TEST_CASE("measure: real operations with indices, flags and workspaces") {
  MarkingBackend backend(make_cpu_backend(1));
  Plan plan;
  ConvGeometry g;
  g.n = 2;
  g.c = 3;
  g.h = g.w = 9;
  g.k = 8;
  g.filter = 3;
  g.oh = g.ow = 7;
  add_real(plan, backend, ConvForward{g});
  add_real(plan, backend, ConvBackwardWeights{g});
  PoolGeometry p;
  p.n = 2;
  p.c = 8;
  p.h = p.w = 7;
  p.oh = p.ow = 4;
  p.size = 3;
  p.stride = 2;
  p.start = -1;
  add_real(plan, backend, PoolForward{p, true});
  add_real(plan, backend, PoolBackward{p});
  add_real(plan, backend, SoftmaxForward{2, 10});
  add_real(plan, backend, LogregForward{2, 10, 5, 1});
  add_real(plan, backend, SoftmaxLogregBackward{2, 10, 1});
  add_real(plan, backend, Update{{{.count = 1000, .images = 2}}});
  add_real(plan, backend, Dropout{{2, 100}, 0.5F, 2.0F, 7, 0});
  for (const double s : measure_seconds(plan, backend, 2)) CHECK(s > 0);
}

TEST_CASE("measure: what an operation throws arrives, and nobody waits for ever") {
  MarkingBackend backend(make_cpu_backend(1));
  Plan plan;
  add_real(plan, backend, Scale{{1, 100}, 2});
  add_prepared(plan, backend, FillZero{}, std::make_shared<ThrowingOp>(), {});
  add_real(plan, backend, Scale{{1, 200}, 2});
  for (const int devices : {1, 4})
    CHECK(message_of<RunError>([&] { measure_seconds(plan, backend, devices); }) == "it broke");
}

/// Notes which devices it is used on.
class NotingBackend : public MarkingBackend {
 public:
  using MarkingBackend::MarkingBackend;
  std::shared_ptr<const PreparedOp> bind(const OpDesc& op, const OpForm& form, int device) const override {
    bound.insert(device);
    return MarkingBackend::bind(op, form, device);
  }
  std::unique_ptr<DeviceMemory> allocate(int device, std::int64_t bytes) const override {
    const std::lock_guard lock(mutex_);
    allocated.insert(device);
    return MarkingBackend::allocate(device, bytes);
  }
  mutable std::set<int> bound, allocated;

 private:
  mutable std::mutex mutex_;
};

TEST_CASE("measure: operations run on the devices that are named") {
  const NotingBackend backend(make_cpu_backend(1));
  Plan plan;
  MarkingBackend real(make_cpu_backend(1));
  add_real(plan, real, Scale{{1, 200}, 2});
  measure_seconds(plan, backend, 2, nullptr, 3);
  CHECK(backend.bound.contains(3));
  CHECK(backend.allocated == std::set<int>{3, 4});
}

TEST_CASE("measure: what does not fit is refused") {
  MarkingBackend backend(make_cpu_backend(1));
  Plan plan;
  const BufferId huge = add_buffer(plan, 0, std::int64_t{1} << 50);
  add_prepared(plan, backend, FillZero{}, std::make_shared<ThrowingOp>(), {{huge, Access::write}});
  const std::string message = message_of<DeviceError>([&] { measure_seconds(plan, backend, 1); });
  CHECK(message.find("use a smaller --mini") != std::string::npos);
  CHECK_THROWS_AS(measure_seconds(Plan{}, backend, 0), std::logic_error);
  CHECK(measure_seconds(Plan{}, backend, 2).empty());
}

}  // namespace convnet::test
