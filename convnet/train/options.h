// The options of training.
#pragma once

#include <string>

#include "convnet/net/options.h"
#include "convnet/train/plateau.h"

namespace convnet {

/// The checkpoints that a run starts from and saves.
struct CheckpointOptions {
  static constexpr OptionGroup group = OptionGroup::training;
  std::string save_path, save_file, load_file, init_from, keep_best;
  int keep = 2;
  int save_freq = 0;  ///< batches between checkpoints besides those after tests; 0: none
  double max_test_err = 0;
  bool force_save = false;
  bool operator==(const CheckpointOptions&) const = default;
};
const OptionTable<CheckpointOptions>& checkpoint_options();
/// Returns the option --load-file of commands that only read a checkpoint.
OptionTable<CheckpointOptions> read_checkpoint_option();

/// A test of a finished net instead of training, and the files it writes.
struct TestOptions {
  static constexpr OptionGroup group = OptionGroup::output;
  bool test_only = false, json = false;
  std::string write_features, feature_path, test_out, logreg_name, confusion;
  double tag_threshold = 0.5;  ///< probability from which on an image is taken to have a tag
  bool operator==(const TestOptions&) const = default;

  /// Returns the option that makes the run test a finished net and do nothing else; "" if there is none.
  std::string test_option() const;
  bool only_tests() const { return !test_option().empty(); }
};
const OptionTable<TestOptions>& test_options();

/// All options of training and of --test-only.
struct TrainOptions {
  static constexpr OptionGroup group = OptionGroup::training;
  NetFileOptions files;
  DataOptions data;
  CheckpointOptions checkpoints;
  StepOptions step;
  int epochs = 50000, patience = 0;
  int test_freq = 57;  ///< 0: at the end of each epoch; a run that is loaded has the number of its batches
  PlateauOptions plateau;
  double rate_factor = 1;  ///< factor of all learning rates of the parameter file
  double time_limit = 0;   ///< seconds since the program began; 0: none
  std::string tensorboard;
  bool check_grads = false, find_rate = false;
  TestOptions tests;
  DeviceOptions devices;
  ReportOptions report;
  /// The time limit as --time-limit takes it, 0:01 and more.
  std::string time_limit_text() const;
  /// Returns the option that makes the run do something else than train; "" if there is none.
  std::string instead() const;
  /// Returns whether the run trains; else it only tests, checks gradients or looks for a learning rate.
  bool trains() const { return instead().empty(); }
  bool operator==(const TrainOptions&) const = default;
};
const OptionTable<TrainOptions>& train_options();

/// Parses a span of time with units, like 10s or 1h30m, or as Slurm writes it: minutes, MM:SS, HH:MM:SS,
/// D-HH, D-HH:MM or D-HH:MM:SS. Minutes, and numbers with units, may have a fraction. UNLIMITED and INFINITE
/// are 0 seconds, which mean no limit. Like parse_value(), it returns what is wrong, or "".
std::string parse_time(const std::string& text, double& seconds);

/// Parses the options as OptionTable::parse() does, and checks that their combination makes sense. Throws
/// InputError.
TrainOptions parse_train_options(const OptionTexts& texts);

}  // namespace convnet
