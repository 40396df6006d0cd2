#include "convnet/runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/exit.h"

namespace convnet {

namespace {

std::string_view bytes_of_values(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

/// Throws std::logic_error if a matrix that the plan reads is missing.
void check_matrices(const Plan& plan, const std::vector<const std::byte*>& matrices) {
  for (std::size_t m = 0; m < plan.inputs.size(); ++m) {
    if (plan.inputs[m].exists() && matrices.at(m) == nullptr)
      throw std::logic_error("executor: matrix " + std::to_string(m) + " is missing");
  }
}

}  // namespace

Executor::Executor(const PlanSet& plans, const Backend& backend, std::vector<int> physical,
                   double stall_seconds, Processes* processes)
    : plans_(plans),
      backend_(backend),
      processes_(processes),
      process_(processes == nullptr ? 0 : processes->rank()),
      physical_(std::move(physical)),
      stall_seconds_(stall_seconds) {
  if (static_cast<int>(physical_.size()) < plans_.devices())
    throw std::logic_error("executor: fewer devices than the plan has");
  const auto devices = static_cast<std::size_t>(plans_.devices());
  persistent_.resize(devices);
  transient_.resize(devices);
  if (plans_.topology().processes() != (processes == nullptr ? 1 : processes->count()))
    throw std::logic_error("executor: the plans are for another number of processes");
  for (const DeviceId device : plans_.device_ids()) {
    if (is_here(device)) here_.push_back(device);
  }
  runner_ = std::make_unique<Runner>(
      plans_, backend_, physical_, [this](const Buffer& b) { return address(b); }, stall_seconds_,
      processes_);
}

Executor::~Executor() {
  try {
    runner_->settle();
  } catch (const std::runtime_error&) {  // it has stalled, or a device is broken
  }
  if (runner_->stalled()) skip_destructors_at_exit();
  if (!runner_->uses_memory()) return;
  // Leaked on purpose: a task that hangs may still write to it.
  for (auto* memory : {&persistent_, &transient_}) {
    for (auto& m : *memory) static_cast<void>(m.release());
  }
  static_cast<void>(runner_.release());
}

void Executor::reserve(const Plan& plan) {
  const auto has_all = [&](DeviceId device) {
    return persistent_[device] && transient_[device] &&
           transient_[device]->bytes() >= plan.memory[device].transient;
  };
  bool enough = true;
  for (const DeviceId device : here_) enough = enough && has_all(device);
  if (!enough) check_fits(plan);
  bound(plan);  // where libraries are timed, they need memory
  if (enough) return;
  if (in_flight() > 0 || runner_->uses_memory())
    throw std::logic_error("executor: steps in flight use the memory that is to grow");
  check_fits(plan);  // libraries may keep some of what was free
  runner_->forget();
  for (const DeviceId device : here_) {
    const DeviceMemoryNeeds& needs = plan.memory[device];
    if (!persistent_[device]) persistent_[device] = backend_.allocate(physical_[device], needs.persistent);
    if (transient_[device] && transient_[device]->bytes() >= needs.transient) continue;
    transient_[device].reset();
    transient_[device] = backend_.allocate(physical_[device], needs.transient);
  }
}

/// Throws DeviceError if the plan needs more memory than is free.
void Executor::check_fits(const Plan& plan) const {
  // All CPU devices share one memory, and all indices of one GPU share its memory.
  std::string table;
  bool fits = true;
  std::map<int, std::int64_t> taken_of;
  for (const DeviceId device : here_) {
    std::int64_t& taken = taken_of[backend_.on_host() ? 0 : physical_[device]];
    const DeviceMemoryNeeds& needs = plan.memory[device];
    const bool grow = !transient_[device] || transient_[device]->bytes() < needs.transient;
    const std::int64_t wanted = (!persistent_[device] ? needs.persistent : 0) + (grow ? needs.transient : 0) +
                                runner_->bytes_beside(plan);
    const std::int64_t freed = grow && transient_[device] ? transient_[device]->bytes() : 0;
    const std::int64_t available = backend_.memory_available(physical_[device]) + freed - taken;
    taken += wanted - freed;
    fits = fits && wanted <= available;
    table += "\n  device " + std::to_string(device.value()) + " (" + plans_.target().name() + ":" +
             std::to_string(physical_[device]) + ") needs " + std::to_string(wanted >> 20) + " MiB, " +
             std::to_string(std::max<std::int64_t>(0, available) >> 20) + " MiB are free";
  }
  if (!fits)
    throw DeviceError("this net with " + std::to_string(plan.images) +
                      " images a minibatch does not fit in memory:" + table +
                      "\nuse more --microbatches, a smaller --mini or --conserve-mem 1 (convnet plan shows "
                      "what takes the memory)");
}

/// Returns the bound plan. The first call for a plan binds it.
const std::shared_ptr<const BoundPlan>& Executor::bound(const Plan& plan) {
  const auto found = std::find_if(bound_.begin(), bound_.end(),
                                  [&](const auto& bound_plan) { return &bound_plan->plan() == &plan; });
  if (found != bound_.end()) return *found;
  return bound_.emplace_back(
      std::make_shared<const BoundPlan>(plan, plans_.graph(), backend_, physical_, process_));
}

std::map<std::string, std::string> Executor::algorithms() const {
  // Several plans for the same images: the later phase says the algorithm, in whatever order they were bound.
  std::vector<std::shared_ptr<const BoundPlan>> plans(bound_.begin(), bound_.end());
  std::stable_sort(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
    return std::pair(a->plan().phase, a->plan().images) < std::pair(b->plan().phase, b->plan().images);
  });
  std::map<std::string, std::string> chosen;
  for (const auto& bound_plan : plans) bound_plan->add_algorithms(chosen);
  return chosen;
}

std::byte* Executor::address(const Buffer& b) const {
  return (b.persistent() ? persistent_[b.device] : transient_[b.device])->data() + b.offset;
}

std::vector<std::byte> Executor::step_block(const StepInputs& inputs) const {
  const StepHeader header{inputs.iteration, inputs.average_share, inputs.clip_norm};
  const Buffer& buffer = plans_.persistent()[plans_.step_buffer(DeviceId(0))];
  std::vector<std::byte> block(static_cast<std::size_t>(buffer.bytes));
  std::memcpy(block.data(), &header, sizeof header);
  const std::vector<Rates>& rates = inputs.rates;
  if (!rates.empty()) std::memcpy(block.data() + sizeof header, rates.data(), rates.size() * sizeof(Rates));
  return block;
}

void Executor::submit(const Plan& plan, const StepInputs& inputs, TaskTimes* times,
                      const std::function<void(TaskId)>& after_task) {
  if (in_flight() >= kMostInFlight) throw std::logic_error("executor: two steps are in flight already");
  check_matrices(plan, inputs.matrices);
  reserve(plan);
  runner_->submit(bound(plan), inputs.matrices, step_block(inputs), {times, after_task});
}

StepResult Executor::wait() {
  if (in_flight() == 0) throw std::logic_error("executor: no step is in flight");
  const std::vector<double> costs = costs_of_all(runner_->wait());
  StepResult result;
  const std::size_t values = costs.size() / static_cast<std::size_t>(plans_.devices());
  result.costs.resize(values, 0);
  for (std::size_t i = 0; i < costs.size(); ++i) result.costs[i % values] += costs[i];
  return result;
}

/// Adds to the costs of this process's devices those of the other processes' devices, in the devices' order.
std::vector<double> Executor::costs_of_all(const std::vector<double>& costs) const {
  if (processes_ == nullptr) return costs;
  const std::string_view mine(reinterpret_cast<const char*>(costs.data()), costs.size() * sizeof(double));
  const std::string bytes = joined(processes_->exchange(mine));
  std::vector<double> all(bytes.size() / sizeof(double));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

StepResult Executor::run(const Plan& plan, const StepInputs& inputs, TaskTimes* times,
                         const std::function<void(TaskId)>& after_task) {
  if (in_flight() > 0) throw std::logic_error("executor: a step is run while others are in flight");
  submit(plan, inputs, times, after_task);
  return wait();
}

void Executor::expect(const Plan& plan, const std::vector<const std::byte*>& matrices) {
  if (in_flight() > 1) throw std::logic_error("executor: a step is expected behind two in flight");
  check_matrices(plan, matrices);
  runner_->expect(bound(plan), matrices);
}

void Executor::check_here(const Buffer& b) const {
  if (!is_here(b.device)) throw std::logic_error("executor: '" + b.name + "' is in another process");
}

std::vector<float> Executor::read(const Plan* plan, BufferId buffer) const {
  runner_->settle();
  const Buffer& b = (plan != nullptr ? plan->buffers : plans_.persistent())[buffer];
  check_here(b);
  std::vector<std::byte> stored(static_cast<std::size_t>(b.desc.bytes()));
  backend_.copy(stored.data(), address(b), b.desc.bytes());
  std::vector<float> values(static_cast<std::size_t>(element_count(b.desc.dims)));
  backend_.relay(b.desc, stored.data(), {b.desc.dims, DataType::f32, nullptr},
                 reinterpret_cast<std::byte*>(values.data()));
  return values;
}

void Executor::write(BufferId persistent_buffer, std::span<const float> values) {
  const Buffer& b = plans_.persistent()[persistent_buffer];
  if (static_cast<std::int64_t>(values.size()) != element_count(b.desc.dims))
    throw std::logic_error("executor: '" + b.name + "' is written with another number of values");
  check_here(b);
  runner_->settle();
  std::vector<std::byte> stored(static_cast<std::size_t>(b.desc.bytes()));
  backend_.relay({b.desc.dims, DataType::f32, nullptr}, reinterpret_cast<const std::byte*>(values.data()),
                 b.desc, stored.data());
  backend_.copy(address(b), stored.data(), b.desc.bytes());
}

std::vector<float> Executor::read_weights(const WeightBuffers& w) const {
  const auto is_mine = [&](BufferId buffer) { return is_here(plans_.persistent()[buffer].device); };
  const auto mine = std::find_if(w.weights.begin(), w.weights.end(), is_mine);
  std::vector<float> values;
  if (mine != w.weights.end()) values = read(nullptr, *mine);
  std::set<int> holders;
  for (const BufferId buffer : w.weights)
    holders.insert(plans_.topology().process(plans_.persistent()[buffer].device));
  if (static_cast<int>(holders.size()) == plans_.topology().processes()) return values;
  // The first process that has a replica brings it.
  const bool brings = *holders.begin() == process_;
  const std::string all = joined(processes_->exchange(brings ? bytes_of_values(values) : std::string_view()));
  values.resize(all.size() / sizeof(float));
  std::memcpy(values.data(), all.data(), all.size());
  return values;
}

void Executor::write_weights(const WeightBuffers& w, std::span<const float> values) {
  write_everywhere(w.weights, values);
  write_everywhere(w.rounded, values);
}

void Executor::write_everywhere(const std::vector<BufferId>& persistent_buffers,
                                std::span<const float> values) {
  for (const BufferId buffer : persistent_buffers) {
    if (is_here(plans_.persistent()[buffer].device)) write(buffer, values);
  }
}

std::vector<float> Executor::read_ranges(const WeightBuffers& w,
                                         const std::vector<MatrixRange>& ranges) const {
  runner_->settle();
  const TensorDesc& layout = plans_.persistent()[w.weights[0]].desc;
  std::vector<float> stored(static_cast<std::size_t>(layout.bytes()) / sizeof(float), 0.0F);
  const auto for_ranges = [&](int process, const auto& visit) {
    for (const MatrixRange& range : ranges) {
      const Buffer& b = plans_.persistent()[range.buffer];
      if (plans_.topology().process(b.device) == process)
        visit(b, reinterpret_cast<std::byte*>(stored.data() + range.begin),
              range.count * size_of(DataType::f32));
    }
  };
  std::string mine;
  for_ranges(process_, [&](const Buffer& b, std::byte* place, std::int64_t bytes) {
    backend_.copy(place, address(b), bytes);
    mine.append(reinterpret_cast<const char*>(place), static_cast<std::size_t>(bytes));
  });
  if (processes_ != nullptr) {
    const std::vector<std::string> all = processes_->exchange(mine);
    for (int process = 0; process < processes_->count(); ++process) {
      const char* from = all[static_cast<std::size_t>(process)].data();
      for_ranges(process, [&](const Buffer&, std::byte* place, std::int64_t bytes) {
        std::memcpy(place, std::exchange(from, from + bytes), static_cast<std::size_t>(bytes));
      });
    }
  }
  std::vector<float> values(static_cast<std::size_t>(element_count(layout.dims)));
  backend_.relay(layout, reinterpret_cast<const std::byte*>(stored.data()),
                 {layout.dims, layout.type, nullptr}, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

void Executor::write_ranges(const WeightBuffers& w, const std::vector<MatrixRange>& ranges,
                            std::span<const float> values) {
  if (ranges.empty()) return;
  runner_->settle();
  const TensorDesc& layout = plans_.persistent()[w.weights[0]].desc;
  // Padding holds zeros.
  std::vector<float> stored(static_cast<std::size_t>(layout.bytes()) / sizeof(float), 0.0F);
  backend_.relay({layout.dims, layout.type, nullptr}, reinterpret_cast<const std::byte*>(values.data()),
                 layout, reinterpret_cast<std::byte*>(stored.data()));
  for (const MatrixRange& range : ranges) {
    const Buffer& b = plans_.persistent()[range.buffer];
    if (!is_here(b.device)) continue;
    backend_.copy(address(b), reinterpret_cast<const std::byte*>(stored.data() + range.begin),
                  range.count * size_of(DataType::f32));
  }
}

}  // namespace convnet
