// Work that the runner puts into the queues waits for what the plan says. Emulated devices do their
// work in the order in which it is asked for, so a wait that is missing changes nothing there: here it is
// seen.
#include <map>

#include "convnet/base/error.h"
#include "convnet/runtime/executor.h"
#include "tests/catch.h"
#include "tests/layers/small_net.h"
#include "tests/wrapped_backend.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// The number of pieces of work that are done for certain, by queue.
using Clock = std::map<int, int>;

void learn(Clock& clock, const Clock& other) {
  for (const auto& [queue, done] : other) clock[queue] = std::max(clock[queue], done);
}

struct Work {
  bool copies = false;
  int queue = 0, place = 0;  ///< counted in its queue, from 1
  Clock before;              ///< the work that is done when this begins
};

struct Log {
  std::vector<Work> work;
  Clock last_mark;
  int queues = 0;
};

class WatchedMark : public Mark {
 public:
  explicit WatchedMark(Clock clock) : clock_(std::move(clock)) {}
  const Clock& clock() const { return clock_; }
  bool reached() const override { return true; }
  double seconds_since(const Mark&) const override { return 0; }

 private:
  Clock clock_;
};

class WatchedQueue : public Queue {
 public:
  explicit WatchedQueue(Log& log) : log_(log), id_(log.queues++) {}
  void put(bool copies) {
    log_.work.push_back({copies, id_, clock_[id_] + 1, clock_});
    ++clock_[id_];
  }
  std::shared_ptr<const Mark> mark() override {
    log_.last_mark = clock_;
    return std::make_shared<WatchedMark>(clock_);
  }
  void wait(const Mark& mark) override { learn(clock_, dynamic_cast<const WatchedMark&>(mark).clock()); }
  void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) override {
    put(true);
    std::copy_n(src, bytes, dst);
  }

 private:
  Log& log_;
  int id_;
  Clock clock_;
};

class WatchedOp : public PreparedOp {
 public:
  explicit WatchedOp(std::shared_ptr<const PreparedOp> op) : op_(std::move(op)) {
    args_ = op_->args();
    workspace_bytes_ = op_->workspace_bytes();
  }
  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override {
    dynamic_cast<WatchedQueue&>(*queue).put(false);
    op_->run(pointers, workspace, queue);
  }

 private:
  std::shared_ptr<const PreparedOp> op_;
};

class Again : public Recording {
 public:
  explicit Again(std::function<void()> submit) : submit_(std::move(submit)) {}
  void play(Queue&) const override { submit_(); }

 private:
  std::function<void()> submit_;
};

/// Emulated GPUs whose queues are watched.
class Watched : public WrappedBackend {
 public:
  explicit Watched(Log& log) : WrappedBackend(make_cuda_backend(Precision::fp32)), log_(log) {}
  bool refuses_to_record = false;

  std::shared_ptr<const PreparedOp> bind(const OpDesc& op, const OpForm& form, int device) const override {
    return std::make_shared<WatchedOp>(WrappedBackend::bind(op, form, device));
  }
  std::vector<std::unique_ptr<Queue>> make_queues(int, std::size_t count) const override {
    std::vector<std::unique_ptr<Queue>> queues;
    while (queues.size() < count) queues.push_back(std::make_unique<WatchedQueue>(log_));
    return queues;
  }
  std::unique_ptr<Recording> record(std::span<Queue* const>,
                                    const std::function<void()>& submit) const override {
    if (refuses_to_record) throw DeviceError("this cannot be recorded");
    return std::make_unique<Again>(submit);
  }

 private:
  Log& log_;
};

constexpr std::int64_t kImages = 6;
constexpr int kClasses = 4;

/// A net on watched devices, and a step of it.
struct WatchedNet {
  Log log;
  Watched backend{log};
  ShapeOnlyProvider provider{{3, 8, 8}, kClasses};
  Graph graph;
  std::unique_ptr<PlanSet> plans;
  Minibatch batch = random_minibatch({3, 8, 8}, kImages, kClasses, 1);
  StepInputs inputs;

  explicit WatchedNet(const std::string& gpus) {
    const NetTexts texts = between_data_and_cost(
        "[conv1]\ntype=conv\ninputs=data\nchannels=3\nfilters=8\nfilterSize=3\nbiases=1\ninitW=0.1\ngpu=" +
            gpus +
            "\n[pool1]\ntype=pool\npool=max\ninputs=conv1\nchannels=8\nsizeX=2\nstride=2\nneuron=relu\n"
            "[conv2]\ntype=conv\ninputs=pool1\nchannels=8\nfilters=8\nfilterSize=3\ninitW=0.1\n"
            "[bn]\ntype=bnorm\ninputs=conv2\nneuron=relu\n",
        "bn", kClasses);
    Diagnostics diagnostics;
    graph = build_graph(parse_ini("net.cfg", texts.definition, diagnostics),
                        parse_ini("params.cfg", texts.parameters, diagnostics), provider.matrices(), {},
                        diagnostics);
    diagnostics.throw_if_errors();
    plans = std::make_unique<PlanSet>(graph, provider.matrices(), backend.target(), PlanOptions{});
    inputs.matrices = {reinterpret_cast<const std::byte*>(batch.data.data()),
                       reinterpret_cast<const std::byte*>(batch.labels.data())};
    inputs.rates.resize(plans->weights().size());
  }
};

bool is_done(const Clock& clock, const Work& work) {
  const auto found = clock.find(work.queue);
  return found != clock.end() && found->second >= work.place;
}

/// The number of a stream's queue. Those of a device are made in the order of kStreamOrder, and its queue of
/// inputs after them.
int queue_of(DeviceId device, Stream stream) {
  const auto place = std::find(kStreamOrder.begin(), kStreamOrder.end(), stream) - kStreamOrder.begin();
  return device.value() * (kWorkStreams + 1) + static_cast<int>(place);
}

/// One step's work against its plan.
void check_waits(const Plan& plan, const Log& log) {
  std::vector<Work> earlier;  // copies before the first task
  Table<TaskId, Work> tasks;  // their operations
  std::size_t next = 0;
  for (; next < log.work.size() && log.work[next].copies; ++next) earlier.push_back(log.work[next]);
  for (; next < log.work.size() && tasks.size() < plan.tasks.size(); ++next) {
    const Work& work = log.work[next];
    const Task& task = plan.tasks[tasks.next_id()];
    INFO("task " << tasks.size() << (work.copies ? ", a copy for it" : ""));
    for (const TaskId after : task.after) CHECK(is_done(work.before, tasks[after]));
    for (const Work& copy : earlier) {
      // The step block of each device comes in its first stream.
      const int device = copy.queue / (kWorkStreams + 1);
      const bool block = copy.queue == queue_of(DeviceId(device), Stream::compute);
      if (!block || device == task.device.value()) CHECK(is_done(work.before, copy));
    }
    if (!work.copies) {
      CHECK(work.queue == queue_of(task.device, task.stream));
      tasks.push_back(work);
    }
  }
  REQUIRE(tasks.size() == plan.tasks.size());
  for (const Work& work : log.work) CHECK(is_done(log.last_mark, work));
}

}  // namespace

TEST_CASE("queues wait for what the plan says") {
  struct Case {
    std::string gpus;
    std::vector<int> physical;
  };
  for (const Case& c :
       std::vector<Case>{{"0", {0}}, {"0,1", {0, 2}}, {"0,1", {0, 1}}, {"0,1,2", {0, 1, 2}}}) {
    INFO(c.gpus << ", the last one is device " << c.physical.back());
    WatchedNet net(c.gpus);
    Executor executor(*net.plans, net.backend, c.physical);
    for (const Phase phase : {Phase::train, Phase::test}) {
      const Plan& plan = net.plans->plan(phase, kImages);
      const auto streams = [&](Stream stream) {
        return std::any_of(plan.tasks.begin(), plan.tasks.end(),
                           [&](const Task& t) { return t.stream == stream; });
      };
      if (phase == Phase::train) CHECK(streams(Stream::update));
      if (phase == Phase::train && c.physical.size() > 1) CHECK(streams(Stream::copy));
      for (int run = 0; run < 3; ++run) {  // as it is, recorded and played, played
        net.log.work.clear();
        executor.run(plan, net.inputs);
        ++net.inputs.iteration;
        check_waits(plan, net.log);
      }
    }
  }
}

TEST_CASE("a second step begins at once where both are recorded, else in its turn") {
  for (const bool refuses : {false, true}) {
    INFO((refuses ? "never recorded" : "recorded"));
    WatchedNet net("0");
    net.backend.refuses_to_record = refuses;
    Executor executor(*net.plans, net.backend, {0});
    const Plan& plan = net.plans->plan(Phase::train, kImages);
    executor.reserve(plan);
    const auto operations = [&] {
      return std::count_if(net.log.work.begin(), net.log.work.end(), [](const Work& w) { return !w.copies; });
    };
    const auto all = static_cast<std::ptrdiff_t>(plan.tasks.size());
    net.log.work.clear();
    executor.submit(plan, net.inputs);
    CHECK(operations() == all);
    for (std::ptrdiff_t step = 1; step < 8; ++step) {
      INFO("step " << step);
      ++net.inputs.iteration;
      // The first run is not recorded, and there are two recordings to make.
      const bool at_once = !refuses && step >= 3;
      executor.submit(plan, net.inputs);
      CHECK(operations() == (at_once ? step + 1 : step) * all);
      executor.wait();
      CHECK(operations() == (at_once ? step + 1 : step) * all);
      CHECK(executor.is_recorded(plan) == at_once);
    }
    executor.wait();
    CHECK(operations() == 8 * all);
  }
}

TEST_CASE("steps that cannot be recorded run all the same") {
  std::vector<std::vector<double>> costs;
  for (const bool refuses : {false, true}) {
    WatchedNet net("0");
    net.backend.refuses_to_record = refuses;
    Executor executor(*net.plans, net.backend, {0});
    const Plan& plan = net.plans->plan(Phase::train, kImages);
    executor.reserve(plan);
    for (Rates& r : net.inputs.rates) r = {0.1F, 0.9F, 0, 0};
    for (const WeightBuffers& w : net.plans->weights()) {
      const auto count = static_cast<std::size_t>(element_count(net.graph.weight({w.node, w.index}).dims));
      std::vector<float> values;
      for (std::size_t i = 0; i < count; ++i) values.push_back(0.01F * static_cast<float>(i % 7));
      executor.write_weights(w, values);
    }
    costs.emplace_back();
    executor.submit(plan, net.inputs);
    for (int step = 0; step < 4; ++step) {
      ++net.inputs.iteration;
      if (step < 3) executor.submit(plan, net.inputs);
      costs.back().push_back(executor.wait().costs.at(1));
    }
  }
  CHECK(costs[0] == costs[1]);
  CHECK(costs[0][0] != costs[0][3]);
}
