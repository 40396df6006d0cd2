#include "convnet/plan/exchange.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

namespace convnet {
namespace {

constexpr std::size_t kMostOnHost = 16, kMostHosts = 4;  // that all exchange data with each other

/// Returns the levels of an exchange: hosts, if there are several and some have several members, and blocks.
std::vector<std::vector<int>> levels_of(const Topology& topology, const std::vector<DeviceId>& devices) {
  std::set<int> hosts;
  for (const DeviceId device : devices) hosts.insert(topology.host(device));
  const bool by_host = hosts.size() > 1 && hosts.size() < devices.size();
  std::vector<std::vector<int>> levels;
  std::vector<int> group;  // of each member, in the outermost level so far
  for (std::size_t m = 0; m < devices.size(); ++m)
    group.push_back(
        by_host ? static_cast<int>(std::distance(hosts.begin(), hosts.find(topology.host(devices[m]))))
                : static_cast<int>(m));
  std::size_t count = by_host ? hosts.size() : devices.size();
  if (by_host) levels.push_back(group);
  if (hosts.size() == 1 && count <= kMostOnHost) return levels;
  while (count > kMostHosts) {
    // Blocks of neighbours, as equal as possible.
    const std::size_t blocks = (count + kMostHosts - 1) / kMostHosts;
    for (int& g : group) g = static_cast<int>(static_cast<std::size_t>(g) * blocks / count);
    levels.push_back(group);
    count = blocks;
  }
  return levels;
}

}  // namespace

Exchange::Exchange(const Topology& topology, const std::vector<DeviceId>& devices)
    : Exchange(devices.size(), levels_of(topology, devices)) {}

Exchange::Exchange(std::size_t members, const std::vector<std::vector<int>>& levels, Rates rates)
    : groups_of_(levels), paths_(members), rates_(std::move(rates)) {
  groups_of_.emplace_back(members, 0);  // all of them
  std::vector<int> inner(members);
  std::iota(inner.begin(), inner.end(), 0);
  for (const std::vector<int>& outer : groups_of_) {
    std::vector<std::set<int>> children(at(*std::max_element(outer.begin(), outer.end())) + 1);
    for (std::size_t m = 0; m < members; ++m) children[at(outer[m])].insert(inner[m]);
    for (std::size_t m = 0; m < members; ++m) {
      const std::set<int>& siblings = children[at(outer[m])];
      paths_[m].push_back(static_cast<int>(std::distance(siblings.begin(), siblings.find(inner[m]))));
    }
    groups_.emplace_back();
    for (const std::set<int>& of_group : children)
      groups_.back().push_back({{of_group.begin(), of_group.end()}, {}});
    inner = outer;
  }
  if (weighted())
    divide_by_rates();
  else
    divide_equally();
}

/// Gives each child of a group as much of it as it has members.
void Exchange::divide_equally() {
  std::vector<double> sizes(paths_.size(), 1);  // members of each child
  for (std::vector<Group>& of_stage : groups_) {
    std::vector<double> outer;
    for (Group& group : of_stage) {
      double all = 0;
      for (const int child : group.children) group.ends.push_back(all += sizes[at(child)]);
      for (double& end : group.ends) end /= all;
      outer.push_back(all);
    }
    sizes = std::move(outer);
  }
}

/// Returns how much more than its own part of an all-reduce of one byte a child of a stage can send in
/// `time`: the member `index`, or the group `index` of the stage before. Negative: not even its own part.
///
/// Of n children of a group, one that owns w of the sums sends 1 - w to the owners of the rest, and what it
/// has made of w to n - 1 others: 1 + w (n - 2) bytes in all. If the group owns W of the sums of the group
/// around it, which has N children, the child also does w of the 1 + W (N - 2) bytes that the group sends. So
/// what the children of a group send beyond 1 is n - 2 together for the outermost group, and n - 1 and what
/// the group sends beyond 1 for the others.
double Exchange::most_extra(int stage, int index, double time) const {
  if (stage == 0) return time * rates_.members[at(index)] - 1;
  const Group& group = groups_[at(stage - 1)][at(index)];
  double extra = 1 - static_cast<double>(group.children.size());
  for (const int child : group.children) {
    const double of_child = most_extra(stage - 1, child, time);
    if (of_child < 0) return of_child;
    extra += of_child;
  }
  return std::min(extra, time * rates_.groups[at(stage - 1)][at(index)] - 1);
}

/// Divides groups so that an all-reduce of all members takes least time, on links of these speeds.
void Exchange::divide_by_rates() {
  const Group& all = groups_.back()[0];
  const auto enough = [&](double time) {
    double extra = 0;
    for (const int child : all.children) {
      const double of_child = most_extra(stages() - 1, child, time);
      if (of_child < 0) return false;
      extra += of_child;
    }
    return extra >= static_cast<double>(all.children.size()) - 2;
  };
  double most = 1 / *std::max_element(rates_.members.begin(), rates_.members.end());
  while (!enough(most)) most *= 2;
  double least = most / 2;
  constexpr int kHalvings = 40;
  for (int k = 0; k < kHalvings; ++k) {
    const double middle = (least + most) / 2;
    (enough(middle) ? most : least) = middle;
  }
  for (int stage = 0; stage < stages(); ++stage) {
    for (Group& group : groups_[at(stage)]) {
      double sum = 0;
      constexpr double kLeast = 1e-6;  // of what a child may send: all of them may have nothing to spare
      for (const int child : group.children)
        group.ends.push_back(sum += std::max(kLeast, most_extra(stage, child, most)));
      for (double& end : group.ends) end /= sum;
    }
  }
}

Exchange Exchange::without(int member) const {
  std::vector<std::vector<int>> levels(groups_of_.begin(), groups_of_.end() - 1);
  Rates rates = rates_;
  if (weighted()) rates.members.erase(rates.members.begin() + member);
  for (std::size_t l = 0; l < levels.size(); ++l) {
    std::vector<int>& level = levels[l];
    const int left = level[at(member)];
    level.erase(level.begin() + member);
    if (std::find(level.begin(), level.end(), left) != level.end()) continue;
    // A group that is empty now leaves no gap.
    for (int& group : level) group -= group > left ? 1 : 0;
    if (weighted()) rates.groups[l].erase(rates.groups[l].begin() + left);
  }
  return {paths_.size() - 1, levels, std::move(rates)};
}

/// Returns the part of its group that a member, or its group of the stage before, has.
Exchange::Interval Exchange::interval(int stage, int member) const {
  const std::vector<double>& ends = groups_[at(stage)][at(group_of(stage, member))].ends;
  const std::size_t place = at(paths_[at(member)][at(stage)]);
  return {place == 0 ? 0 : ends[place - 1], ends[place]};
}

double Exchange::weight(int member) const {
  double weight = 1;
  for (int stage = 0; stage < stages(); ++stage) {
    const Interval own = interval(stage, member);
    weight *= own.end - own.begin;
  }
  return weight;
}

Exchange::Share Exchange::whole(int owner) const {
  Share share;
  share.owner = owner;
  for (int stage = 0; stage < stages(); ++stage) {
    const Interval own = interval(stage, owner);
    share.at.push_back((own.begin + own.end) / 2);
  }
  return share;
}

/// Returns the ends of the parts of a member's interval of a stage within which each group has one child that
/// acts for the member.
std::vector<double> Exchange::cuts(int stage, int member) const {
  std::size_t most = 0;
  for (const Group& group : groups_[at(stage)]) most = std::max(most, group.children.size());
  // More shares would cost more than they balance.
  constexpr double kParts = 16;
  const double least = 1 / (kParts * static_cast<double>(most));
  const Interval own = interval(stage, member);
  std::vector<double> ends;
  for (const Group& group : groups_[at(stage)]) {
    for (const double end : group.ends) {
      if (end > own.begin + least && end < own.end - least) ends.push_back(end);
    }
  }
  std::sort(ends.begin(), ends.end());
  std::vector<double> apart;
  for (const double end : ends) {
    if (apart.empty() || end >= apart.back() + least) apart.push_back(end);
  }
  apart.push_back(own.end);
  return apart;
}

std::vector<Exchange::Share> Exchange::shares(int owner) const {
  std::vector<Share> shares = {whole(owner)};
  for (int stage = 0; stage + 1 < stages(); ++stage) {
    const Interval own = interval(stage, owner);
    const std::vector<double> ends = cuts(stage, owner);
    std::vector<Share> finer;
    for (const Share& share : shares) {
      Share part = share;
      double begin = own.begin;
      for (const double end : ends) {
        const double done = (end - own.begin) / (own.end - own.begin);
        part.end = end == ends.back() ? share.end : share.begin + done * (share.end - share.begin);
        part.at[at(stage)] = (begin + end) / 2;
        finer.push_back(part);
        part.begin = part.end;
        begin = end;
      }
    }
    shares = std::move(finer);
  }
  return shares;
}

/// Returns the member of a group that acts for the owner of a share there: the owner itself in its own
/// groups.
int Exchange::counterpart(int stage, int group, const Share& share) const {
  for (; stage >= 0; --stage) {
    const Group& of_stage = groups_[at(stage)][at(group)];
    const auto last = of_stage.ends.end() - 1;
    const auto place = std::upper_bound(of_stage.ends.begin(), last, share.at[at(stage)]);
    group = of_stage.children[static_cast<std::size_t>(place - of_stage.ends.begin())];
  }
  return group;  // a child of an innermost group is a member
}

Exchange::Hop Exchange::hop(int member, const Share& share) const {
  for (int stage = 0; stage < stages(); ++stage) {
    const int receiver = counterpart(stage, group_of(stage, member), share);
    if (receiver != member) return {stage, receiver};
  }
  return {stages(), share.owner};
}

std::vector<int> Exchange::senders(int stage, int receiver, const Share& share) const {
  const int group = group_of(stage, receiver);
  if (counterpart(stage, group, share) != receiver) return {receiver};
  std::vector<int> members;
  for (const int child : groups_[at(stage)][at(group)].children)
    members.push_back(counterpart(stage - 1, child, share));
  std::sort(members.begin(), members.end());
  return members;
}

std::vector<Exchange::Sum> Exchange::sums(int stage, const Share& share) const {
  std::vector<Sum> all;
  for (int member = 0; member < members(); ++member) {
    if (hop(member, share).stage <= stage) continue;  // it has sent its part
    Sum sum{member, senders(stage, member, share)};
    if (sum.senders.size() > 1) all.push_back(std::move(sum));
  }
  return all;
}

std::vector<int> Exchange::in_turns() const {
  std::vector<int> turns(paths_.size());
  std::iota(turns.begin(), turns.end(), 0);
  if (stages() == 1) return turns;
  // The places on a host begin elsewhere on each host, so that the first owners have different neighbours.
  const auto turn = [&](int member) {
    const std::vector<int>& path = paths_[at(member)];
    std::vector<int> key(path.begin() + 1, path.end());
    const auto places = static_cast<int>(groups_[0][at(group_of(0, member))].children.size());
    key.insert(key.begin(), (path[0] - group_of(0, member) % places + places) % places);
    return key;
  };
  std::stable_sort(turns.begin(), turns.end(), [&](int a, int b) { return turn(a) < turn(b); });
  return turns;
}

std::vector<SharedRange> shared_ranges(const Exchange& exchange, const std::vector<int>& owners,
                                       std::int64_t bytes, std::int64_t aligned, bool weighted) {
  double all = 0;
  for (const int owner : owners) all += exchange.weight(owner);
  const auto round = [&](std::int64_t place) { return place / aligned * aligned; };
  std::vector<SharedRange> ranges;
  double done = 0;
  std::int64_t begin = 0;
  const auto count = static_cast<std::int64_t>(owners.size());
  for (std::int64_t k = 0; k < count; ++k) {
    const int owner = owners[static_cast<std::size_t>(k)];
    done += exchange.weight(owner);
    std::int64_t end = bytes;
    if (k + 1 < count)
      end = weighted && exchange.weighted()
                ? std::min(bytes, round(static_cast<std::int64_t>(static_cast<double>(bytes) * done / all)))
                : round(bytes * (k + 1) / count);
    const auto place = [&](double part) {
      return part == 1 ? end
                       : begin + round(static_cast<std::int64_t>(static_cast<double>(end - begin) * part));
    };
    for (Exchange::Share& share : exchange.shares(owner)) {
      SharedRange range{{}, place(share.begin), place(share.end) - place(share.begin)};
      range.share = std::move(share);
      if (range.bytes > 0) ranges.push_back(std::move(range));
    }
    begin = end;
  }
  return ranges;
}

}  // namespace convnet
