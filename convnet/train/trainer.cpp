#include "convnet/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "convnet/base/error.h"
#include "convnet/base/host_threads.h"
#include "convnet/base/output_file.h"
#include "convnet/base/progress_line.h"
#include "convnet/net/input_data.h"
#include "convnet/net/net_files.h"
#include "convnet/train/batch_order.h"
#include "convnet/train/history.h"
#include "convnet/train/same_run.h"

namespace convnet {
namespace {

constexpr int kLastTraced = 5;          ///< step of training in --profile
constexpr std::size_t kLiveValues = 2;  ///< values of a cost in the line of a batch that is being trained

/// Returns the part of minibatches that the devices of process `rank` load: that of the layers that read
/// data.
ImageShare share_of(const Graph& graph, const Topology& topology, int rank) {
  ImageShare share{graph.microbatches, {}};
  for (int m = 0; m < graph.microbatches; ++m) {
    share.wanted.push_back(std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
      const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(), [&](NodeId input) {
        return graph.nodes[input].role == LayerRole::data;
      });
      return reads && topology.process(node.device(m)) == rank;
    }));
  }
  return share;
}

/// Returns "epoch 2, batch 3 finished".
std::string position_text(const Position& at) {
  const std::string batch = fmt::format("epoch {}, batch {}", at.epoch, at.batch);
  return at.minibatches > 0 ? fmt::format("{}, {} minibatches of it", batch, at.minibatches)
                            : batch + " finished";
}

LoadedRun load_together(const OptionTexts& given, const StopSignal& stop, Processes* processes) {
  LoadedRun run;
  RunFacts facts;
  together(processes, [&] {
    run = load_run(given, stop, processes);
    if (processes != nullptr) facts = facts_of(run);
  });
  if (processes != nullptr) check_same(*processes, facts);
  return run;
}

}  // namespace

Trainer::Trainer(const OptionTexts& given, StopSignal& stop, Processes* processes)
    : Trainer(load_together(given, stop, processes), stop, processes) {}

Trainer::Trainer(LoadedRun loaded, StopSignal& stop, Processes* processes)
    : options_(std::move(loaded.options)),
      saved_options_(std::move(loaded.saved_options)),
      placement_(std::move(loaded.placement)),
      files_(std::move(loaded.files)),
      provider_(std::move(loaded.provider)),
      train_range_(options_.data.train_range),
      test_range_(options_.data.test_range),
      statistics_(std::move(loaded.statistics)),
      stop_(stop),
      processes_(processes),
      run_folder_(std::move(loaded.folder)),
      folder_(run_folder_ ? run_folder_->path() : ""),
      board_folder_(std::move(loaded.board)),
      net_(std::move(loaded.graph), *provider_, options_.devices, options_.step, statistics_.mean,
           !options_.tests.only_tests(), nullptr, processes),
      watched_(find_watched_cost(options_.checkpoints.keep_best, net_.graph())),
      prefetcher_(make_loader(provider_, statistics_, net_.graph()),
                  pieces_ahead(*provider_, options_.step.mini)) {
  // The largest plans first, so that a run that cannot fit is refused now.
  const auto largest = [&](const BatchRange& range, std::int64_t minibatch, std::int64_t views) {
    std::int64_t images = 0;
    for (int b = range.first; b <= range.last; ++b)
      images = std::max(images, provider_->images_in(b) * views);
    return std::min(minibatch, images);
  };
  std::vector<std::pair<std::string, const Plan*>> plans;
  if (!options_.tests.only_tests())
    plans.emplace_back("the plan of training",
                       &net_.prepare(Phase::train, largest(train_range_, options_.step.mini, 1)));
  const Plan& test_plan =
      net_.prepare(Phase::test, largest(test_range_, test_minibatch(), provider_->views()));
  plans.emplace_back("the plan of tests", &test_plan);
  if (processes_ != nullptr) share_ = share_of(net_.graph(), net_.plans().topology(), processes_->rank());
  if (processes_ != nullptr) check_same(*processes_, facts_of(plans));
  if (loaded.checkpoint) {
    net_.load(loaded.checkpoint->tensors, loaded.checkpoint->file, loaded.checkpoint->state.windows);
    state_ = std::move(loaded.checkpoint->state);
    saved_iteration_ = state_.iteration;
    last_checkpoint_ = loaded.checkpoint->file;
    if (state_.position.minibatches > 0 && !same_layers(state_.partial, no_costs(test_plan, net_.graph())))
      throw InputError(last_checkpoint_ +
                       ": metadata 'state' is damaged: its sums are not those of this net's costs");
    if (!prints_json()) fmt::print("Loaded {}: {}\n", last_checkpoint_, position_text(state_.position));
  } else {
    net_.init_weights(options_.step.seed);
    if (!options_.checkpoints.init_from.empty()) net_.init_from(options_.checkpoints.init_from);
  }
  // A file that cannot be written is an error now, not after the work.
  std::vector<std::string> inputs = layer_files(options_.files);
  inputs.insert(inputs.end(), {last_checkpoint_, options_.devices.model});
  if (const std::string& from = options_.checkpoints.init_from; !from.empty() && !loaded.checkpoint)
    inputs.push_back(find_checkpoint(from));
  if (is_first())
    check_outputs(
        {{"--profile", options_.report.profile, "the timeline is to be written to", ChromeTrace::begins},
         {"--confusion", options_.tests.confusion, "the confusion matrix is to be written to",
          Confusion::begins}},
        inputs);
  if (processes_ != nullptr && net_.plans().target().name() == "cpu") {
    if (const std::string warning = too_few_cores(options_.devices, *processes_); !warning.empty())
      fmt::print(stderr, "{}\n", warning);
  }
  if (!prints_json()) fmt::print("{}\n", devices_text(net_, options_.devices, options_.step.mini));
  if (!loaded.notes.empty()) fmt::print(prints_json() ? stderr : stdout, "{}\n", loaded.notes);
  for (const std::string& warning :
       {unused_devices(net_.graph(), options_.devices), slow_precision(net_.backend()),
        too_many_threads(options_.devices.threads), left_out_text(provider_->left_out())}) {
    if (!warning.empty()) fmt::print(stderr, "{}\n", warning);
  }
  std::fflush(stdout);
}

Position Trainer::next_batch() const { return batch_after(state_.position, train_range_); }

TrainingProgress Trainer::progress(const Position& work) const {
  return progress_in(work, train_range_, options_.epochs, state_.iteration);
}

TrainingProgress Trainer::last_progress(const Position& work) const {
  const std::uint64_t before_last = std::max<std::uint64_t>(1, state_.iteration) - 1;
  return progress_in(work, train_range_, options_.epochs, before_last);
}

std::int64_t Trainer::test_minibatch() const {
  const std::int64_t views = provider_->views();
  return std::max<std::int64_t>(1, options_.step.mini / views) * views;
}

std::int64_t Trainer::batches_done(const Position& work) const {
  return std::int64_t{work.epoch - 1} * train_range_.count() + work.batch - train_range_.first + 1;
}

bool Trainer::test_follows(const Position& work) const {
  return batches_done(work) % options_.test_freq == 0 ||
         (work.epoch == options_.epochs && work.batch == train_range_.last);
}

bool Trainer::save_follows(const Position& work) const {
  const int save_freq = options_.checkpoints.save_freq;
  return save_freq > 0 && batches_done(work) % save_freq == 0;
}

LoadRequest Trainer::request(int batch, int epoch, std::int64_t first) const {
  return {batch, epoch, first, epoch > 0 ? options_.step.mini : test_minibatch() / provider_->views(),
          share_ ? &*share_ : nullptr};
}

LoadRequest Trainer::test_request(std::int64_t cursor) const {
  return request(test_range_.first + static_cast<int>(cursor % test_range_.count()), 0);
}

std::shared_ptr<const DataBatch> Trainer::take(const LoadRequest& wanted) {
  const auto start = Clock::now();
  std::shared_ptr<const DataBatch> data;
  together(processes_, [&] { data = prefetcher_.take(wanted); });
  time_use_.data += seconds_since(start);
  return data;
}

void Trainer::run() {
  try {
    run_all();
  } catch (const InputError& e) {
    throw InputError(e.what() + save_after_error());
  } catch (const DeviceError& e) {
    throw DeviceError(e.what() + save_after_error());
  } catch (const std::bad_alloc&) {
    throw DeviceError("out of memory" + save_after_error());
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again) throw RunError(e.what() + save_after_error());
    throw DeviceError("no more threads can be started; " + thread_limits() + save_after_error());
  } catch (const std::runtime_error& e) {
    throw RunError(e.what() + save_after_error());
  }
  const std::vector<std::string> skipped = provider_->skipped_images();
  if (skipped.empty()) return;
  fmt::print(stderr, "warning: {} image(s) could not be read, and others took their places:\n",
             skipped.size());
  for (const std::string& name : skipped) fmt::print(stderr, "  {}\n", name);
}

void Trainer::run_all() {
  if (options_.tests.only_tests()) return test_only();
  if (options_.check_grads) return check_gradients();
  const auto start = Clock::now();
  const bool work_left = state_.test_due || (next_batch().epoch <= options_.epochs && !out_of_patience());
  if (work_left && !options_.tensorboard.empty())
    use_board([&] { board_.emplace(board_folder_.get(), net_, files_, state_.iteration); });
  if (work_left) leave_later_checkpoints();
  const auto stop_here = [&] {
    save();
    summarise(seconds_since(start));
  };
  bool saved = true;
  if (state_.test_due) {
    if (!test()) return stop_here();
    saved = save_tested();
  }
  bool trained = false;
  if (next_batch().epoch <= options_.epochs && !out_of_patience()) {
    together(processes_, [&] { provider_->load_training_data([&] { return stop_.arrived(); }); });
    if (stopped()) return stop_here();
  }
  for (Position work = next_batch(); work.epoch <= options_.epochs && !out_of_patience();
       work = next_batch()) {
    trained = true;
    const bool going_on = train_batch(work);
    if (going_on && test_follows(work)) {
      state_.test_due = true;
      if (!test()) return stop_here();
      saved = save_tested();
    } else if (going_on && save_follows(work)) {
      save();
    }
    if (!going_on || stopped()) return stop_here();
  }
  if (out_of_patience())
    fmt::print("Training ends: {} tests without a better {} than {} (--patience {}; 0 clears it)\n",
               state_.best.tests_since, watched_.text(net_.graph()), best_value_text(), options_.patience);
  else if (!trained)
    fmt::print("Nothing to train: {} of {} epochs are done\n",
               std::min(next_batch().epoch - 1, options_.epochs), options_.epochs);
  if (options_.checkpoints.force_save && !(trained && saved)) save();
  if (trained) summarise(seconds_since(start));
}

void Trainer::summarise(double seconds) const {
  fmt::print("{}", summary_text(state_, options_, watched_, net_.graph(), provider_->matrices()[0], seconds,
                                folder_, last_checkpoint_));
  std::fflush(stdout);
}

std::string Trainer::best_value_text() const {
  return value_text(watched_.value_name(net_.graph()), state_.best.value);
}

void Trainer::leave_later_checkpoints() {
  Abandoned left;
  together(processes_, [&] {
    if (is_first()) left = move_later_checkpoints(folder_, state_.position, kBestFile);
  });
  if (processes_ != nullptr) left.best = processes_->exchange(left.best ? "moved" : "")[0] == "moved";
  if (left.best) state_.best = {};
  if (left.folder.empty()) return;
  fmt::print(stderr, "The run goes on from {}: {} later checkpoint(s) were moved to {}\n", last_checkpoint_,
             left.checkpoints, left.folder);
}

bool Trainer::train_batch(const Position& work) {
  const auto start = Clock::now();
  time_use_ = {};
  LoadRequest wanted = request(work.batch, work.epoch, work.images);
  std::shared_ptr<const DataBatch> data = take(wanted);
  if (test_follows(work)) {
    prefetcher_.start(test_request(options_.data.test_one ? state_.test_cursor : 0));
  } else {
    const int batch = work.batch < train_range_.last ? work.batch + 1 : train_range_.first;
    prefetcher_.start(request(batch, batch == train_range_.first ? work.epoch + 1 : work.epoch));
  }
  if (work.minibatches == 0) {
    state_.partial = {};
    state_.partial_seconds = 0;
  }
  const TrainingProgress done = progress(work);
  const std::string title = fmt::format("{}.{} ({:.2f}%)...", work.epoch, work.batch, 100 * done.share);
  std::int64_t minibatches = work.minibatches;
  std::int64_t first = std::min(work.images, data->first + data->images);
  const std::int64_t resumed_at = first;
  {
    ProgressLine line(title, shows_progress());
    while (true) {
      if (first == data->first + data->images) {
        if (data->last) break;
        wanted.first += wanted.count;
        data = take(wanted);
      }
      // A whole minibatch is done, or none of this batch: what is saved then is a place to resume from.
      if (stopped() && net_.in_flight() == 0) {
        state_.partial_seconds += seconds_since(start);
        return false;
      }
      const std::int64_t images =
          std::min<std::int64_t>(options_.step.mini, data->first + data->images - first);
      step(Phase::train, wanted, *data, first - data->first, images, done, state_.partial);
      ++state_.iteration;
      first += images;
      state_.position = {work.epoch, work.batch, ++minibatches, first};
      line.show(first, std::max(first, provider_->images_in(work.batch)), first - resumed_at,
                [&](double rate) {
                  return ProgressTexts{labelled_cost_text(state_.partial, net_.graph(), kLiveValues),
                                       clock_text(seconds_left(work, first, rate)) + " of the run"};
                });
    }
  }
  state_.position = {work.epoch, work.batch};
  const TrainingProgress last = last_progress(work);
  print_batch(title, last, state_.partial_seconds + seconds_since(start),
              static_cast<double>(first - resumed_at) / std::max(1e-9, seconds_since(start)));
  if (board_) use_board([&] { board_->trained(state_.iteration, state_.partial, last); });
  add_to_history(state_.history, {work.epoch, work.batch, -1, std::exchange(state_.partial, {})},
                 test_range_.count());
  state_.partial_seconds = 0;
  return true;
}

void Trainer::print_batch(const std::string& title, const TrainingProgress& last, double seconds,
                          double rate) const {
  if (for_people())
    fmt::print("{} {} ({:.1f} s, {:.0f} images/s)\n", title, labelled_cost_text(state_.partial, net_.graph()),
               seconds, rate);
  else
    fmt::print("{} {} ({:.3f} sec)\n", title, cost_text(state_.partial, net_.graph()), seconds);
  if (options_.report.verbose)
    fmt::print("  {}\n  learning rate: {}\n", time_use_.text(seconds), rates_text(net_, last));
  std::fflush(stdout);
}

double Trainer::seconds_left(const Position& work, std::int64_t image, double rate) const {
  double images = 0, of_epoch = 0;
  for (int batch = train_range_.first; batch <= train_range_.last; ++batch) {
    const auto count = static_cast<double>(provider_->images_in(batch));
    of_epoch += count;
    if (batch == work.batch) images += std::max(0.0, count - static_cast<double>(image));
    if (batch > work.batch) images += count;
  }
  images += of_epoch * std::max(0, options_.epochs - work.epoch);
  return images / std::max(1e-9, rate);
}

StepInputs Trainer::inputs_of(const DataBatch& data, std::int64_t first, TrainingProgress progress,
                              int ahead) const {
  StepInputs inputs;
  const std::vector<MatrixInfo>& infos = provider_->matrices();
  for (std::size_t m = 0; m < infos.size(); ++m) {
    inputs.matrices.push_back(data.matrices[m].data() + first * infos[m].image_bytes());
  }
  inputs.iteration = state_.iteration + static_cast<std::uint64_t>(ahead);
  progress.minibatches = static_cast<double>(inputs.iteration);
  inputs.rates = net_.rates(progress);
  return inputs;
}

StepResult Trainer::step(Phase phase, const LoadRequest& piece, const DataBatch& data, std::int64_t first,
                         std::int64_t images, const TrainingProgress& progress, CostSums& sums,
                         TestOutputs* outputs) {
  const Plan& plan = net_.prepare(phase, images);
  const StepInputs inputs = inputs_of(data, first, progress);
  std::optional<StepInputs> next;
  std::shared_ptr<const DataBatch> following;  // stays in the line until it is taken
  if (first + 2 * images <= data.images) {
    next = inputs_of(data, first + images, progress, 1);
  } else if (first + images == data.images && !data.last) {
    following =
        prefetcher_.peek({piece.batch, piece.epoch, piece.first + piece.count, piece.count, piece.share});
    if (following && following->images >= images) next = inputs_of(*following, 0, progress, 1);
  }
  const auto start = Clock::now();
  TaskTimes times;
  const bool look =
      options_.report.verbose || !options_.report.profile.empty() || !net_.executor().times_cost();
  sound_ = false;
  if (net_.in_flight() == 0)
    net_.submit(plan, inputs, look ? &times : nullptr, outputs != nullptr ? outputs->reading(plan) : nullptr);
  if (next) {
    // Nothing but the stop signal ends a batch early, and it waits for what is in flight.
    const bool certain = phase == Phase::train && !look && net_.submits_ahead() && !stopped();
    // All minibatches of a batch but the last have equally many images.
    if (certain)
      net_.submit(plan, *next);
    else
      net_.expect(plan, next->matrices);
  }
  StepResult result = net_.wait();
  if (look) time_use_.add(plan, times, seconds_since(start));
  if (!result.finite()) {
    std::string where;
    // A step in flight may have changed the weights a little.
    try {
      where = net_.first_non_finite(phase, images, inputs);
    } catch (const DeviceError&) {
      where = "there is not enough memory to look for the layer";
    }
    throw RunError(fmt::format(
        "a cost or weight is not finite (NaN or infinity) in {} after {} minibatches, images "
        "{}-{} of the batch{}{}",
        phase == Phase::train ? "training" : "a test", state_.iteration, data.first + first / plan.views,
        data.first + (first + images - 1) / plan.views, where.empty() ? "" : "; " + where,
        last_checkpoint_.empty() ? "" : "\nthe last good checkpoint is " + last_checkpoint_));
  }
  sound_ = true;
  if (phase == Phase::train && !options_.report.profile.empty()) profile(plan, times_of_all(plan, times));
  if (outputs != nullptr) {
    outputs->collect();
    together(processes_, [&] { outputs->add_step(plan, inputs.matrices); });
  }
  add_costs(sums, plan, net_.graph(), result.costs, images);
  return result;
}

/// Returns the times with those of the other processes' tasks, counted from the start of the step there.
TaskTimes Trainer::times_of_all(const Plan& plan, TaskTimes times) const {
  if (processes_ == nullptr || traced_ > kLastTraced) return times;
  const std::vector<std::string> all =
      processes_->exchange({reinterpret_cast<const char*>(times.data()), times.size() * sizeof(TaskTime)});
  for (const TaskId t : plan.tasks.ids()) {
    const auto process = static_cast<std::size_t>(plan.topology.process(plan.tasks[t].device));
    std::memcpy(&times[t], all[process].data() + t.index() * sizeof(TaskTime), sizeof(TaskTime));
  }
  return times;
}

void Trainer::profile(const Plan& plan, const TaskTimes& times) {
  // The first step touches memory for the first time.
  if (++traced_ <= 1 || traced_ > kLastTraced || !is_first()) return;
  trace_.add_step(plan, net_.graph(), times);
  try {
    make_folders_of(options_.report.profile);
    trace_.write(options_.report.profile);
  } catch (const RunError& e) {
    fmt::print(stderr, "warning: {}; training goes on without --profile\n", e.what());
    traced_ = kLastTraced;
  }
}

bool Trainer::test_batch(LoadRequest piece, CostSums& sums, TestOutputs* outputs) {
  ProgressLine line(fmt::format("test {}...", piece.batch), shows_progress(),
                    prints_json() ? ProgressStream::err : ProgressStream::out);
  for (std::int64_t done = 0;; piece.first += piece.count) {
    const std::shared_ptr<const DataBatch> data = take(piece);
    for (std::int64_t first = 0; first < data->images;) {
      if (stopped()) return false;
      const std::int64_t images = std::min(test_minibatch(), data->images - first);
      step(Phase::test, piece, *data, first, images, 0, sums, outputs);
      first += images;
      done += images;
      line.show(done, std::max(done, provider_->images_in(piece.batch) * provider_->views()), done);
    }
    if (data->last) return true;
  }
}

bool Trainer::test() {
  const auto start = Clock::now();
  net_.use_averages();
  CostSums sums;
  const int first = test_request(options_.data.test_one ? state_.test_cursor : 0).batch;
  const int batches = options_.data.test_one ? 1 : test_range_.count();
  for (int i = 0; i < batches; ++i) {
    prefetcher_.start(request(first + i, 0));
    if (i + 1 < batches) prefetcher_.start(request(first + i + 1, 0));
    if (!test_batch(request(first + i, 0), sums)) return false;
  }
  net_.use_trained();
  if (const Position next = next_batch(); next.epoch <= options_.epochs)
    prefetcher_.start(request(next.batch, next.epoch));
  if (board_) use_board([&] { board_->tested(state_.iteration, sums); });
  test_error_ = first_error(sums, net_.graph());
  best_test_ = note_test(state_.best, watched_.of(sums, net_.graph()), state_.position);
  print_test(sums, seconds_since(start));
  add_to_history(state_.history, {state_.position.epoch, state_.position.batch, first, std::move(sums)},
                 test_range_.count());
  if (options_.data.test_one) ++state_.test_cursor;
  state_.test_due = false;
  return true;
}

void Trainer::print_test(const CostSums& sums, double seconds) {
  const CostSums before = latest_tests(state_.history, 1);
  if (for_people()) {
    fmt::print(
        "test after {}.{} ({:.1f} s), learning rate {}\n{}", state_.position.epoch, state_.position.batch,
        seconds, rates_text(net_, last_progress(state_.position)),
        test_table(sums, before.sums.empty() ? nullptr : &before, state_.best, watched_, net_.graph()));
  } else {
    // The original averages over the tests of as many batches as there are.
    CostSums pooled = sums;
    if (options_.data.test_one) pool(pooled, latest_tests(state_.history, test_range_.count() - 1));
    fmt::print(
        "======================Test output======================\n{} ({:.3f} sec)\n"
        "----------------------Averages-------------------------\n{}\n",
        cost_text(sums, net_.graph()), seconds, cost_text(pooled, net_.graph()));
  }
  if (!for_people() || options_.report.verbose) print_weights(net_);
  std::fflush(stdout);
}

void Trainer::test_only() {
  std::optional<TestOutputs> opened;
  together(processes_, [&] {
    opened.emplace(net_, provider_->matrices(), options_.tests, is_first(),
                   [this](int batch, std::int64_t image) { return provider_->image_name(batch, image); });
  });
  TestOutputs& outputs = *opened;
  if (!prints_json()) fmt::print("======================Test output======================\n");
  CostSums pooled;
  for (int batch = test_range_.first; batch <= test_range_.last; ++batch) {
    CostSums sums;
    prefetcher_.start(request(batch, 0));
    if (batch < test_range_.last) prefetcher_.start(request(batch + 1, 0));
    together(processes_, [&] { outputs.begin_batch(batch, provider_->count_images(batch)); });
    if (!test_batch(request(batch, 0), sums, &outputs))
      throw RunError(fmt::format("stopped in test batch {} of {}; missing are {}", batch, test_range_.str(),
                                 outputs.missing({batch, test_range_.last})));
    together(processes_, [&] { outputs.end_batch(); });
    if (!prints_json()) fmt::print("{}... {}\n", batch, cost_text(sums, net_.graph()));
    std::fflush(stdout);
    pool(pooled, sums);
  }
  together(processes_, [&] { outputs.finish(); });
  if (prints_json())
    fmt::print("{}\n", test_json(last_checkpoint_, pooled, net_.graph(), outputs));
  else
    fmt::print("{}----------------------Averages-------------------------\n{}\n", outputs.errors_text(),
               cost_text(pooled, net_.graph()));
}

void Trainer::check_gradients() {
  LoadRequest wanted = request(train_range_.first, 0);
  wanted.count = options_.step.mini;
  const std::shared_ptr<const DataBatch> data = prefetcher_.take(wanted);
  const std::int64_t images = std::min<std::int64_t>(options_.step.mini, data->images);
  const std::vector<GradientReport> reports =
      net_.check_gradients(images, inputs_of(*data, 0, 0), [&] { return stopped(); });
  constexpr std::array<const char*, 3> kVerdicts = {"right", "unclear", "WRONG"};
  std::array<int, 3> count = {};
  for (const GradientReport& r : reports) {
    fmt::print("{:<40} {:<8} relative error {:.1e}\n", r.name, kVerdicts[static_cast<std::size_t>(r.verdict)],
               r.error);
    ++count[static_cast<std::size_t>(r.verdict)];
  }
  if (count[2] > 0) throw RunError(fmt::format("{} of {} gradients are wrong", count[2], reports.size()));
  if (count[1] == 0) {
    fmt::print("All {} gradients are right\n", count[0]);
  } else {
    fmt::print(
        "{} gradients are right; of {} the costs' differences do not tell in fp32, for rounding and "
        "kinks: larger initial weights help\n",
        count[0], count[1]);
  }
}

bool Trainer::save_tested() {
  const double most = options_.checkpoints.max_test_err;
  if (most == 0 || test_error_ <= most || save_follows(state_.position)) {
    save();
    if (best_test_ && !options_.checkpoints.keep_best.empty()) {
      together(processes_, [&] {
        if (is_first()) keep_as_best(folder_, last_checkpoint_);
      });
      fmt::print("Best {} so far: {}; kept as {}\n", watched_.text(net_.graph()), best_value_text(),
                 kBestFile);
      std::fflush(stdout);
    }
    return true;
  }
  fmt::print("No checkpoint saved: the test error, {:.6f}, is above --max-test-err {}\n", test_error_, most);
  std::fflush(stdout);
  return false;
}

void Trainer::use_board(const std::function<void()>& use) {
  std::string why;
  try {
    use();
  } catch (const RunError& e) {
    if (processes_ != nullptr && processes_->all_know()) throw;
    why = e.what();
  }
  if (processes_ != nullptr) why = processes_->exchange(why)[0];  // the first one has the files
  if (why.empty()) return;
  fmt::print(stderr, "warning: {}; training goes on without --tensorboard\n", why);
  board_.reset();
}

std::string Trainer::save_after_error() {
  if (!sound_ || state_.iteration == saved_iteration_) return "";
  // Saving takes all processes.
  if (processes_ != nullptr && !processes_->all_know()) return "";
  try {
    save();
  } catch (const std::exception& e) {
    return fmt::format("\nwhat was learned since the last checkpoint could not be saved: {}", e.what());
  }
  return fmt::format("\nwhat was learned until then is saved in {}; --load-file {} goes on from there",
                     last_checkpoint_, folder_);
}

void Trainer::reclaim_folder() {
  const std::string what = run_folder_->reclaim();
  if (what.empty()) return;
  fmt::print(stderr, "warning: {}\n", what);
  folder_ = run_folder_->path();
}

void Trainer::save() {
  sound_ = false;  // if this fails, it would fail again
  Checkpoint c;
  net_.store(c.tensors);
  state_.windows = net_.windows();
  const Dims& image = provider_->matrices()[0].dims;
  save_statistics(statistics_, options_.data, image, c.tensors);
  c.state = state_;
  c.options = saved_options_;
  c.definition_path = files_.definition.path;
  c.definition_text = files_.definition.text;
  c.parameters_path = files_.parameters.path;
  c.parameters_text = files_.parameters.text;
  c.placement = placement_;
  c.algorithms = net_.executor().algorithms();
  c.matrices = provider_->matrices();
  c.train_range = train_range_;
  c.test_range = test_range_;
  together(processes_, [&] {
    if (!is_first()) return;
    try {
      reclaim_folder();
      write_checkpoint(folder_, c, options_.checkpoints.keep);
    } catch (const RunError&) {
      if (run_folder_->is_claimed()) throw;
      // The folder was removed just now.
      reclaim_folder();
      write_checkpoint(folder_, c, options_.checkpoints.keep);
    }
  });
  sound_ = true;
  last_checkpoint_ = c.file;
  saved_iteration_ = state_.iteration;
  fmt::print("Saved checkpoint to {}\n", folder_);
  std::fflush(stdout);
}

}  // namespace convnet
