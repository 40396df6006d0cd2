#include "convnet/runtime/executor.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "kernels/error.h"

namespace convnet {

/// One execution of a plan, shared by the workers.
struct Executor::Run {
  const Plan* plan = nullptr;
  std::vector<std::byte*> addresses;  ///< by buffer
  std::vector<TaskTime>* times = nullptr;
  const std::function<void(std::size_t)>* after_task = nullptr;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::vector<std::atomic<bool>> done;  ///< by task
  std::atomic<bool> failed = false;     ///< a task threw: the others stop waiting

  explicit Run(const Plan& p) : plan(&p), done(p.tasks.size()) {}

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void fail() {
    failed = true;
    for (std::atomic<bool>& d : done) {
      d = true;
      d.notify_all();
    }
  }

  /// Runs the tasks of one device. Returns early if another device failed.
  void follow(int device) {
    std::vector<std::byte*> pointers;
    for (std::size_t t = 0; t < plan->tasks.size(); ++t) {
      const Task& task = plan->tasks[t];
      if (task.device != device) continue;
      for (int after : task.after) done[static_cast<std::size_t>(after)].wait(false);
      if (failed) return;
      pointers.clear();
      for (const BufferUse& use : task.uses)
        pointers.push_back(addresses[static_cast<std::size_t>(use.buffer)]);
      std::byte* workspace =
          task.workspace < 0 ? nullptr : addresses[static_cast<std::size_t>(task.workspace)];
      const double begin = times == nullptr ? 0 : seconds();
      task.prepared->run(pointers, workspace);
      if (times != nullptr) (*times)[t] = {begin, seconds()};
      if (after_task != nullptr && *after_task) (*after_task)(t);
      done[t] = true;
      done[t].notify_all();
    }
  }
};

/// A thread that serves one device until it is destroyed.
class Executor::Worker {
 public:
  Worker(const Backend& backend, int index, int physical)
      : thread_([this, &backend, index, physical] { serve(backend, index, physical); }) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void start(Run& run) {
    {
      const std::lock_guard lock(mutex_);
      run_ = &run;
      error_ = nullptr;
    }
    changed_.notify_all();
  }

  /// Waits until the run is over; returns what it threw.
  std::exception_ptr wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return run_ == nullptr; });
    return error_;
  }

 private:
  void serve(const Backend& backend, int index, int physical) {
    backend.enter_worker(physical);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || run_ != nullptr; });
      if (run_ == nullptr) return;
      Run& run = *run_;
      lock.unlock();
      std::exception_ptr error;
      try {
        run.follow(index);
      } catch (...) {
        error = std::current_exception();
        run.fail();
      }
      lock.lock();
      error_ = error;
      run_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Run* run_ = nullptr;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

Executor::Executor(PlanSet& plans, std::vector<int> physical)
    : plans_(plans), physical_(std::move(physical)) {
  if (static_cast<int>(physical_.size()) < plans_.devices())
    throw std::logic_error("executor: fewer devices than the plan has");
  persistent_.resize(static_cast<std::size_t>(plans_.devices()));
  transient_.resize(static_cast<std::size_t>(plans_.devices()));
  for (int device = 0; device < plans_.devices(); ++device)
    workers_.push_back(
        std::make_unique<Worker>(plans_.backend(), device, physical_[static_cast<std::size_t>(device)]));
}

Executor::~Executor() = default;

void Executor::reserve(const Plan& plan) {
  for (std::size_t device = 0; device < persistent_.size(); ++device) {
    const DeviceMemoryNeeds& needs = plan.memory[device];
    const bool first = !persistent_[device];
    const bool grow = !transient_[device] || transient_[device]->bytes() < needs.transient;
    const std::int64_t wanted = (first ? needs.persistent : 0) + (grow ? needs.transient : 0);
    const std::int64_t freed = grow && transient_[device] ? transient_[device]->bytes() : 0;
    const std::int64_t available = plans_.backend().memory_available(physical_[device]) + freed;
    if (wanted > available)
      throw DeviceError("device " + std::to_string(physical_[device]) + " (" + plans_.backend().name() +
                        "): this net with " + std::to_string(plan.images) + " images a minibatch needs " +
                        std::to_string(wanted >> 20) + " MiB, but only " + std::to_string(available >> 20) +
                        " MiB are free; use a smaller --mini (convnet plan shows what takes the memory)");
    if (first) persistent_[device] = plans_.backend().allocate(physical_[device], needs.persistent);
    if (grow) {
      transient_[device].reset();
      transient_[device] = plans_.backend().allocate(physical_[device], needs.transient);
    }
  }
}

std::byte* Executor::address(const Buffer& b) const {
  const auto device = static_cast<std::size_t>(b.device);
  return (b.persistent() ? persistent_[device] : transient_[device])->data() + b.offset;
}

StepResult Executor::run(const Plan& plan, const StepInputs& inputs, std::vector<TaskTime>* times,
                         const std::function<void(std::size_t)>& after_task) {
  reserve(plan);
  Run run(plan);
  run.times = times;
  run.after_task = &after_task;
  if (times != nullptr) times->assign(plan.tasks.size(), {});
  for (const Buffer& b : plan.buffers)
    run.addresses.push_back(b.kind == BufferKind::input ? nullptr : address(b));
  for (std::size_t m = 0; m < plan.inputs.size(); ++m) {
    if (plan.inputs[m] < 0) continue;
    if (inputs.matrices.at(m) == nullptr)
      throw std::logic_error("executor: matrix " + std::to_string(m) + " is missing");
    // Load tasks only read it.
    run.addresses[static_cast<std::size_t>(plan.inputs[m])] = const_cast<std::byte*>(inputs.matrices[m]);
  }
  const StepHeader header{inputs.iteration};
  for (int device = 0; device < plans_.devices(); ++device) {
    std::byte* step = address(plan.buffers[static_cast<std::size_t>(plans_.step_buffer(device))]);
    std::memcpy(step, &header, sizeof header);
    if (!inputs.rates.empty())
      std::memcpy(step + sizeof header, inputs.rates.data(), inputs.rates.size() * sizeof(Rates));
  }
  for (auto& worker : workers_) worker->start(run);
  std::exception_ptr error;
  for (auto& worker : workers_) {
    if (std::exception_ptr e = worker->wait(); e && !error) error = e;
  }
  if (error) std::rethrow_exception(error);

  StepResult result;
  for (int device = 0; device < plans_.devices(); ++device) {
    const Buffer& b = plan.buffers[static_cast<std::size_t>(plans_.costs_buffer(device))];
    std::vector<double> costs(static_cast<std::size_t>(b.desc.dims[0]));
    std::memcpy(costs.data(), address(b), costs.size() * sizeof(double));
    result.costs.resize(costs.size(), 0);
    for (std::size_t i = 0; i < costs.size(); ++i) result.costs[i] += costs[i];
  }
  return result;
}

std::vector<float> Executor::read(const Plan* plan, int buffer) const {
  const Buffer& b = (plan != nullptr ? plan->buffers : plans_.persistent())[static_cast<std::size_t>(buffer)];
  std::vector<float> values(static_cast<std::size_t>(element_count(b.desc.dims)));
  const TensorDesc dense{b.desc.dims, b.desc.type, nullptr};
  const auto op = plans_.backend().prepare(Reorder{b.desc, dense}, {b.desc, dense});
  std::vector<std::byte> workspace(static_cast<std::size_t>(op->workspace_bytes()));
  std::byte* pointers[] = {address(b), reinterpret_cast<std::byte*>(values.data())};
  op->run(pointers, workspace.data());
  return values;
}

void Executor::write(int persistent_buffer, std::span<const float> values) {
  const Buffer& b = plans_.persistent()[static_cast<std::size_t>(persistent_buffer)];
  if (static_cast<std::int64_t>(values.size()) != element_count(b.desc.dims))
    throw std::logic_error("executor: '" + b.name + "' is written with another number of values");
  const TensorDesc dense{b.desc.dims, b.desc.type, nullptr};
  const auto op = plans_.backend().prepare(Reorder{dense, b.desc}, {dense, b.desc});
  std::vector<std::byte> workspace(static_cast<std::size_t>(op->workspace_bytes()));
  std::byte* pointers[] = {reinterpret_cast<std::byte*>(const_cast<float*>(values.data())), address(b)};
  op->run(pointers, workspace.data());
}

}  // namespace convnet
