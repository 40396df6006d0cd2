// `convnet bench` measures how fast a training step is, and where its time goes.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "convnet/base/available_memory.h"
#include "convnet/base/clock.h"
#include "convnet/base/error.h"
#include "convnet/base/median.h"
#include "convnet/base/notes.h"
#include "convnet/base/output_file.h"
#include "convnet/cli/bench_report.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/cli/planned_run.h"
#include "convnet/net/devices.h"
#include "convnet/net/net_files.h"
#include "convnet/plan/simulate.h"
#include "convnet/train/options.h"
#include "convnet/train/report.h"

namespace convnet {
namespace {

struct BenchOptions {
  static constexpr OptionGroup group = OptionGroup::output;
  NetFileOptions files;
  CheckpointOptions checkpoints;
  DataOptions data;
  StepOptions step;
  int steps = 0;
  DeviceOptions devices;
  ReportOptions report;
};

const OptionTable<BenchOptions>& options_of_bench() {
  static const auto table =
      OptionTable<BenchOptions>()
          .add(&BenchOptions::files, net_file_options())
          .add(&BenchOptions::checkpoints, read_checkpoint_option())
          .add(&BenchOptions::step, step_options_with_auto())
          .add(&BenchOptions::data,
               data_options().without({"test-range", "test-one", "shuffle", "balance", "multiview-test"}))
          .add({
              unsaved_option(
                  "steps", &BenchOptions::steps,
                  {.fallback = "0", .min = 0, .max = 1e6, .doc = "measured steps; 0: for about ten seconds"}),
          })
          .add(&BenchOptions::devices, device_options())
          .add(&BenchOptions::report, report_options().only({"json", "profile"}));
  return table;
}

/// The matrices of a minibatch, as bytes.
using Matrices = std::vector<std::vector<std::byte>>;

std::vector<const std::byte*> pointers_to(const Matrices& matrices) {
  std::vector<const std::byte*> pointers;
  for (const auto& matrix : matrices) pointers.push_back(matrix.data());
  return pointers;
}

/// Reads a minibatch from the provider's batches from number `first` on.
Matrices one_minibatch(const Provider& provider, int first, std::int64_t images) {
  Matrices matrices(provider.matrices().size());
  std::int64_t have = 0;
  for (int batch = first; have < images; ++batch) {
    provider.check_range({batch, batch}, "--mini " + std::to_string(images));
    const DataBatch data = provider.read({batch, 1, 0, images}, {});
    const std::int64_t take = std::min(images - have, data.images);
    for (std::size_t m = 0; m < matrices.size(); ++m) {
      const auto bytes = static_cast<std::ptrdiff_t>(provider.matrices()[m].image_bytes() * take);
      matrices[m].insert(matrices[m].end(), data.matrices[m].begin(), data.matrices[m].begin() + bytes);
    }
    have += take;
  }
  return matrices;
}

/// Returns the batch that is measured; data that stands for a data set has a batch of any number.
int first_batch(const RequestedRun& run, bool knows_batches) {
  return knows_batches ? run.options.data.train_range.first : 1;
}

/// Throws DeviceError if the images of a minibatch, and those of the batch that it is read from, do not fit
/// into the host's memory beside `reserved` bytes.
void check_images_fit(const Provider& provider, int batch, std::int64_t images, std::int64_t reserved) {
  std::int64_t image = 0;
  for (const MatrixInfo& matrix : provider.matrices()) image += matrix.image_bytes();
  // Devices that copy their inputs are fed from two, and a batch is read beside them.
  constexpr std::int64_t kCopies = 2;
  const std::int64_t needed = image * (kCopies * images + provider.images_in(batch)) + reserved;
  if (const std::int64_t available = available_memory(); needed > available)
    throw DeviceError(
        fmt::format("minibatches of {} images do not fit in memory: they take {} MiB with all that is "
                    "computed of them, but "
                    "{} MiB are free; use a smaller --mini",
                    images, needed >> 20, available >> 20));
}

constexpr int kWarmUp = 4;  ///< steps; after them both places of the inputs are recorded

/// Returns the seconds that the busiest device spends in tasks.
double busiest(const Plan& plan, const TaskTimes& times) {
  double most = 0;
  for (const DeviceShare& share : device_shares(plan, times)) most = std::max(most, share.busy);
  return most;
}

BenchMeasurement measure(Net& net, const Plan& plan, StepInputs inputs, int steps) {
  std::vector<double> walls, overheads;
  BenchMeasurement m;
  Table<TaskId, std::vector<double>> tasks(plan.tasks.size());
  TaskTimes times;
  const bool separately = net.executor().times_cost();
  const auto step = [&](TaskTimes* task_times) {
    net.executor().submit(plan, inputs, task_times);
    net.executor().expect(plan, inputs.matrices);  // they stay on the devices
    net.executor().wait();
    ++inputs.iteration;
  };
  for (int i = 0; i < kWarmUp; ++i) step(nullptr);
  const auto start = Clock::now();
  const auto enough = [&](int done) {
    if (steps > 0) return done >= steps;
    return done >= 7 && seconds_since(start) > 10;
  };
  const auto record_tasks = [&] {
    overheads.push_back(1 - busiest(plan, times) / (separately ? median(walls) : walls.back()));
    for (const TaskId t : times.ids()) tasks[t].push_back(times[t].end - times[t].begin);
    m.timeline.push_back(times);
    if (m.timeline.size() > 3) m.timeline.erase(m.timeline.begin());
  };
  int done = 0;
  for (; !enough(done); ++done) {
    const auto begin = Clock::now();
    step(separately ? nullptr : &times);
    walls.push_back(seconds_since(begin));
    if (!separately) record_tasks();
  }
  for (int extra = 0; separately && extra < 7; ++extra) {
    step(&times);
    record_tasks();
  }
  if (separately) m.recorded = net.executor().is_recorded(plan);
  m.step = median(walls);
  m.shortest = quantile(walls, 0);
  m.mean = std::accumulate(walls.begin(), walls.end(), 0.0) / static_cast<double>(walls.size());
  m.percentile_95 = quantile(walls, 0.95);
  m.overhead = median(overheads);
  m.steps = done;
  for (auto& t : tasks) m.tasks.push_back(median(std::move(t)));
  return m;
}

/// Measures the seconds of a step as in training: `minibatch` and a copy of it take turns, and each step is
/// submitted while the one before computes.
double fed_step(Net& net, const Plan& plan, StepInputs inputs, const Matrices& minibatch, int steps) {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): other memory with the same contents
  const Matrices copy = minibatch;
  const int all = kWarmUp + steps;
  const auto submit = [&](int step) {
    inputs.matrices = pointers_to(step % 2 == 0 ? minibatch : copy);
    net.executor().submit(plan, inputs);
    ++inputs.iteration;
  };
  std::vector<double> walls;
  submit(0);
  for (int step = 0; step < all; ++step) {
    const auto begin = Clock::now();
    if (step + 1 < all) submit(step + 1);
    net.executor().wait();
    if (step >= kWarmUp) walls.push_back(seconds_since(begin));
  }
  return median(std::move(walls));
}

using Plans = std::vector<std::unique_ptr<const Plan>>;

/// Measures each convolution, product, pooling, norm and update of the step alone, repeatedly, and returns
/// the sum of their seconds, as a mean over the devices: the time of a step with nothing between these
/// operations. Adds the plans that it runs to `singles`, where they must stay as long as the net, whose
/// executor knows them by their addresses.
double primitives_alone(Net& net, const Plan& plan, const StepInputs& inputs, Plans& singles) {
  double sum = 0;
  for (const Task& task : plan.tasks) {
    const std::string op = work_name(task);
    const bool primitive = task.flops > 0 || task.kind == TaskKind::update || op.starts_with("pool") ||
                           op.starts_with("cmrnorm");
    if (!primitive) continue;
    auto made = std::make_unique<Plan>(plan);
    made->tasks.assign(5, task);
    for (Task& t : made->tasks) t.after.clear();
    // Every plan has memory of its own for its inputs, and there are many.
    for (BufferId& input : made->inputs) {
      if (std::none_of(task.uses.begin(), task.uses.end(),
                       [&](const BufferUse& use) { return use.buffer == input; }))
        input = BufferId();
    }
    TaskTimes times;
    net.executor().run(*singles.emplace_back(std::move(made)), inputs, &times);
    std::vector<double> seconds;
    for (std::size_t t = 1; t < times.size(); ++t) seconds.push_back(times[t].end - times[t].begin);
    sum += median(std::move(seconds));
  }
  return sum / static_cast<double>(plan.memory.size());
}

/// Returns the bytes that all devices together need.
std::int64_t needed_memory(const PlanSet& plans) {
  std::int64_t sum = 0;
  for (const DeviceId d : plans.device_ids()) sum += plans.memory_needed(d);
  return sum;
}

/// Returns the bytes of the device that needs most.
std::int64_t largest_memory(const PlanSet& plans) {
  std::int64_t most = 0;
  for (const DeviceId d : plans.device_ids()) most = std::max(most, plans.memory_needed(d));
  return most;
}

/// Makes the net that is measured, with `diagnostics` about its files; prints warnings.
std::unique_ptr<Net> make_net(BenchOptions& options, RequestedRun& run, bool knows_batches,
                              Diagnostics& diagnostics) {
  const Provider& provider = *run.provider;
  std::optional<Predictor> predictor;
  const auto predicts = [&]() -> Predictor& { return predictor.emplace(options.devices.model); };
  std::string found;
  Graph graph = graph_of(run, knows_batches, options.devices, predicts, nullptr, found, diagnostics);
  options.step.mini = run.options.step.mini;
  if (!found.empty() && !options.report.json) fmt::print("{}\n", found);
  check_images_fit(provider, first_batch(run, knows_batches), options.step.mini, 0);
  const std::int64_t mean = provider.has_mean() ? element_count(provider.matrices()[0].dims) : 0;
  auto net = std::make_unique<Net>(std::move(graph), provider, options.devices, options.step,
                                   std::vector<float>(static_cast<std::size_t>(mean)), true);
  print_notes({slow_precision(net->backend()), too_many_threads(options.devices)});
  return net;
}

/// Measures the steps, and between them what the machine could do at most.
BenchMeasurement measure_all(Net& net, const Plan& plan, const Matrices& minibatch,
                             const BenchOptions& options, Plans& singles) {
  StepInputs inputs;
  inputs.matrices = pointers_to(minibatch);
  inputs.rates = net.rates(0);

  const std::unique_ptr<Backend> machine = make_backend(options.devices, 1);  // has the cores of all devices
  const int device = options.devices.gpus()[0];
  std::vector<double> peaks;
  const auto measure_peak = [&] {
    for (int i = 0; i < 5; ++i) peaks.push_back(machine->measure_peak_flops(device));
  };
  measure_peak();
  const double copy_before = machine->measure_copy_bandwidth(device);
  BenchMeasurement m = measure(net, plan, inputs, options.steps);
  m.algorithms = net.executor().algorithms();
  m.winograd = std::any_of(m.algorithms.begin(), m.algorithms.end(),
                           [](const auto& c) { return c.second.find("winograd") != std::string::npos; });
  m.fed_step =
      net.executor().copies_inputs() ? fed_step(net, plan, inputs, minibatch, std::min(m.steps, 30)) : m.step;
  m.primitives = primitives_alone(net, plan, inputs, singles);
  measure_peak();
  m.peaks = std::move(peaks);
  m.copy = std::max(copy_before, machine->measure_copy_bandwidth(device));
  return m;
}

}  // namespace

const std::vector<OptionSpec>& bench_command_options() { return options_of_bench().specs(); }

void bench_command(const std::vector<std::string>& args) {
  RequestedRun run = planned_run(parse_training_line("bench", args));
  BenchOptions options = options_of_bench().parse(run.texts);
  // Reports files that cannot be written now, not after the measurement.
  std::vector<std::string> inputs = layer_files(options.files);
  if (run.checkpoint) inputs.push_back(run.checkpoint->file);
  check_outputs(
      {{"--profile", options.report.profile, "the timeline is to be written to", ChromeTrace::begins}},
      inputs);
  options.devices = with_devices(options.devices);
  Diagnostics diagnostics;
  run.options.data.shuffle = run.options.data.balance =
      false;  // the images are measured, whatever their order
  const bool knows_batches = open_planned_run(run, diagnostics);
  const Provider& provider = *run.provider;
  Plans singles;  // outlives the net
  const auto net = make_net(options, run, knows_batches, diagnostics);
  const int mini = options.step.mini;
  const Plan& plan = net->prepare(Phase::train, mini);
  // The devices' memory is reserved, but not yet used.
  const int batch = first_batch(run, knows_batches);
  if (net->backend().on_host()) check_images_fit(provider, batch, mini, needed_memory(net->plans()));
  const Matrices minibatch = one_minibatch(provider, batch, mini);
  net->init_weights(options.step.seed);
  check_init_from(run, net->graph(), net->plans());
  const BenchMeasurement m = measure_all(*net, plan, minibatch, options, singles);

  if (!options.report.profile.empty()) {
    ChromeTrace trace;
    for (const TaskTimes& times : m.timeline) trace.add_step(plan, net->graph(), times);
    trace.write(options.report.profile);
  }
  nlohmann::json report = bench_json(net->graph(), plan, m, mini);
  report.update({{"net", run.files.definition.path},
                 {"device", net->plans().target().name()},
                 {"precision", net->plans().target().precision()},
                 {"threads", thread_count(options.devices.threads)},
                 {"devices", net->plans().devices()},
                 {"peak_memory_bytes", largest_memory(net->plans())}});
  if (options.report.json)
    fmt::print("{}\n", report.dump(2));
  else
    fmt::print("{}\n\n{}", devices_text(*net, options.devices, mini), bench_text(report));
}

}  // namespace convnet
