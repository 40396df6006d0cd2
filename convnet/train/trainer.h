// The training loop: batches, tests, checkpoints, resuming.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "convnet/base/progress_line.h"
#include "convnet/checkpoint/checkpoint.h"
#include "convnet/net/costs.h"
#include "convnet/net/net.h"
#include "convnet/net/net_files.h"
#include "convnet/runtime/transport.h"
#include "convnet/train/data_wait.h"
#include "convnet/train/load_run.h"
#include "convnet/train/pace.h"
#include "convnet/train/report.h"
#include "convnet/train/run_folder.h"
#include "convnet/train/step_profile.h"
#include "convnet/train/stop_signal.h"
#include "convnet/train/tensorboard.h"
#include "convnet/train/test_outputs.h"
#include "convnet/train/watched_cost.h"
#include "providers/prefetch.h"

namespace convnet {

/// A run: trains a net, tests it, saves its checkpoints, and goes on from them.
class Trainer {
 public:
  /// `given` are the options of this invocation; with --load-file, or a --save-file that exists, they
  /// override the checkpoint's. Throws InputError, with everything that is wrong, before a device is used.
  /// Several processes (else `processes` is null) make the same calls; the first one writes the files.
  Trainer(const OptionTexts& given, StopSignal& stop, Processes* processes = nullptr);

  /// Trains (or tests, with --test-only) to the end or until the stop signal. Prints results on stdout:
  /// cuda-convnet2's lines in a pipe or file, labelled ones on a terminal. Throws RunError when a cost is not
  /// finite, and whatever reading data and writing files throws: what was learned until then is saved first,
  /// and the message says where.
  void run();

 private:
  Trainer(LoadedRun loaded, StopSignal& stop, Processes* processes);

  // Parts of the constructor.
  /// Returns the images of the largest minibatch of training, or of tests if there are only tests.
  std::int64_t largest_minibatch() const;
  /// Prepares the largest plans of training and tests, so that a run that does not fit is refused before it
  /// begins. Returns the plan of tests.
  const Plan& prepare_plans();
  /// Takes the weights and the state of the checkpoint, and says so.
  void go_on_from(Checkpoint& checkpoint, const Plan& test_plan);
  /// Prints what a run begins with: devices, notes, learning rates after a checkpoint, and warnings.
  void print_start(const LoadedRun& loaded);

  /// Returns the batch to train next, and the place in it. Its epoch is beyond --epochs when training is
  /// done.
  Position next_batch() const;
  /// Returns the factor that all learning rates of the parameter file have now.
  double rate_factor() const { return options_.rate_factor * state_.plateau.factor(); }
  /// Returns the progress of training, in batch `work`, at which the next minibatch is trained.
  TrainingProgress progress(const Position& work) const;
  /// Returns the progress at which the last minibatch was trained, which was one of batch `work`.
  TrainingProgress last_progress(const Position& work) const;
  /// Returns how many views a test computes at once.
  std::int64_t test_minibatch() const;
  /// Returns how many batches of training are done when batch `work` is.
  std::int64_t batches_done(const Position& work) const;
  bool test_follows(const Position& work) const;
  /// Whether --save-freq asks for a checkpoint after batch `work`.
  bool save_follows(const Position& work) const;
  /// Returns the request for the minibatch from image `first` on.
  LoadRequest request(int batch, int epoch, std::int64_t first = 0) const;
  LoadRequest test_request(std::int64_t cursor) const;
  /// Takes data from the prefetcher; the time is counted as waiting for data (time_use_, and but for the very
  /// first call batch_wait_).
  std::shared_ptr<const DataBatch> take(const LoadRequest& wanted);

  /// Whether this process writes the run's files.
  bool is_first() const { return processes_ == nullptr || processes_->rank() == 0; }
  /// Whether lines of progress are worth printing: a launcher makes every output look like a terminal.
  bool shows_progress() const { return processes_ == nullptr && !started_by_launcher(); }
  /// Whether somebody reads the lines, not a program that expects those of the original.
  bool for_people() const { return shows_progress() && stdout_is_terminal(); }
  /// Whether stdout gets the results of --test-only or --find-rate as JSON and nothing else.
  bool prints_json() const { return options_.tests.json; }
  /// Prints the line of a batch that took `seconds`, and what --verbose adds: among it the learning rates at
  /// `last`, those of the batch's last minibatch.
  void print_batch(const std::string& title, const TrainingProgress& last, double seconds, double rate) const;
  /// Says once in a run, after a batch, if its steps wait for data, and what helps.
  void advise_on_data();
  /// Returns the seconds that the rest of the run takes at this many images a second, tests aside.
  double seconds_left(const Position& work, std::int64_t image, double rate) const;
  void print_test(const CostSums& sums, double seconds);
  /// Gives a new run its weights. Throws InputError, in all processes, if one of them has others.
  void init_weights();
  /// Keeps the checkpoint that the run goes on from as the best one if it is that: a run that was killed
  /// right after saving it has not done so. `later_are_left` says that leave_later_checkpoints() was called;
  /// else the folder's best one may be a later one, which stays.
  void keep_best_again(bool later_are_left);
  /// Lowers the learning rates if --plateau asks for it after a test, and says so.
  void lower_rates();
  /// Notes how long a minibatch took, and keeps the time of the next one and of a checkpoint back.
  void note_minibatch(Phase phase, double seconds);
  /// Keeps back what a minibatch of this phase and a checkpoint take.
  void keep_time_back(Phase phase);
  /// Whether --time-limit leaves time for the minibatch of training that begins and the one after it.
  bool has_time_for_two() const;
  /// Prints which signal has stopped the run on any process, or that --time-limit has. Throws RunError if
  /// that was the limit and the run is not `going_on`: it has done nothing that a later run need not do
  /// again.
  void say_why_stopped(bool going_on);
  /// Whether a stop signal has arrived. Several processes say the same, since their last exchange.
  bool stopped() { return processes_ == nullptr ? stop_.arrived() : processes_->stop(); }

  void run_all();
  /// Prints what a run that ends in order has reached.
  void summarise(double seconds) const;
  void test_only();
  /// These return false if the stop signal cut them short.
  bool train_batch(const Position& work);
  bool test();
  bool test_batch(LoadRequest piece, CostSums& sums, TestOutputs* outputs = nullptr);

  /// Moves aside the folder's checkpoints that are later than the one that the run goes on from, and says so.
  void leave_later_checkpoints();
  void save();
  /// Makes the run's folder again if somebody has removed it, and says so.
  void reclaim_folder();
  /// Saves after a test, unless the test's error is above --max-test-err and --save-freq or --keep-best asks
  /// for no checkpoint here either, and keeps the checkpoint of the best test. Returns whether it saved.
  bool save_tested();
  /// Whether --patience has run out.
  bool out_of_patience() const { return convnet::out_of_patience(options_, state_.best); }
  /// Returns the value of the best test, an error in percent.
  std::string best_value_text() const;
  /// Saves what the last checkpoint does not have, unless an error left the weights in doubt. Returns what is
  /// to be said about it after the error's message.
  std::string save_after_error();
  /// Calls `use`, which makes or uses board_. If event files cannot be written, the run goes on without them
  /// after a warning.
  void use_board(const std::function<void()>& use);
  /// Trains at ever higher learning rates, and prints those to begin with. Throws RunError if it is stopped.
  void find_rate();
  /// Checks the gradient of every matrix against numeric differences. Throws RunError if one is wrong.
  void check_gradients();
  /// Returns the inputs of the step on a minibatch. `ahead` is the number of steps before it that are not
  /// finished yet.
  StepInputs inputs_of(const DataBatch& data, TrainingProgress progress, int ahead = 0) const;
  /// Runs the step on `data`, the minibatch that `piece` asked for, unless that step is in flight, and
  /// submits the step after it if that is certain to follow.
  void step(Phase phase, const LoadRequest& piece, const DataBatch& data, const TrainingProgress& progress,
            CostSums& sums, TestOutputs* outputs = nullptr);

  TrainOptions options_;
  OptionTexts saved_options_;
  std::string placement_;  ///< the placement that --parallel auto has found, as checkpoints have it
  NetFiles files_;
  std::shared_ptr<const Provider> provider_;
  BatchRange train_range_;
  std::int64_t train_images_;  ///< LoadedRun::train_images
  BatchRange test_range_;
  PixelStatistics statistics_;
  StopSignal& stop_;
  Processes* processes_;  ///< of the run; null where there is one
  bool sound_ = true;     ///< the weights are those after the last step, all finite
  TrainingState state_;
  TimeUse time_use_;         ///< of the current batch
  bool taken_data_ = false;  ///< take() has been called
  /// The seconds that steps of the current batch have waited for this process's data.
  double batch_wait_ = 0;
  DataWait data_wait_;
  StepProfile profile_;     ///< --profile
  double test_error_ = 0;   ///< of the last test, as --max-test-err means it
  bool best_test_ = false;  ///< the last test was the best one
  /// Null if the run does not train, and in all processes but the first.
  std::unique_ptr<RunFolder> run_folder_;
  std::string folder_;                 ///< its path
  std::string last_checkpoint_;        ///< file; "" if none was read or written
  std::uint64_t saved_iteration_ = 0;  ///< of the last checkpoint
  /// --tensorboard; null for none. Destroyed before run_folder_, which may hold it.
  std::unique_ptr<BoardFolder> board_folder_;
  std::string left_out_;  ///< what print_start() has said of files that are no part of the data set
  Net net_;
  Pace pace_;
  WatchedCost watched_;               ///< the cost of --keep-best and --patience
  std::optional<TensorBoard> board_;  ///< --tensorboard, while it trains
  std::optional<ImageShare> share_;   ///< of this process, where there are several
  Prefetcher prefetcher_;
};

}  // namespace convnet
