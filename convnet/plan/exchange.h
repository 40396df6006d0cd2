// The way on which devices exchange data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "convnet/plan/topology.h"

namespace convnet {

/// The way on which devices, like those of the replicas of a layer, exchange data, so that no device needs
/// data of all others directly and slow links carry as little as possible. Devices form groups within groups:
/// devices of a host, hosts, and blocks of hosts where there are many. A member is the index of a device in
/// the list of the constructor.
class Exchange {
 public:
  /// The bytes/s of links, in any unit: that of each member, and those of each group by level. Empty lists
  /// stand for links of one speed.
  struct Rates {
    std::vector<double> members;
    std::vector<std::vector<double>> groups;
  };

  /// Few members that are all on one host, or each on a host of its own, are one group.
  Exchange(const Topology& topology, const std::vector<DeviceId>& devices);
  /// Groups the members by levels, the innermost first: levels[l][m] is the group of member m in level l.
  /// Each group consists of whole groups of the level before.
  Exchange(std::size_t members, const std::vector<std::vector<int>>& levels, Rates rates = {});

  /// Returns the exchange, in the same groups, of all members but one.
  Exchange without(int member) const;
  /// Returns whether two members are in the same group of the outermost level.
  bool neighbours(int a, int b) const {
    return stages() == 1 || group_of(stages() - 2, a) == group_of(stages() - 2, b);
  }

  int members() const { return static_cast<int>(paths_.size()); }
  /// Returns the number of stages. In stage 0 data moves within the innermost groups, in the last one
  /// anywhere.
  int stages() const { return static_cast<int>(paths_[0].size()); }

  /// A part of a sum that `owner` gets in the end, or of what it gives to all. One member of each group acts
  /// for the owner there. Which one that is differs between the shares of an owner where groups have
  /// different sizes or speeds, so that each member has as much to do as its link allows.
  struct Share {
    int owner = 0;
    double begin = 0, end = 1;  ///< the part of what the owner has
    std::vector<double> at;     ///< by stage: a place from 0 to 1, which a group divides among its children
  };
  /// Returns all that an owner has as one share.
  Share whole(int owner) const;
  /// Returns the shares of an owner, in their order, which together are all that it has.
  std::vector<Share> shares(int owner) const;
  /// Returns how much of all sums a member should own, so that the busiest link has least to do: the weights
  /// of all members are 1 together.
  double weight(int member) const;
  /// Returns whether the links of members have different speeds, as the constructor was told.
  bool weighted() const { return !rates_.members.empty(); }

  /// What a member does with its part of a sum: in which stage it sends it to which member, which adds it to
  /// its own. The owner's own stage is stages(). What the owner makes of the sum takes the same way back: the
  /// member fetches it from the receiver in that stage, the last stage first.
  struct Hop {
    int stage = 0, receiver = 0;
  };
  Hop hop(int member, const Share& share) const;
  /// Returns the members from which `receiver` gets parts of a sum in a stage, and itself, in order.
  std::vector<int> senders(int stage, int receiver, const Share& share) const;
  /// The members from which a receiver gets parts in a stage, and itself.
  struct Sum {
    int receiver = 0;
    std::vector<int> senders;
  };
  /// Returns the sums of a stage on the way to the owner, by receiver. All of them may be made at the same
  /// time.
  std::vector<Sum> sums(int stage, const Share& share) const;

  /// Returns all members in an order that alternates between the outermost groups, and within them likewise.
  std::vector<int> in_turns() const;
  /// Returns whether shards of `a` come before those of `b` where the shards that a member sums or fetches in
  /// any stage are neighbours.
  bool shards_before(int a, int b) const { return paths_[at(a)] < paths_[at(b)]; }

 private:
  /// A group: its children are groups of the stage before, or members. Each has a part of the places from 0
  /// to 1; `ends` are the ends of these parts.
  struct Group {
    std::vector<int> children;
    std::vector<double> ends;
  };
  struct Interval {
    double begin, end;
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  int counterpart(int stage, int group, const Share& share) const;
  int group_of(int stage, int member) const { return groups_of_[at(stage)][at(member)]; }
  Interval interval(int stage, int member) const;
  std::vector<double> cuts(int stage, int member) const;
  void divide_equally();
  void divide_by_rates();
  double most_extra(int stage, int index, double time) const;

  std::vector<std::vector<Group>> groups_;   ///< by stage: the groups within which data moves
  std::vector<std::vector<int>> groups_of_;  ///< by stage: the group of each member
  /// By member: its place in its innermost group, then the place of each of its groups in the next.
  std::vector<std::vector<int>> paths_;
  Rates rates_;
};

/// A range of a tensor that a member gives to all, or whose sum it gets.
struct SharedRange {
  Exchange::Share share;
  std::int64_t begin = 0, bytes = 0;
};
/// Cuts so many bytes into ranges that follow each other in the order of `owners`, and begin at multiples of
/// `aligned` bytes. Owners get as much as their weights say, or equal parts.
std::vector<SharedRange> shared_ranges(const Exchange& exchange, const std::vector<int>& owners,
                                       std::int64_t bytes, std::int64_t aligned, bool weighted);

}  // namespace convnet
