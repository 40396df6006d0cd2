#include "convnet/place/estimate.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "convnet/plan/exchange.h"
#include "convnet/plan/links.h"

namespace convnet {
namespace {

/// The share of the sums of gradients that does not hide behind the backward pass: a guess.
constexpr double kSeenShare = 0.3;
/// Number of the best partial choices that propose() continues with.
constexpr std::size_t kBeginnings = 300;

}  // namespace

PlacementEstimate::PlacementEstimate(const PlacementUnits& units, std::vector<UnitCosts> costs,
                                     std::vector<double> bytes, const DeviceModel& links,
                                     const Topology& topology, int devices)
    : units_(units),
      costs_(std::move(costs)),
      bytes_(std::move(bytes)),
      links_(links),
      topology_(topology),
      devices_(devices) {}

double PlacementEstimate::unit_seconds(std::size_t unit, const Spread& spread, int most) const {
  // A replica works on every count-th microbatch, a part on its share of all.
  return costs_[unit].seconds.at(most) * most / spread.count;
}

double PlacementEstimate::update_seconds(std::size_t unit, const Spread& spread) const {
  const double own = costs_[unit].update_seconds / spread.count;
  if (spread.replicas() == 1) return own;
  const auto [known, fresh] = sums_.try_emplace(spread, 0);
  if (fresh) known->second = sum_seconds(spread);
  return own + kSeenShare * known->second * costs_[unit].weight_bytes;
}

double PlacementEstimate::sum_seconds(const Spread& spread) const {
  // Gradients and then weights: the shards of each replica go its way, and come back the same way.
  const std::vector<DeviceId> devices = spread.devices();
  std::vector<Transfer> transfers;
  for (int part = 0; part < spread.parts; ++part) {
    std::vector<DeviceId> replicas;
    for (std::size_t i = static_cast<std::size_t>(part); i < devices.size();
         i += static_cast<std::size_t>(spread.parts))
      replicas.push_back(devices[i]);
    const Exchange exchange(topology_, replicas);
    const auto device = [&](int member) { return replicas[static_cast<std::size_t>(member)]; };
    for (int owner = 0; owner < spread.replicas(); ++owner) {
      for (const Exchange::Share& share : exchange.shares(owner)) {
        const double size = (share.end - share.begin) / spread.count;
        for (int member = 0; member < spread.replicas(); ++member) {
          if (member == owner) continue;
          const int receiver = exchange.hop(member, share).receiver;
          transfers.push_back({device(member), device(receiver), size});
          transfers.push_back({device(receiver), device(member), size});
        }
      }
    }
  }
  return transfer_seconds(links_, transfers, devices_);
}

double PlacementEstimate::edge_seconds(std::size_t edge, const Spread& from, const Spread& to) const {
  if (from == to && !from.divided()) return 0;
  const auto [known, fresh] = moves_.try_emplace({from, to}, 0);
  if (fresh) known->second = move_seconds(from, to);
  return known->second * bytes_[edge];
}

double PlacementEstimate::move_seconds(const Spread& from, const Spread& to) const {
  // Every part of a replica reads the outputs of each of its microbatches from the parts of the replica that
  // made them; the gradient goes back.
  std::vector<int> fewer;
  if (from.covers(devices_) && to.covers(devices_)) fewer = {std::min(from.replicas(), to.replicas())};
  const std::vector<DeviceId> sources = from.devices_near(fewer), readers = to.devices_near(fewer);
  const int microbatches = std::max(from.replicas(), to.replicas());
  const double share = 1.0 / (microbatches * from.parts);
  std::vector<Transfer> there, back;
  for (int m = 0; m < microbatches; ++m) {
    const auto source = sources.begin() + std::ptrdiff_t{m % from.replicas()} * from.parts;
    const auto reader = readers.begin() + std::ptrdiff_t{m % to.replicas()} * to.parts;
    for (auto r = reader; r != reader + to.parts; ++r) {
      for (auto s = source; s != source + from.parts; ++s) {
        if (*s == *r) continue;
        there.push_back({*r, *s, share});
        back.push_back({*s, *r, share});
      }
    }
  }
  return transfer_seconds(links_, there, devices_) + transfer_seconds(links_, back, devices_);
}

double PlacementEstimate::seconds(const Choice& choice) const {
  const int most = most_replicas(choice);
  double sum = 0;
  for (std::size_t u = 0; u < choice.size(); ++u)
    sum += unit_seconds(u, choice[u], most) + update_seconds(u, choice[u]);
  for (std::size_t e = 0; e < units_.edges.size(); ++e)
    sum += edge_seconds(e, choice[units_.edges[e].from], choice[units_.edges[e].to]);
  return sum;
}

double PlacementEstimate::least_seconds(const Choice& choice) const {
  const int most = most_replicas(choice);
  Table<DeviceId, double> load(static_cast<std::size_t>(devices_), 0);
  for (std::size_t u = 0; u < choice.size(); ++u) {
    for (const DeviceId d : choice[u].devices()) load[d] += unit_seconds(u, choice[u], most);
  }
  return *std::max_element(load.begin(), load.end());
}

std::vector<int> PlacementEstimate::balanced_runs(int count) const {
  const std::size_t units = units_.units.size(), runs = static_cast<std::size_t>(count);
  // By number of runs and of units in them: the seconds of the slowest run, and where the last run begins.
  std::vector<std::vector<std::pair<double, std::size_t>>> best(runs + 1);
  for (std::size_t run = 0; run <= runs; ++run) {
    best[run].assign(units + 1, {std::numeric_limits<double>::infinity(), 0});
    if (run == 0) best[0][0].first = 0;
    for (std::size_t end = run; run > 0 && end <= units; ++end) {
      double last = 0;
      for (std::size_t begin = end; begin-- > run - 1;) {
        last += unit_seconds(begin, {}, 1);
        best[run][end] = std::min(best[run][end], {std::max(best[run - 1][begin].first, last), begin});
      }
    }
  }
  std::vector<int> run_of(units);
  for (std::size_t run = runs, end = units; run > 0; --run) {
    const std::size_t begin = best[run][end].second;
    std::fill(run_of.begin() + static_cast<std::ptrdiff_t>(begin),
              run_of.begin() + static_cast<std::ptrdiff_t>(end), static_cast<int>(run) - 1);
    end = begin;
  }
  return run_of;
}

std::vector<Choice> PlacementEstimate::propose(const std::vector<std::vector<Spread>>& spreads, int most,
                                               std::size_t best) const {
  struct Beginning {
    double seconds = 0;
    Choice choice;
  };
  const auto less = [](const Beginning& a, const Beginning& b) {
    return std::pair(a.seconds, a.choice) < std::pair(b.seconds, b.choice);
  };
  std::vector<Beginning> beginnings(1);
  for (std::size_t u = 0; u < spreads.size(); ++u) {
    std::vector<Beginning> longer;
    for (const Beginning& b : beginnings) {
      for (const Spread& spread : spreads[u]) {
        const int replicas = spread.replicas();
        if (most % replicas != 0 || (units_.units[u].sees_minibatch && replicas != most)) continue;
        bool fits = true;
        for (std::size_t other = 0; other < u && fits; ++other)
          fits = units_.units[other].group != units_.units[u].group || b.choice[other].replicas() == replicas;
        if (!fits) continue;
        Beginning next{b.seconds + unit_seconds(u, spread, most) + update_seconds(u, spread), b.choice};
        next.choice.push_back(spread);
        for (std::size_t e = 0; e < units_.edges.size(); ++e) {
          const PlacementEdge& edge = units_.edges[e];
          if (std::max(edge.from, edge.to) == u)
            next.seconds += edge_seconds(e, next.choice[edge.from], next.choice[edge.to]);
        }
        longer.push_back(std::move(next));
      }
    }
    std::sort(longer.begin(), longer.end(), less);
    if (longer.size() > kBeginnings) longer.resize(kBeginnings);
    beginnings = std::move(longer);
  }
  std::vector<Choice> proposed;
  for (Beginning& b : beginnings) {
    if (proposed.size() == best) break;
    if (most_replicas(b.choice) == most && allowed(units_, b.choice)) proposed.push_back(std::move(b.choice));
  }
  return proposed;
}

}  // namespace convnet
