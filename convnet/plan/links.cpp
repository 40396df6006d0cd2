#include "convnet/plan/links.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace convnet {
namespace {

/// What some transfers ask of the links, in bytes.
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
  /// By the switch of a device: what goes out of it and comes into it.
  double switch_sent(DeviceId device) const { return switch_sent_[model_->first_of_switch(device)]; }
  double switch_received(DeviceId device) const { return switch_received_[model_->first_of_switch(device)]; }

 private:
  const DeviceModel* model_;
  double all_ = 0;
  Table<DeviceId, double> sent_, received_;
  Table<DeviceId, double> switch_sent_, switch_received_;  ///< by the first device of a switch
};

/// The longer of what travels over devices' links and over switches' links.
double seconds(const DeviceModel& model, double link_bytes, double uplink_bytes) {
  const double link = link_bytes / model.link_bandwidth;
  const double uplink = uplink_bytes > 0 ? uplink_bytes / model.uplink_bandwidth : 0;
  return std::max(link, uplink) / model.link_efficiency;
}

/// Tasks that read at the same time.
struct Wave {
  LinkUse use;
  Table<DeviceId, int> readers;         ///< by device: its tasks
  Table<DeviceId, int> beyond_readers;  ///< those that read beyond its switch
};

std::vector<Transfer> transfers_of(const Plan& plan, const Task& task) {
  std::vector<Transfer> transfers;
  for (const auto& [from, bytes] : bytes_fetched(plan, task)) {
    if (from.exists() && bytes > 0) transfers.push_back({task.device, from, static_cast<double>(bytes)});
  }
  return transfers;
}

class PlanLinks {
 public:
  PlanLinks(const Plan& plan, const DeviceModel& model)
      : plan_(plan), model_(model), devices_(device_count(plan)) {}

  Table<TaskId, double> run() {
    Table<TaskId, std::size_t> wave_of(plan_.tasks.size(), 0);
    for (const TaskId t : plan_.tasks.ids()) {
      if (communicates(plan_.tasks[t].kind)) wave_of[t] = add(plan_.tasks[t]);
    }
    Table<TaskId, double> seconds(plan_.tasks.size(), 0);
    for (const TaskId t : plan_.tasks.ids()) {
      if (communicates(plan_.tasks[t].kind)) seconds[t] = seconds_of(plan_.tasks[t], waves_[wave_of[t]]);
    }
    return seconds;
  }

 private:
  /// Kind, layer, pass, and for tasks of several layers which one of the device's it is.
  using Key = std::tuple<TaskKind, NodeId, int, int>;

  std::size_t add(const Task& task) {
    // Tasks that join the updates of several layers correspond by their order on each device.
    const int number = task.node.exists() ? 0 : joined_[{task.kind, task.pass, task.device}]++;
    const auto [place, fresh] =
        index_.try_emplace(Key(task.kind, task.node, task.pass, number), waves_.size());
    if (fresh) {
      const Table<DeviceId, int> none(static_cast<std::size_t>(devices_), 0);
      waves_.push_back({LinkUse(model_, devices_), none, none});
    }
    Wave& wave = waves_[place->second];
    bool beyond = false;
    const std::vector<Transfer> transfers = transfers_of(plan_, task);
    for (const Transfer& transfer : transfers) {
      wave.use.add(transfer);
      beyond = beyond || !model_.same_switch(transfer.from, transfer.to);
    }
    if (!transfers.empty()) ++wave.readers[task.device];
    if (beyond) ++wave.beyond_readers[task.device];
    return place->second;
  }

  /// A link is busy until all that the wave sends over it has passed. Of several tasks of a device, which
  /// take turns, each takes an equal part of that, but no less than its own bytes need.
  double seconds_of(const Task& task, const Wave& wave) const {
    double own = 0, own_beyond = 0, most_sent = 0, most_switch_sent = 0;
    for (const Transfer& transfer : transfers_of(plan_, task)) {
      own += transfer.bytes;
      most_sent = std::max(most_sent, wave.use.sent(transfer.from));
      if (model_.same_switch(transfer.from, transfer.to)) continue;
      own_beyond += transfer.bytes;
      most_switch_sent = std::max(most_switch_sent, wave.use.switch_sent(transfer.from));
    }
    if (own == 0) return 0;
    const double shared = model_.shared_bus ? wave.use.all() : most_sent;
    const double link = std::max(own, shared / wave.readers[task.device]);
    double uplink = 0;
    if (own_beyond > 0)
      uplink = std::max(own_beyond, std::max(most_switch_sent, wave.use.switch_received(task.device)) /
                                        wave.beyond_readers[task.device]);
    return seconds(model_, link, uplink);
  }

  const Plan& plan_;
  const DeviceModel& model_;
  const int devices_;
  std::map<Key, std::size_t> index_;
  std::map<std::tuple<TaskKind, int, DeviceId>, int> joined_;  ///< tasks for several layers so far
  std::vector<Wave> waves_;
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
