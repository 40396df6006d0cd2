#include "convnet/plan/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "convnet/plan/links.h"

namespace convnet {
namespace {

using nlohmann::json;

/// The time and the transfers that a task takes on a machine.
struct TaskNeeds {
  double own = 0;       ///< seconds of computing, of its own memory, and of the host's memory
  double overhead = 0;  ///< seconds after that
  double latency = 0;   ///< seconds before the first byte of another device arrives
  std::vector<Transfer> transfers = {};
};

TaskNeeds needs_of(const Plan& plan, const Task& task, const DeviceModel& model, Precision precision) {
  TaskNeeds needs;
  double host = 0, remote = 0;
  for (const auto& [from, fetched] : bytes_fetched(plan, task)) {
    const auto bytes = static_cast<double>(fetched);
    if (!from.exists()) {
      host = bytes;
    } else if (bytes > 0) {
      remote += bytes;
      needs.latency = std::max(needs.latency, model.latency(from, task.device));
      needs.transfers.push_back({task.device, from, bytes});
    }
  }
  const double own_bytes = std::max(0.0, static_cast<double>(task.bytes) - host - remote);
  needs.own =
      std::max({task.flops / (model.flops.of(precision) * model.efficiency.of(precision)),
                own_bytes / (model.memory_bandwidth * model.memory_efficiency), host / model.host_bandwidth});
  needs.overhead = model.task_overhead;
  return needs;
}

/// Throws std::logic_error if a task has no time, or waits for one that does not come before it.
void check(const Plan& plan, const Table<TaskId, TaskNeeds>& needs) {
  if (needs.size() != plan.tasks.size())
    throw std::logic_error("simulation: the plan has another number of tasks");
  for (const TaskId t : plan.tasks.ids()) {
    if (!(needs[t].own >= 0) || !std::isfinite(needs[t].own))
      throw std::logic_error("simulation: task " + std::to_string(t.value()) + " has no time");
    for (const TaskId after : plan.tasks[t].after) {
      if (!after.exists() || after >= t)
        throw std::logic_error("simulation: task " + std::to_string(t.value()) + " waits for task " +
                               std::to_string(after.value()) + ", which does not come before it");
    }
  }
}

/// Returns whether streams begin messages while earlier ones go on, and end them in order, as those of CPU
/// devices do (Queue::start()).
bool begins_messages_together(const Plan& plan) { return plan.target == "cpu"; }

/// Runs one task at a time: a stream, or a device whose streams take turns; or several messages.
struct Unit {
  std::vector<std::vector<TaskId>> queues;  ///< the most urgent queue first
  std::vector<std::size_t> next;            ///< of each queue
  bool busy = false;
  bool together = false;  ///< whether it begins messages while earlier ones go on
  std::size_t ended = 0;  ///< the number of those that have ended
};

class EventSimulation {
 public:
  EventSimulation(const Plan& plan, const Table<TaskId, TaskNeeds>& needs, const Links& links,
                  bool concurrent_streams)
      : plan_(plan),
        needs_(needs),
        traffic_(links),
        times_(plan.tasks.size()),
        fetching_(plan.tasks.size()),
        is_done_(plan.tasks.size()) {
    make_units(concurrent_streams);
    missing_.resize(plan.tasks.size());
    users_.resize(plan.tasks.size());
    for (const TaskId t : plan.tasks.ids()) {
      const std::vector<TaskId> waits_for = causes(plan.tasks[t]);
      missing_[t] = waits_for.size();
      for (const TaskId earlier : waits_for) users_[earlier].push_back(t);
    }
  }

  TaskTimes run() {
    start_what_can(0);
    while (true) {
      const double event = events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().time;
      const double now = std::min(event, traffic_.next_end());
      if (!std::isfinite(now)) break;
      // Handles everything that happens now before any task starts, so that the choice of a stream does not
      // depend on the order in which tasks end.
      while (!events_.empty() && events_.top().time <= now) {
        const Event next = events_.top();
        events_.pop();
        if (next.ends)
          finish(next.task, now);
        else
          start_transfers(next.task, now);
      }
      while (traffic_.next_end() <= now) end_transfer(now);
      start_what_can(now);
    }
    return std::move(times_);
  }

 private:
  void make_units(bool concurrent_streams) {
    units_.resize(static_cast<std::size_t>(device_count(plan_)) * kStreams);
    unit_of_.resize(plan_.tasks.size());
    for (Unit& unit : units_) {
      unit.queues.resize(kWorkStreams);
      unit.next.resize(unit.queues.size(), 0);
    }
    for (const TaskId t : plan_.tasks.ids()) {
      const Task& task = plan_.tasks[t];
      const auto rank = static_cast<std::size_t>(
          std::find(kStreamOrder.begin(), kStreamOrder.end(), task.stream) - kStreamOrder.begin());
      const bool takes_turns = !concurrent_streams && !is_message(task.kind);
      const std::size_t own = is_message(task.kind) ? static_cast<std::size_t>(task.stream) : rank;
      unit_of_[t] = task.device.index() * kStreams + (takes_turns ? 0 : own);
      units_[unit_of_[t]].queues[takes_turns ? rank : 0].push_back(t);
      units_[unit_of_[t]].together = is_message(task.kind) && begins_messages_together(plan_);
    }
  }

  void start_what_can(double now) {
    for (Unit& unit : units_) {
      for (std::size_t q = 0; q < unit.queues.size() && !unit.busy; ++q) {
        while (!unit.busy && unit.next[q] < unit.queues[q].size()) {
          const TaskId t = unit.queues[q][unit.next[q]];
          if (missing_[t] > 0) break;
          ++unit.next[q];
          unit.busy = !unit.together;
          start(t, now);
        }
      }
    }
  }

  void start(TaskId task, double now) {
    const TaskNeeds& needs = needs_[task];
    times_[task] = {now, now + needs.own + needs.overhead};
    fetching_[task] = needs.transfers.size();
    const bool fetches = fetching_[task] > 0;
    events_.push({fetches ? now + needs.latency : times_[task].end, task, !fetches});
  }

  void start_transfers(TaskId task, double now) {
    for (const Transfer& transfer : needs_[task].transfers) {
      const std::size_t number = traffic_.start(transfer, now);
      if (number >= task_of_.size()) task_of_.resize(number + 1);
      task_of_[number] = task;
    }
  }

  void end_transfer(double now) {
    const TaskId task = task_of_[traffic_.end_next()];
    if (--fetching_[task] > 0) return;
    times_[task].end = std::max(times_[task].end, now + needs_[task].overhead);
    events_.push({times_[task].end, task, true});
  }

  void finish(TaskId task, double now) {
    Unit& unit = units_[unit_of_[task]];
    if (!unit.together) {
      unit.busy = false;
      release_users(task);
      return;
    }
    is_done_[task] = true;
    const std::vector<TaskId>& messages = unit.queues[0];
    for (; unit.ended < messages.size() && is_done_[messages[unit.ended]]; ++unit.ended) {
      times_[messages[unit.ended]].end = now;
      release_users(messages[unit.ended]);
    }
  }
  void release_users(TaskId task) {
    for (const TaskId user : users_[task]) --missing_[user];
  }

  /// A task ends, or its first byte from another device arrives.
  struct Event {
    double time;
    TaskId task;
    bool ends;
    bool operator>(const Event& other) const {
      return std::pair(time, task) > std::pair(other.time, other.task);
    }
  };

  const Plan& plan_;
  const Table<TaskId, TaskNeeds>& needs_;
  LinkTraffic traffic_;
  TaskTimes times_;
  std::vector<Unit> units_;
  Table<TaskId, std::size_t> unit_of_;
  Table<TaskId, std::size_t> missing_;        ///< how many of its `after` are not done
  Table<TaskId, std::vector<TaskId>> users_;  ///< who waits for it
  Table<TaskId, std::size_t> fetching_;       ///< how many of its transfers have not ended
  Table<TaskId, char> is_done_;               ///< whether a message is done, in whatever order
  std::vector<TaskId> task_of_;               ///< by the number of a transfer
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

Simulation run(const Plan& plan, const Table<TaskId, TaskNeeds>& needs, const DeviceModel& model,
               bool concurrent_streams) {
  check(plan, needs);
  const Links links(model, device_count(plan));
  return analyse(plan, EventSimulation(plan, needs, links, concurrent_streams).run(), concurrent_streams);
}

/// Seconds in which at least one of the intervals runs.
double covered(std::vector<TaskTime> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const TaskTime& a, const TaskTime& b) { return a.begin < b.begin; });
  double sum = 0;
  double end = 0;
  for (const TaskTime& time : intervals) {
    sum += std::max(0.0, time.end - std::max(time.begin, end));
    end = std::max(end, time.end);
  }
  return sum;
}

}  // namespace

Table<DeviceId, DeviceShare> device_shares(const Plan& plan, const TaskTimes& times) {
  struct Work {
    std::vector<TaskTime> all, compute, communication;
  };
  Table<DeviceId, Work> work(static_cast<std::size_t>(device_count(plan)));
  for (const TaskId t : times.ids()) {
    Work& of = work[plan.tasks[t].device];
    of.all.push_back(times[t]);
    (communicates(plan.tasks[t].kind) ? of.communication : of.compute).push_back(times[t]);
  }
  Table<DeviceId, DeviceShare> shares;
  for (Work& of : work)
    shares.push_back(
        {covered(std::move(of.all)), covered(std::move(of.compute)), covered(std::move(of.communication))});
  return shares;
}

namespace {

/// By task: the one that ran before it on the same stream, or device, if any; none if it did not wait for
/// that.
Table<TaskId, TaskId> previous_tasks(const Plan& plan, const TaskTimes& times, bool concurrent_streams) {
  std::vector<TaskId> order(times.ids().begin(), times.ids().end());
  std::sort(order.begin(), order.end(), [&](TaskId a, TaskId b) {
    const TaskTime& x = times[a];
    const TaskTime& y = times[b];
    return std::tuple(x.begin, x.end, a) < std::tuple(y.begin, y.end, b);
  });
  Table<TaskId, TaskId> previous(times.size());
  std::map<std::pair<DeviceId, Stream>, TaskId> last;
  for (const TaskId t : order) {
    const Task& task = plan.tasks[t];
    const bool message = is_message(task.kind);
    if (message && begins_messages_together(plan)) continue;
    TaskId& row = last[{task.device, concurrent_streams || message ? task.stream : Stream::compute}];
    previous[t] = std::exchange(row, t);
  }
  return previous;
}

/// Finds the critical path: from the task that ends last backwards, through the tasks that each one waited
/// for.
std::vector<PathStep> critical_path(const Plan& plan, const TaskTimes& times, bool concurrent_streams) {
  if (times.empty()) return {};
  const Table<TaskId, TaskId> previous = previous_tasks(plan, times, concurrent_streams);
  const auto end = [&](TaskId t) { return times[t].end; };
  TaskId task(0);
  for (const TaskId t : times.ids()) {
    if (end(t) > end(task)) task = t;
  }
  std::vector<PathStep> path;
  // Measured times may contradict each other: no path is longer than the plan.
  while (task.exists() && path.size() < times.size()) {
    TaskId cause = previous[task];
    for (const TaskId after : causes(plan.tasks[task])) {
      if (!cause.exists() || end(after) > end(cause)) cause = after;
    }
    path.push_back({task, std::max(0.0, times[task].begin - (cause.exists() ? end(cause) : 0))});
    task = cause;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

json path_json(const Simulation& s, const Plan& plan, const Graph& graph) {
  double compute = 0;
  double communication = 0;
  double waiting = 0;
  std::map<std::pair<NodeId, TaskKind>, double> by_layer;
  for (const PathStep& step : s.path) {
    const Task& task = plan.tasks[step.task];
    const TaskTime& time = s.times[step.task];
    (communicates(task.kind) ? communication : compute) += time.end - time.begin;
    waiting += step.waited;
    for (const LayerShare& share : layer_shares(plan, task))
      by_layer[{share.node, task.kind}] += share.part * (time.end - time.begin);
  }
  std::vector<std::pair<std::pair<NodeId, TaskKind>, double>> sorted(by_layer.begin(), by_layer.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  json rows = json::array();
  for (const auto& [key, seconds] : sorted) {
    const auto& [node, kind] = key;
    rows.push_back({{"layer", node.exists() ? graph.nodes[node].name : ""},
                    {"kind", to_string(kind)},
                    {"seconds", seconds}});
  }
  return {{"compute_seconds", compute},
          {"communication_seconds", communication},
          {"waiting_seconds", waiting},
          {"tasks", s.path.size()},
          {"rows", rows}};
}

/// "93.1%", or "90.2 to 93.1%" where devices differ.
std::string share_range(const json& devices, const char* key) {
  double least = 1;
  double most = 0;
  for (const json& d : devices) {
    least = std::min(least, d[key].get<double>());
    most = std::max(most, d[key].get<double>());
  }
  if (most - least < 0.0005) return fmt::format("{:.1f}%", 100 * most);
  return fmt::format("{:.1f} to {:.1f}%", 100 * least, 100 * most);
}

std::string device_line(const std::string& who, const json& devices) {
  return fmt::format("{}: busy {} (compute {}, communication {})\n", who, share_range(devices, "busy"),
                     share_range(devices, "compute"), share_range(devices, "communication"));
}

}  // namespace

Simulation simulate(const Plan& plan, const Table<TaskId, double>& seconds, bool concurrent_streams) {
  Table<TaskId, TaskNeeds> needs;
  for (const double own : seconds) needs.push_back({.own = own});
  return run(plan, needs, DeviceModel(), concurrent_streams);
}

Simulation simulate(const Plan& plan, const DeviceModel& model, Precision precision) {
  Table<TaskId, TaskNeeds> needs;
  for (const Task& task : plan.tasks) needs.push_back(needs_of(plan, task, model, precision));
  return run(plan, needs, model, model.concurrent_streams);
}

Simulation analyse(const Plan& plan, TaskTimes times, bool concurrent_streams) {
  if (times.size() != plan.tasks.size())
    throw std::logic_error("simulation: the plan has another number of tasks");
  Simulation s;
  s.times = std::move(times);
  for (const TaskTime& time : s.times) s.step = std::max(s.step, time.end);
  s.devices = device_shares(plan, s.times);
  s.path = critical_path(plan, s.times, concurrent_streams);
  return s;
}

json simulation_json(const Simulation& simulation, const Plan& plan, const Graph& graph,
                     const std::string& model) {
  const double step = simulation.step;
  const auto share = [&](double seconds) { return step > 0 ? seconds / step : 0; };
  json devices = json::array();
  for (const DeviceId d : simulation.devices.ids()) {
    const DeviceShare& of = simulation.devices[d];
    devices.push_back({{"device", d.value()},
                       {"busy", share(of.busy)},
                       {"compute", share(of.compute)},
                       {"communication", share(of.communication)}});
  }
  return {
      {"model", model},        {"step_seconds", step},
      {"images", plan.images}, {"images_per_second", step > 0 ? static_cast<double>(plan.images) / step : 0},
      {"devices", devices},    {"critical_path", path_json(simulation, plan, graph)}};
}

std::string simulation_text(const json& simulation) {
  const double step = simulation["step_seconds"].get<double>();
  const json& devices = simulation["devices"];
  std::string text =
      fmt::format("predicted for {}: {:.3f} ms a step of {} images, {:.1f} images/s\n",
                  simulation["model"].get<std::string>(), 1e3 * step,
                  simulation["images"].get<std::int64_t>(), simulation["images_per_second"].get<double>());
  if (devices.size() <= 8) {
    for (const json& d : devices)
      text += device_line(fmt::format("device {}", d["device"].get<int>()), json::array({d}));
  } else {
    text += device_line(fmt::format("{} devices", devices.size()), devices);
  }
  const json& path = simulation["critical_path"];
  const auto share = [&](const json& seconds) { return step > 0 ? 100 * seconds.get<double>() / step : 0; };
  text += fmt::format("critical path of {} tasks: compute {:.1f}%, communication {:.1f}%, waiting {:.1f}%\n",
                      path["tasks"].get<std::size_t>(), share(path["compute_seconds"]),
                      share(path["communication_seconds"]), share(path["waiting_seconds"]));
  constexpr std::size_t shown = 5;
  for (std::size_t i = 0; i < std::min(shown, path["rows"].size()); ++i) {
    const json& row = path["rows"][i];
    const std::string layer = row["layer"].get<std::string>();
    text += fmt::format("  {:>5.1f}%  {}{}\n", share(row["seconds"]), layer.empty() ? "" : layer + " ",
                        row["kind"].get<std::string>());
  }
  return text;
}

std::string slower_warning(int devices, double seconds, double seconds_alone) {
  if (devices < 2 || seconds <= seconds_alone) return "";
  return fmt::format(
      "warning: {} devices are predicted to be slower than one: {:.3f} ms a step instead of {:.3f} ms; use "
      "fewer devices or a larger minibatch",
      devices, 1e3 * seconds, 1e3 * seconds_alone);
}

}  // namespace convnet
