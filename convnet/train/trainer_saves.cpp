// The checkpoints of a run: when they are saved and what they hold.
#include "convnet/train/trainer.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>

#include "convnet/net/input_data.h"

namespace convnet {
namespace {

void warn(const std::string& text) {
  if (!text.empty()) fmt::print(stderr, "warning: {}\n", text);
}

}  // namespace

void Trainer::leave_later_checkpoints() {
  Abandoned left;
  run_on_first(processes_, [&] { left = move_later_checkpoints(folder_, state_.position); });
  if (processes_ != nullptr) left.best = processes_->exchange(left.best ? "moved" : "")[0] == "moved";
  if (left.best) state_.best = {};
  if (left.folder.empty()) return;
  fmt::print(stderr, "The run goes on from {}: {} later checkpoint(s) were moved to {}\n", last_checkpoint_,
             left.checkpoints, left.folder);
}

bool Trainer::save_tested() {
  const double most = options_.checkpoints.max_test_err;
  const bool keeps = best_test_ && !options_.checkpoints.keep_best.empty();
  if (most == 0 || test_error_ <= most || keeps || save_follows(state_.position)) {
    save();
    if (keeps) {
      run_on_first(processes_, [&] { warn(keep_as_best(folder_, last_checkpoint_)); });
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

void Trainer::keep_best_again(bool later_are_left) {
  if (last_checkpoint_.empty() || !state_.follows_best_test() || options_.checkpoints.keep_best.empty())
    return;
  run_on_first(processes_, [&] {
    std::error_code none;
    if (std::filesystem::equivalent(folder_of(last_checkpoint_), folder_, none) &&
        (later_are_left || !is_later((std::filesystem::path(folder_) / kBestFile).string(), state_.position)))
      warn(keep_as_best(folder_, last_checkpoint_));
  });
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
  warn(run_folder_->reclaim());
  folder_ = run_folder_->path();
}

void Trainer::save() {
  const auto start = Clock::now();
  sound_ = false;  // if this fails, it would fail again
  Checkpoint c;
  net_.store(c.tensors);
  state_.windows = net_.windows();
  const Dims& image = provider_->matrices()[0].dims;
  save_statistics(statistics_, options_.data.provider, image, c.tensors);
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
  c.train_images = train_images_;
  c.test_range = test_range_;
  const auto write = [&] {
    reclaim_folder();
    warn(write_checkpoint(folder_, c, options_.checkpoints.keep));
  };
  run_on_first(processes_, [&] {
    if (const std::string overflow = net_.overflow_in(c.tensors); !overflow.empty())
      throw RunError(overflow +
                     "; such a checkpoint could not be read, and none is saved: try --clip-norm 1 "
                     "or smaller learning rates, and look for extreme numbers in the data set" +
                     (last_checkpoint_.empty() ? "" : "\nthe last good checkpoint is " + last_checkpoint_));
    try {
      write();
    } catch (const RunError&) {
      if (run_folder_->is_claimed()) throw;
      write();  // the folder was removed just now
    }
  });
  sound_ = true;
  last_checkpoint_ = c.file;
  saved_iteration_ = state_.iteration;
  pace_.note_save(seconds_since(start));
  fmt::print("Saved checkpoint to {}\n", folder_);
  std::fflush(stdout);
}

}  // namespace convnet
