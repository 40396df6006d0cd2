// Which host and which process each device of a plan belongs to.
#pragma once

#include <vector>

#include "convnet/base/ids.h"

namespace convnet {

/// How tensors travel to several devices, or sums from several. direct: each device reads from where a tensor
/// was made. relayed: devices with links of their own hand large tensors on, from one to the next.
enum class Routes { relayed, direct };

/// The host and the process of each device. Devices of one host have consecutive indices, and so have those
/// of one process. A process is on one host.
class Topology {
 public:
  /// Makes a topology of one host and one process, for any number of devices.
  Topology() = default;
  /// `devices_of_hosts` and `devices_of_processes` are the numbers of devices of each host and process, in
  /// order. An empty list stands for one host or process with all devices. Throws std::logic_error if a
  /// process spans hosts, or if the lists have different sums.
  Topology(const std::vector<int>& devices_of_hosts, const std::vector<int>& devices_of_processes);

  int hosts() const { return hosts_; }
  int processes() const { return processes_; }
  int host(DeviceId device) const { return host_.empty() ? 0 : host_.at(device); }
  int process(DeviceId device) const { return process_.empty() ? 0 : process_.at(device); }
  bool same_process(DeviceId a, DeviceId b) const { return process(a) == process(b); }
  /// Returns the place of a device among those of its process, from 0.
  int index_in_process(DeviceId device) const;
  /// Returns the number of devices of the process that has most; 0 where there is one process.
  int most_devices_in_process() const;

 private:
  int hosts_ = 1, processes_ = 1;
  Table<DeviceId, int> host_, process_;  ///< empty: all 0
};

/// The way on which devices, like those of the replicas of a layer, exchange data, so that no device needs
/// data of all others directly and slow links carry as little as possible. Devices form groups within groups:
/// devices of a host, hosts, and blocks of hosts where there are many. A member is the index of a device in
/// the list of the constructor.
class Exchange {
 public:
  /// Few members that are all on one host, or each on a host of its own, are one group.
  Exchange(const Topology& topology, const std::vector<DeviceId>& devices);
  /// Groups the members by levels, the innermost first: levels[l][m] is the group of member m in level l.
  /// Each group consists of whole groups of the level before.
  Exchange(std::size_t members, const std::vector<std::vector<int>>& levels);

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

  /// What a member does with its share of a sum that `owner` gets in the end: in which stage it sends it to
  /// which member, which adds it to its own. The owner's own stage is stages(). What the owner makes of the
  /// sum takes the same way back: the member fetches it from the receiver in that stage, the last stage
  /// first.
  struct Hop {
    int stage = 0, receiver = 0;
  };
  Hop hop(int member, int owner) const;
  /// Returns the members from which `receiver` gets shares of the sum of `owner` in a stage, and itself, in
  /// order.
  std::vector<int> senders(int stage, int receiver, int owner) const;
  /// The members from which a receiver gets shares in a stage, and itself.
  struct Sum {
    int receiver = 0;
    std::vector<int> senders;
  };
  /// Returns the sums of a stage on the way to `owner`, by receiver. All of them may be made at the same
  /// time.
  std::vector<Sum> sums(int stage, int owner) const;

  /// Returns all members in an order that alternates between the outermost groups, and within them likewise.
  std::vector<int> in_turns() const;
  /// Returns whether shards of `a` come before those of `b` where the shards that a member sums or fetches in
  /// any stage are neighbours.
  bool shards_before(int a, int b) const { return paths_[at(a)] < paths_[at(b)]; }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  int counterpart(int stage, int group, int owner) const;
  int group_of(int stage, int member) const { return groups_of_[at(stage)][at(member)]; }

  /// By stage: the groups within which data moves, each a list of groups of the stage before, or of members;
  /// and the group of each member.
  std::vector<std::vector<std::vector<int>>> groups_;
  std::vector<std::vector<int>> groups_of_;
  /// By member: its place in its innermost group, then the place of each of its groups in the next.
  std::vector<std::vector<int>> paths_;
};

}  // namespace convnet
