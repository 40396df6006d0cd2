// The tests of a run: during training, alone (--test-only), and of its gradients (--check-grads).
#include "convnet/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "convnet/base/error.h"
#include "convnet/net/data_set.h"
#include "convnet/net/net_files.h"
#include "convnet/train/history.h"

namespace convnet {

std::int64_t Trainer::test_minibatch() const { return rows_of_test(*provider_, options_.step.mini); }

bool Trainer::test() {
  const auto start = Clock::now();
  keep_time_back(Phase::test);
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
  keep_time_back(Phase::train);
  if (const Position next = next_batch(); next.epoch <= options_.epochs)
    prefetcher_.start(request(next.batch, next.epoch));
  if (board_) use_board([&] { board_->tested(state_.iteration, sums); });
  test_error_ = first_error(sums, net_.graph());
  best_test_ = note_test(state_.best, watched_, watched_.of(sums, net_.graph()), state_.position);
  print_test(sums, seconds_since(start));
  lower_rates();
  add_to_history(state_.history, {state_.position.epoch, state_.position.batch, first, std::move(sums)},
                 test_range_.count());
  if (options_.data.test_one) ++state_.test_cursor;
  state_.test_due = false;
  return true;
}

void Trainer::lower_rates() {
  if (!note_plateau(state_.plateau, options_.plateau, best_test_, state_.position)) return;
  fmt::print(
      "Learning rates drop to {:.4g} of those in the parameter file: {} test{} without a better {} than {} "
      "(--plateau {})\n",
      rate_factor(), options_.plateau.tests, options_.plateau.tests == 1 ? "" : "s",
      watched_.text(net_.graph()), best_value_text(), plateau_text(options_.plateau));
  std::fflush(stdout);
}

bool Trainer::test_batch(LoadRequest piece, CostSums& sums, TestOutputs* outputs) {
  ProgressLine line(fmt::format("test {}...", piece.batch), shows_progress(),
                    prints_json() ? ProgressStream::err : ProgressStream::out);
  for (std::int64_t done = 0;; piece.first += piece.count) {
    const auto start = Clock::now();
    const std::shared_ptr<const DataBatch> data = take(piece);
    if (stopped()) return false;
    step(Phase::test, piece, *data, 0, sums, outputs);
    done += data->images;
    note_minibatch(Phase::test, seconds_since(start));
    line.show(done, std::max(done, provider_->images_in(piece.batch) * provider_->views()), done);
    if (data->last) return true;
  }
}

void Trainer::print_test(const CostSums& sums, double seconds) {
  const CostSums before = latest_tests(state_.history, 1);
  if (for_people()) {
    fmt::print(
        "test after {}.{} ({:.1f} s), learning rate {}\n{}", state_.position.epoch, state_.position.batch,
        seconds, rates_text(net_, last_progress(state_.position)),
        test_table(sums, before.sums.empty() ? nullptr : &before, state_.best, watched_, net_.graph()));
  } else {
    // cuda-convnet2 averages over the last tests, one for each batch of the test range.
    CostSums pooled = sums;
    if (options_.data.test_one) pool(pooled, latest_tests(state_.history, test_range_.count() - 1));
    fmt::print(
        "======================Test output======================\n{} ({:.3f} sec)\n"
        "----------------------Averages-------------------------\n{}\n",
        cost_text(sums, net_.graph()), seconds, cost_text(pooled, net_.graph()));
  }
  if (options_.report.verbose) print_weights(net_);
  std::fflush(stdout);
}

void Trainer::test_only() {
  std::optional<TestOutputs> opened;
  run_collectively(processes_, [&] {
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
    run_collectively(processes_, [&] { outputs.begin_batch(batch, provider_->count_images(batch)); });
    if (!test_batch(request(batch, 0), sums, &outputs))
      throw RunError(fmt::format("stopped in test batch {} of {}; missing are {}", batch, test_range_.str(),
                                 outputs.missing({batch, test_range_.last})));
    run_collectively(processes_, [&] { outputs.end_batch(); });
    if (!prints_json()) fmt::print("{}... {}\n", batch, cost_text(sums, net_.graph()));
    std::fflush(stdout);
    pool(pooled, sums);
  }
  run_collectively(processes_, [&] { outputs.finish(); });
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
  print_gradients(net_.check_gradients(data->images, inputs_of(*data, 0), [&] { return stopped(); }));
}

}  // namespace convnet
