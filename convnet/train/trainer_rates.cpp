// The search for a learning rate (--find-rate).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "convnet/base/error.h"
#include "convnet/train/batch_order.h"
#include "convnet/train/rate_search.h"
#include "convnet/train/trainer.h"

namespace convnet {
namespace {

/// Returns what training makes smaller: the costs per image, times their coefficients.
double objective(const CostSums& costs, const Graph& graph) {
  double sum = 0;
  for (const auto& [name, sums] : costs.sums) sum += graph.find(name)->layer->facts.cost->coeff * sums.at(0);
  return sum / static_cast<double>(std::max<std::int64_t>(1, costs.images));
}

bool learns(const std::vector<Rates>& rates) {
  return std::any_of(rates.begin(), rates.end(), [](const Rates& r) { return r.epsilon != 0; });
}

}  // namespace

void Trainer::find_rate() {
  RateSearch search;
  // The schedules' rates at the beginning, and not those of a warm-up, whose end they are to be right for.
  TrainingProgress rates = progress(next_batch());
  rates.warmed_up = true;
  // --rate-factor, which is looked for, is multiplied with the factor of --plateau.
  const double dropped = state_.plateau.factor();
  rates.factor = search.factor() * dropped;
  if (!learns(net_.rates(rates)))
    throw InputError("--find-rate: no layer of this net learns (all rates are 0)");
  run_collectively(processes_, [&] { provider_->load_training_data([&] { return stop_.arrived(); }); });
  std::int64_t minibatch = largest_minibatch();
  const Plan* plan = &net_.prepare(Phase::train, minibatch);
  int idle = 0;  // batches in a row that had no whole minibatch
  {
    ProgressLine line("finding a learning rate...", shows_progress(),
                      prints_json() ? ProgressStream::err : ProgressStream::out);
    for (Position work = next_batch(); !search.ended(); work = batch_after(work, train_range_)) {
      const std::uint64_t before = search.minibatches();
      LoadRequest wanted = request(work.batch, work.epoch);
      for (bool last = false; !last && !search.ended(); wanted.first += wanted.count) {
        const std::shared_ptr<const DataBatch> data = take(wanted);
        if (stopped()) throw RunError("stopped before a learning rate was found");
        last = data->last;
        // The last minibatch of a batch may be smaller, and its cost would be noisier.
        if (data->images < minibatch) continue;
        const auto done = static_cast<std::int64_t>(search.minibatches());
        rates.factor = search.factor() * dropped;
        const StepResult result = net_.run(*plan, inputs_of(*data, rates, static_cast<int>(done)));
        CostSums sums;
        add_costs(sums, *plan, net_.graph(), result.costs, minibatch);
        const double cost =
            result.finite() ? objective(sums, net_.graph()) : std::numeric_limits<double>::infinity();
        if (search.minibatches() == 0 && !std::isfinite(cost))
          throw RunError(
              "--find-rate: the cost of the first minibatch is not finite, whatever the rates are; look for "
              "extreme numbers in the data set, or make the initial weights smaller");
        search.add(cost);
        line.show((done + 1) * minibatch, RateSearch::most_minibatches() * minibatch, (done + 1) * minibatch);
      }
      work.minibatches = 0;  // a batch that the run had begun is done, too
      idle = search.minibatches() == before ? idle + 1 : 0;
      if (idle < train_range_.count()) continue;
      // The sizes of batches that had not been read were estimates, and all of them too large.
      const std::int64_t largest = largest_minibatch();
      if (largest >= minibatch)
        throw RunError(fmt::format("--find-rate: no batch has a whole minibatch of {} images", minibatch));
      minibatch = largest;
      plan = &net_.prepare(Phase::train, minibatch);
      idle = 0;
    }
  }
  sound_ = false;  // the weights are worth nothing
  if (prints_json()) {
    if (is_first()) fmt::print("{}\n", rates_json(search, minibatch));
    return;
  }
  fmt::print("{}Trained {} minibatches of {} images at factors from {:g} to {:.2g}, {}\n", curve_text(search),
             search.minibatches(), minibatch, search.curve().front().factor, search.curve().back().factor,
             search.exploded() ? "where the cost exploded" : "and the cost did not explode");
  const std::optional<RateSearch::Point> found = search.suggestion();
  if (!found) {
    fmt::print(
        "No suggestion: the cost does not fall at any of these rates. Are the rates of the parameter file "
        "far off, or its initial weights?\n");
    return;
  }
  rates.factor = found->factor * dropped;
  fmt::print(
      "Suggestion: where the smoothed cost falls most steeply, {:g} times the rates of the parameter file: "
      "{}\n"
      "next: the same command with --rate-factor {:g} instead of --find-rate\n",
      found->factor, rates_text(net_, rates), found->factor);
}

}  // namespace convnet
