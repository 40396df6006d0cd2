#include "convnet/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <system_error>

#include "convnet/base/error.h"
#include "convnet/base/host_threads.h"
#include "convnet/base/notes.h"
#include "convnet/base/output_file.h"
#include "convnet/base/progress_line.h"
#include "convnet/net/data_set.h"
#include "convnet/net/input_data.h"
#include "convnet/net/net_files.h"
#include "convnet/train/batch_order.h"
#include "convnet/train/history.h"
#include "convnet/train/same_run.h"

namespace convnet {
namespace {

constexpr std::size_t kLiveValues = 2;  ///< values of a cost in the line of a batch that is being trained

/// Returns the part of minibatches that the devices of process `rank` load: that of the layers that read
/// data.
ImageShare share_of(const Graph& graph, const Topology& topology, int rank) {
  ImageShare share{graph.cut(), {}};
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

/// Says that a run has no epochs to train.
std::string epochs_text(int done, int asked) {
  return done > asked ? fmt::format("{} epochs are done, which is more than --epochs {}", done, asked)
                      : fmt::format("{} of {} epochs are done", done, asked);
}

/// Returns "epoch 2, batch 3 finished".
std::string position_text(const Position& at) {
  const std::string batch = fmt::format("epoch {}, batch {}", at.epoch, at.batch);
  return at.minibatches > 0 ? fmt::format("{}, {} minibatches of it", batch, at.minibatches)
                            : batch + " finished";
}

/// Returns a guess of how long it takes to save a net's checkpoint.
double save_seconds(const Net& net) {
  constexpr double kBytesPerSecond = 1e8;
  double floats = 0;
  for (const WeightBuffers& w : net.plans().weights()) {
    const int tensors =
        1 + (w.shards.empty() ? 0 : 1) + (w.keeps_squares() ? 1 : 0) + (w.averages.empty() ? 0 : 1);
    floats += tensors * static_cast<double>(element_count(net.graph().weight({w.node, w.index}).dims));
  }
  return floats * sizeof(float) / kBytesPerSecond;
}

LoadedRun load_together(const OptionTexts& given, StopSignal& stop, Processes* processes) {
  LoadedRun run;
  RunFacts facts;
  run_collectively(processes, [&] {
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
      train_images_(loaded.train_images),
      test_range_(options_.data.test_range),
      statistics_(std::move(loaded.statistics)),
      stop_(stop),
      processes_(processes),
      profile_(options_.report.profile, processes),
      run_folder_(std::move(loaded.folder)),
      folder_(run_folder_ ? run_folder_->path() : ""),
      board_folder_(std::move(loaded.board)),
      net_(std::move(loaded.graph), *provider_, options_.devices, options_.step, statistics_.mean,
           !options_.tests.only_tests(), nullptr, processes),
      pace_(options_.time_limit, save_seconds(net_)),
      watched_(find_watched_cost(options_.checkpoints.keep_best, net_.graph())),
      prefetcher_(make_loader(provider_, statistics_, net_.graph()),
                  pieces_ahead(*provider_, options_.step.mini)) {
  const Plan& test_plan = prepare_plans();
  if (processes_ != nullptr) share_ = share_of(net_.graph(), net_.plans().topology(), processes_->rank());
  if (loaded.checkpoint) {
    go_on_from(*loaded.checkpoint, test_plan);
  } else {
    init_weights();
  }
  print_start(loaded);
}

void Trainer::init_weights() {
  RunFacts facts;
  run_collectively(processes_, [&] {
    const std::string& file = options_.checkpoints.init_from;
    facts.emplace_back(
        "what the weights begin with, by initW and initWFunc of " + files_.definition.path + ",",
        fmt::format("{:08x}", net_.init_weights(options_.step.seed)));
    if (!file.empty())
      facts.emplace_back("what --init-from " + file + " copies",
                         fmt::format("{:08x}", net_.init_from(file, options_.data.pixel_std)));
  });
  if (processes_ != nullptr) check_same(*processes_, facts);
}

std::int64_t Trainer::largest_minibatch() const {
  return options_.tests.only_tests()
             ? options_.step.mini
             : std::min<std::int64_t>(options_.step.mini, largest_batch(*provider_, train_range_));
}

const Plan& Trainer::prepare_plans() {
  std::vector<std::pair<std::string, const Plan*>> plans;
  if (!options_.tests.only_tests())
    plans.emplace_back("the plan of training", &net_.prepare(Phase::train, largest_minibatch()));
  const std::int64_t test_rows = largest_batch(*provider_, test_range_) * provider_->views();
  const Plan& test_plan = net_.prepare(Phase::test, std::min(test_minibatch(), test_rows));
  plans.emplace_back("the plan of tests", &test_plan);
  if (processes_ != nullptr) check_same(*processes_, facts_of(plans));
  return test_plan;
}

void Trainer::go_on_from(Checkpoint& checkpoint, const Plan& test_plan) {
  net_.load(checkpoint.tensors, checkpoint.file, checkpoint.state.windows);
  state_ = std::move(checkpoint.state);
  saved_iteration_ = state_.iteration;
  last_checkpoint_ = checkpoint.file;
  const CostSums costs = no_costs(test_plan, net_.graph());
  const bool sound = (state_.position.minibatches == 0 || same_layers(state_.partial, costs)) &&
                     std::all_of(state_.history.begin(), state_.history.end(),
                                 [&](const HistoryEntry& entry) { return same_layers(entry.costs, costs); });
  if (!sound)
    throw InputError(last_checkpoint_ +
                     ": metadata 'state' is damaged: its sums are not those of this net's costs");
  if (!prints_json()) fmt::print("Loaded {}: {}\n", last_checkpoint_, position_text(state_.position));
}

void Trainer::print_start(const LoadedRun& loaded) {
  if (processes_ != nullptr && net_.plans().target().name() == "cpu") {
    print_notes({too_few_cores(options_.devices, *processes_)});
  }
  const std::int64_t minibatch = largest_minibatch();
  if (!prints_json()) fmt::print("{}\n", devices_text(net_, options_.devices, static_cast<int>(minibatch)));
  const std::string changes = options_.trains() ? changes_of_learning(net_.graph(), minibatch) : "";
  for (const std::string& note : {slow_precision(net_.backend()), loaded.notes, changes})
    if (!note.empty()) fmt::print(prints_json() ? stderr : stdout, "{}\n", note);
  if (!last_checkpoint_.empty() && options_.trains())
    fmt::print("Learning rate: {}\n", rates_text(net_, progress(next_batch())));
  left_out_ = left_out_text(provider_->left_out());
  print_notes({unused_devices(net_.graph(), options_.devices), too_many_threads(options_.devices), left_out_,
               smaller_batches(options_.step.mini, minibatch),
               channels_last_warning(options_.data, provider_->matrices()[0]),
               empty_classes(*provider_, loaded.class_counts),
               options_.trains() ? lone_values(net_.graph(), minibatch) : ""});
  std::fflush(stdout);
}

Position Trainer::next_batch() const { return batch_after(state_.position, train_range_); }

TrainingProgress Trainer::progress(const Position& work) const {
  TrainingProgress progress = progress_in(work, train_range_, options_.epochs, state_.iteration);
  progress.factor = rate_factor();
  return progress;
}

TrainingProgress Trainer::last_progress(const Position& work) const {
  const std::uint64_t before_last = std::max<std::uint64_t>(1, state_.iteration) - 1;
  TrainingProgress progress = progress_in(work, train_range_, options_.epochs, before_last);
  progress.factor = rate_factor();
  return progress;
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

void Trainer::run() {
  try {
    const StopSignal::AnswersCtrlC answers(stop_);
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
  // Shards are read when their images are.
  if (const std::string left_out = left_out_text(provider_->left_out()); is_first() && left_out != left_out_)
    fmt::print(stderr, "{}\n", left_out);
  const std::vector<std::string> skipped = provider_->skipped_images();
  if (skipped.empty()) return;
  fmt::print(stderr, "warning: {} image(s) could not be read, and others took their places:\n",
             skipped.size());
  for (const std::string& name : skipped) fmt::print(stderr, "  {}\n", name);
}

void Trainer::run_all() {
  if (options_.tests.only_tests()) return test_only();
  if (options_.check_grads) return check_gradients();
  if (options_.find_rate) return find_rate();
  const auto start = Clock::now();
  if (options_.time_limit > 0) {
    stop_.limit_time(options_.time_limit);
    // A run that trains nothing would stop there again, however often it is started.
    if (state_.test_due)
      keep_time_back(Phase::test);
    else
      stop_.keep_back(-std::numeric_limits<double>::infinity());
  }
  const bool work_left = state_.test_due || (next_batch().epoch <= options_.epochs && !out_of_patience());
  if (work_left && !options_.tensorboard.empty())
    use_board([&] { board_.emplace(board_folder_.get(), net_, files_, state_.iteration); });
  if (work_left) leave_later_checkpoints();
  keep_best_again(work_left);
  const auto stop_here = [&, before = state_.iteration, test_was_due = state_.test_due] {
    save();
    say_why_stopped(state_.iteration != before || (test_was_due && !state_.test_due));
    summarise(seconds_since(start));
  };
  if (next_batch().epoch <= options_.epochs && !out_of_patience()) {
    // Before a test that is due, because a test lets the prefetcher read the training batch after it.
    run_collectively(processes_, [&] { provider_->load_training_data([&] { return stop_.arrived(); }); });
    if (stopped()) return stop_here();
  }
  bool saved = true;
  if (state_.test_due) {
    if (!test()) return stop_here();
    saved = save_tested();
  }
  bool trained = false;
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
    fmt::print("Training ends: {} test{} without a better {} than {} (--patience {}; 0 clears it)\n",
               state_.best.tests_since, state_.best.tests_since == 1 ? "" : "s", watched_.text(net_.graph()),
               best_value_text(), options_.patience);
  else if (!trained)
    fmt::print("Nothing to train: {}\n", epochs_text(next_batch().epoch - 1, options_.epochs));
  if (options_.checkpoints.force_save && !(trained && saved)) save();
  if (trained) summarise(seconds_since(start));
}

void Trainer::keep_time_back(Phase phase) {
  // Several processes learn of the time that is up one minibatch later.
  stop_.keep_back(pace_.needed(phase, processes_ == nullptr ? 1 : 2));
}

void Trainer::note_minibatch(Phase phase, double seconds) {
  pace_.note_minibatch(phase, seconds);
  keep_time_back(phase);
}

void Trainer::say_why_stopped(bool going_on) {
  std::string own;
  if (stop_.out_of_time())
    own = "before --time-limit " + options_.time_limit_text();
  else if (stop_.signal() != 0)
    own = fmt::format("by SIG{}", sigabbrev_np(stop_.signal()));
  std::vector<std::string> reasons = {own};
  if (processes_ != nullptr) reasons = processes_->exchange(own);
  const auto why = std::find_if(reasons.begin(), reasons.end(), [](const auto& r) { return !r.empty(); });
  if (why == reasons.end()) return;
  if (!going_on && why->starts_with("before"))
    throw RunError(
        fmt::format("--time-limit {} was over before a test ended, and a run that goes on with it "
                    "would stop there again; use a longer one",
                    options_.time_limit_text()));
  fmt::print("Stopped {}{}; the command after 'train on:' goes on\n", *why,
             state_.test_due ? ", before the test had ended" : "");
  if (const double left = stop_.seconds_left(); left < 0)
    fmt::print("Note: the limit was over {:.1f} s before that, because a minibatch takes longer\n", -left);
}

void Trainer::summarise(double seconds) const {
  fmt::print("{}", summary_text(state_, options_, watched_, net_.graph(), provider_->matrices()[0], seconds,
                                folder_, last_checkpoint_));
  std::fflush(stdout);
}

std::string Trainer::best_value_text() const {
  return value_text(watched_.value_name(net_.graph()), state_.best.value);
}

bool Trainer::train_batch(const Position& work) {
  const auto start = Clock::now();
  time_use_ = {};
  batch_wait_ = 0;
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
  std::int64_t minibatches = work.minibatches, images = work.images;
  {
    ProgressLine line(title, shows_progress());
    auto minibatch_start = Clock::now();
    while (data->images > 0) {  // none are left if the run stopped at the end of the batch
      // A whole minibatch is done, or none of this batch: what is saved then is a place to resume from.
      if (stopped() && net_.in_flight() == 0) {
        state_.partial_seconds += seconds_since(start);
        return false;
      }
      step(Phase::train, wanted, *data, done, state_.partial);
      ++state_.iteration;
      images += data->images;
      state_.position = {work.epoch, work.batch, ++minibatches, images};
      note_minibatch(Phase::train, seconds_since(minibatch_start));
      line.show(images, std::max(images, provider_->images_in(work.batch)), images - work.images,
                [&](double rate) {
                  const std::string run = clock_text(seconds_left(work, images, rate));
                  const std::string waiting = waiting_text(batch_wait_, seconds_since(start));
                  return ProgressAdditions{
                      {title + " " + labelled_cost_text(state_.partial, net_.graph(), kLiveValues),
                       run + " of the run", waiting},
                      {fmt::format("{}.{} ({:.0f}%) {}", work.epoch, work.batch, 100 * done.share,
                                   short_cost_text(state_.partial, net_.graph())),
                       "run " + run, waiting}};
                });
      if (data->last) break;
      minibatch_start = Clock::now();
      wanted.first += wanted.count;
      data = take(wanted);
    }
  }
  state_.position = {work.epoch, work.batch};
  const TrainingProgress last = last_progress(work);
  const double seconds = seconds_since(start);
  print_batch(title, last, state_.partial_seconds + seconds,
              static_cast<double>(images - work.images) / std::max(1e-9, seconds));
  data_wait_.note_batch(batch_wait_, seconds);
  advise_on_data();
  if (board_)
    use_board(
        [&] { board_->trained(state_.iteration, state_.partial, last, notable_wait(batch_wait_, seconds)); });
  add_to_history(state_.history, {work.epoch, work.batch, -1, std::exchange(state_.partial, {})},
                 test_range_.count());
  state_.partial_seconds = 0;
  return true;
}

void Trainer::print_batch(const std::string& title, const TrainingProgress& last, double seconds,
                          double rate) const {
  const std::string waiting = waiting_text(batch_wait_, seconds);
  if (for_people())
    fmt::print("{} {} ({:.1f} s, {:.0f} images/s{}{})\n", title,
               labelled_cost_text(state_.partial, net_.graph()), seconds, rate, waiting.empty() ? "" : ", ",
               waiting);
  else
    fmt::print("{} {} ({:.3f} sec)\n", title, cost_text(state_.partial, net_.graph()), seconds);
  if (options_.report.verbose)
    fmt::print("  {}\n  learning rate: {}\n", time_use_.text(seconds), rates_text(net_, last));
  std::fflush(stdout);
}

void Trainer::advise_on_data() {
  const int percent = data_wait_.take_advice();
  if (percent == 0 || !is_first()) return;
  const std::string advice = provider_->faster_reading();
  fmt::print("Note: steps have waited for data {} % of the time{}{}\n", percent, advice.empty() ? "" : "; ",
             advice);
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

}  // namespace convnet
