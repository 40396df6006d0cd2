#include "convnet/plan/links.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace convnet {

Links::Links(const DeviceModel& model, int devices) : shared_bus_(model.shared_bus), levels_(model.switches) {
  const auto add = [&](double bandwidth) { bandwidth_.push_back(bandwidth * model.link_efficiency); };
  if (shared_bus_) {
    add(model.link_bandwidth_of(DeviceId(0)));
    return;
  }
  for (const DeviceId device : IdRange<DeviceId>(devices)) {
    for (int way = 0; way < 2; ++way) add(model.link_bandwidth_of(device));
  }
  for (const SwitchLevel& level : levels_) {
    first_of_level_.push_back(bandwidth_.size());
    const int groups = devices == 0 ? 0 : level.group(DeviceId(devices - 1)) + 1;
    for (int group = 0; group < groups; ++group) {
      for (int way = 0; way < 2; ++way) add(level.bandwidth_of(group));
    }
  }
}

std::vector<std::size_t> Links::path(DeviceId from, DeviceId to) const {
  if (shared_bus_) return {0};
  std::vector<std::size_t> links = {2 * from.index(), 2 * to.index() + 1};
  for (std::size_t l = 0; l < levels_.size(); ++l) {
    const int out = levels_[l].group(from), in = levels_[l].group(to);
    if (out == in) break;
    links.push_back(first_of_level_[l] + 2 * static_cast<std::size_t>(out));
    links.push_back(first_of_level_[l] + 2 * static_cast<std::size_t>(in) + 1);
  }
  return links;
}

std::size_t LinkTraffic::start(const Transfer& transfer, double now) {
  now_ = now;
  Moving moving;
  moving.path = links_.path(transfer.from, transfer.to);
  moving.left = transfer.bytes;
  moving.since = now;
  for (const std::size_t link : moving.path) on_link_[link].push_back(moving_.size());
  changed_.insert(changed_.end(), moving.path.begin(), moving.path.end());
  moving_.push_back(std::move(moving));
  version_.push_back(0);
  return moving_.size() - 1;
}

/// Gives new shares to the transfers on links that transfers have entered or left.
void LinkTraffic::share_out() {
  std::vector<std::size_t> concerned;
  ++shared_out_;
  for (const std::size_t link : changed_) {
    for (const std::size_t m : on_link_[link]) {
      if (std::exchange(moving_[m].shared_out, shared_out_) != shared_out_) concerned.push_back(m);
    }
  }
  changed_.clear();
  find_rates(concerned);
  for (const std::size_t m : concerned) {
    Moving& moving = moving_[m];
    if (moving.next_rate == moving.rate) continue;
    moving.left = std::max(0.0, moving.left - moving.rate * (now_ - moving.since));
    moving.since = now_;
    moving.rate = moving.next_rate;
    ends_.push({now_ + moving.left / moving.rate, m, ++version_[m]});
  }
}

/// Finds the next rates of these transfers; all others keep theirs. First each gets the smallest of equal
/// shares; then what some leave on their other links is shared by the rest.
void LinkTraffic::find_rates(const std::vector<std::size_t>& transfers) {
  const auto smallest_share = [&](const Moving& moving) {
    double least = std::numeric_limits<double>::infinity();
    for (const std::size_t link : moving.path) least = std::min(least, share_[link]);
    return least;
  };
  std::vector<std::size_t> links;
  for (const std::size_t m : transfers) {
    for (const std::size_t link : moving_[m].path) {
      if (std::exchange(link_shared_out_[link], shared_out_) == shared_out_) continue;
      links.push_back(link);
      share_[link] = links_.bandwidth(link) / static_cast<double>(on_link_[link].size());
    }
  }
  for (const std::size_t m : transfers) moving_[m].next_rate = smallest_share(moving_[m]);
  for (const std::size_t link : links) {
    double left = links_.bandwidth(link);
    std::size_t others = on_link_[link].size();
    for (const std::size_t m : on_link_[link]) {
      const double rate = moving_[m].next_rate;
      if (rate >= share_[link] * (1 - 1e-9)) continue;
      left -= rate;
      --others;
    }
    if (others > 0) share_[link] = left / static_cast<double>(others);
  }
  for (const std::size_t m : transfers) moving_[m].next_rate = smallest_share(moving_[m]);
  // Two links may both have given a transfer what they had left.
  for (const std::size_t link : links) {
    double load = 0;
    for (const std::size_t m : on_link_[link]) load += moving_[m].next_rate;
    share_[link] = std::min(1.0, links_.bandwidth(link) / load);
  }
  for (const std::size_t m : transfers) moving_[m].next_rate *= smallest_share(moving_[m]);
}

double LinkTraffic::next_end() {
  const auto drop_void = [&] {
    while (!ends_.empty() && version_[ends_.top().transfer] != ends_.top().version) ends_.pop();
  };
  drop_void();
  // Transfers that end at the same time leave their links together.
  if (!changed_.empty() && (ends_.empty() || ends_.top().time > now_)) {
    share_out();
    drop_void();
  }
  return ends_.empty() ? std::numeric_limits<double>::infinity() : ends_.top().time;
}

std::size_t LinkTraffic::end_next() {
  now_ = next_end();
  const std::size_t ended = ends_.top().transfer;
  ends_.pop();
  const Moving& moving = moving_[ended];
  ++version_[ended];
  for (const std::size_t link : moving.path) {
    std::erase(on_link_[link], ended);
    changed_.push_back(link);
  }
  return ended;
}

double transfer_seconds(const DeviceModel& model, const std::vector<Transfer>& transfers, int devices) {
  const Links links(model, devices);
  std::vector<double> bytes(links.count(), 0);
  double most = 0;
  for (const Transfer& transfer : transfers) {
    for (const std::size_t link : links.path(transfer.from, transfer.to)) {
      bytes[link] += transfer.bytes;
      most = std::max(most, bytes[link] / links.bandwidth(link));
    }
  }
  return most;
}

}  // namespace convnet
