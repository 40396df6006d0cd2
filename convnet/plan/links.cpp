#include "convnet/plan/links.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace convnet {
namespace {

/// Bytes that some transfers move over each link.
class LinkUse {
 public:
  LinkUse(const DeviceModel& model, int devices)
      : model_(&model),
        sent_(static_cast<std::size_t>(devices), 0),
        received_(sent_),
        switch_sent_(sent_),
        switch_received_(sent_) {}

  void add(const Transfer& transfer) {
    all_ += transfer.bytes;
    sent_[transfer.from] += transfer.bytes;
    received_[transfer.to] += transfer.bytes;
    if (model_->same_switch(transfer.from, transfer.to)) return;
    switch_sent_[model_->first_of_switch(transfer.from)] += transfer.bytes;
    switch_received_[model_->first_of_switch(transfer.to)] += transfer.bytes;
  }

  double all() const { return all_; }
  double sent(DeviceId device) const { return sent_[device]; }
  double received(DeviceId device) const { return received_[device]; }
  /// Bytes that leave and enter the switch of a device.
  double switch_sent(DeviceId device) const { return switch_sent_[model_->first_of_switch(device)]; }
  double switch_received(DeviceId device) const { return switch_received_[model_->first_of_switch(device)]; }

 private:
  const DeviceModel* model_;
  double all_ = 0;
  Table<DeviceId, double> sent_, received_;
  Table<DeviceId, double> switch_sent_, switch_received_;  ///< by the first device of a switch
};

/// Returns the time of the busiest link, of devices or of switches.
double seconds(const DeviceModel& model, double link_bytes, double uplink_bytes) {
  const double link = link_bytes / model.link_bandwidth;
  const double uplink = uplink_bytes > 0 ? uplink_bytes / model.uplink_bandwidth : 0;
  return std::max(link, uplink) / model.link_efficiency;
}

/// Tasks that read at the same time.
struct Wave {
  LinkUse use;
  Table<DeviceId, double> beyond;  ///< by reader: bytes from behind other switches
};

/// The transfers that a task waits for on behalf of one layer.
struct LayerReads {
  NodeId node;  ///< none for transfers that serve no layer
  std::vector<Transfer> transfers;
};

/// Returns what a task reads elsewhere. Tasks that join the updates of several layers list the matrix, or its
/// sum, before what belongs to it.
std::vector<LayerReads> reads_of(const Plan& plan, const Task& task) {
  std::vector<LayerReads> reads = {{task.node, {}}};
  if (task.kind == TaskKind::receive) {
    for (const auto& [from, bytes] : bytes_fetched(plan, task))
      reads[0].transfers.push_back({task.device, from, static_cast<double>(bytes)});
    return reads;
  }
  for (const BufferUse& use : task.uses) {
    const Buffer& b = plan.buffers[use.buffer];
    if (!task.node.exists() && b.node.exists() && b.node != reads.back().node) reads.push_back({b.node, {}});
    if (b.kind == BufferKind::input || b.device == task.device) continue;
    reads.back().transfers.push_back({task.device, b.device, static_cast<double>(bytes_of(plan, use))});
  }
  return reads;
}

class PlanLinks {
 public:
  PlanLinks(const Plan& plan, const DeviceModel& model)
      : plan_(plan), model_(model), devices_(device_count(plan)) {}

  Table<TaskId, double> run() {
    for (const Task& task : plan_.tasks) {
      if (communicates(task.kind)) add(task);
    }
    Table<TaskId, double> seconds;
    for (const Task& task : plan_.tasks) seconds.push_back(communicates(task.kind) ? seconds_of(task) : 0);
    return seconds;
  }

 private:
  using Key = std::tuple<TaskKind, NodeId, int>;  ///< kind, layer, pass

  void add(const Task& task) {
    for (const LayerReads& reads : reads_of(plan_, task)) {
      if (reads.transfers.empty()) continue;
      const Key key(task.kind, reads.node, task.pass);
      auto wave = waves_.find(key);
      if (wave == waves_.end())
        wave = waves_
                   .emplace(key, Wave{LinkUse(model_, devices_),
                                      Table<DeviceId, double>(static_cast<std::size_t>(devices_), 0)})
                   .first;
      for (const Transfer& transfer : reads.transfers) {
        wave->second.use.add(transfer);
        if (!model_.same_switch(transfer.from, transfer.to))
          wave->second.beyond[task.device] += transfer.bytes;
      }
    }
  }

  double seconds_of(const Task& task) const {
    double sum = 0;
    for (const LayerReads& reads : reads_of(plan_, task)) {
      if (!reads.transfers.empty()) sum += seconds_of(reads, waves_.at({task.kind, reads.node, task.pass}));
    }
    return sum;
  }

  /// A link is busy until all bytes that the wave sends over it have passed. If several tasks of a device
  /// read over it, they take turns, so each takes a share of that time in proportion to its bytes.
  double seconds_of(const LayerReads& reads, const Wave& wave) const {
    const DeviceId reader = reads.transfers[0].to;
    double own = 0, own_beyond = 0, most_sent = 0, most_switch_sent = 0;
    for (const Transfer& transfer : reads.transfers) {
      own += transfer.bytes;
      most_sent = std::max(most_sent, wave.use.sent(transfer.from));
      if (model_.same_switch(transfer.from, transfer.to)) continue;
      own_beyond += transfer.bytes;
      most_switch_sent = std::max(most_switch_sent, wave.use.switch_sent(transfer.from));
    }
    if (own == 0) return 0;
    const double shared = model_.shared_bus ? wave.use.all() : most_sent;
    const double link = std::max(own, shared * own / wave.use.received(reader));
    double uplink = 0;
    if (own_beyond > 0)
      uplink =
          std::max(most_switch_sent, wave.use.switch_received(reader)) * own_beyond / wave.beyond[reader];
    return seconds(model_, link, std::max(own_beyond, uplink));
  }

  const Plan& plan_;
  const DeviceModel& model_;
  const int devices_;
  std::map<Key, Wave> waves_;
};

}  // namespace

double transfer_seconds(const DeviceModel& model, const std::vector<Transfer>& transfers, int devices) {
  LinkUse use(model, devices);
  for (const Transfer& transfer : transfers) use.add(transfer);
  double most = model.shared_bus ? use.all() : 0, most_of_switch = 0;
  for (const DeviceId d : IdRange<DeviceId>(devices)) {
    most = std::max({most, use.sent(d), use.received(d)});
    most_of_switch = std::max({most_of_switch, use.switch_sent(d), use.switch_received(d)});
  }
  return seconds(model, most, most_of_switch);
}

Table<TaskId, double> link_seconds(const Plan& plan, const DeviceModel& model) {
  return PlanLinks(plan, model).run();
}

}  // namespace convnet
