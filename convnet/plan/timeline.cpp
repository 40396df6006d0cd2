#include "convnet/plan/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "convnet/base/output_file.h"

namespace convnet {
namespace {

using nlohmann::json;

/// The format counts in microseconds; a nanosecond is finer than any clock here.
double microseconds(double seconds) { return std::round(seconds * 1e9) / 1e3; }

int process_id(DeviceId device) { return device.value() + 1; }

/// Returns the number of a row, which no other row has: some readers identify threads by this number alone.
int thread_id(DeviceId device, Stream stream) { return 10 * (device.value() + 1) + static_cast<int>(stream); }

json event(const char* phase, DeviceId device, Stream stream, double seconds) {
  return {{"ph", phase},
          {"pid", process_id(device)},
          {"tid", thread_id(device, stream)},
          {"ts", microseconds(seconds)}};
}

std::string event_name(const Task& task, const Graph& graph) {
  const std::string op = work_name(task);
  return task.node.exists() ? graph.nodes[task.node].name + " " + op : op;
}

json task_event(const Task& task, const Graph& graph, double begin, double end) {
  json e = event("X", task.device, task.stream, begin);
  // Rounding the difference instead could make the next event begin before this one ends.
  e["dur"] = std::max(0.0, std::round((microseconds(end) - microseconds(begin)) * 1e3) / 1e3);
  e["name"] = event_name(task, graph);
  e["cat"] = to_string(task.kind);
  e["args"] = {
      {"pass", task.pass}, {"microbatch", task.microbatch}, {"flops", task.flops}, {"bytes", task.bytes}};
  return e;
}

/// One end of an arrow. It belongs to the task that runs on that row at that moment.
json arrow_event(const char* phase, const Task& task, double seconds, std::int64_t id) {
  json e = event(phase, task.device, task.stream, seconds);
  e["id"] = id;
  e["name"] = "waits for";
  e["cat"] = "dependency";
  if (*phase == 'f') e["bp"] = "e";  // binds to the task around it, not to the next one
  return e;
}

json name_event(const char* what, DeviceId device, Stream stream, const std::string& name) {
  json e = event("M", device, stream, 0);
  e["name"] = what;
  e["args"] = {{"name", name}};
  return e;
}

/// Keeps rows in the order of their numbers.
json sort_event(const char* what, DeviceId device, Stream stream, int index) {
  json e = event("M", device, stream, 0);
  e["name"] = what;
  e["args"] = {{"sort_index", index}};
  return e;
}

/// A layer's name may hold any bytes: what is not UTF-8 is replaced.
std::string text_of(const json& event) { return event.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

void ChromeTrace::add_event(const std::string& json) {
  if (!events_.empty()) events_ += ",\n";
  events_ += json;
}

void ChromeTrace::add_step(const Plan& plan, const Graph& graph, const TaskTimes& times, double start) {
  if (times.size() != plan.tasks.size())
    throw std::logic_error("trace: the step has another number of tasks than the plan");
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    const TaskTime& time = times[t];
    rows_.insert({task.device, task.stream});
    add_event(text_of(task_event(task, graph, start + time.begin, start + time.end)));
    end_ = std::max(end_, start + time.end);
    for (const TaskId after : causes(task)) {
      const Task& earlier = plan.tasks[after];
      const TaskTime& earlier_time = times[after];
      if (earlier.device == task.device) continue;
      ++arrows_;
      // From the middle: at its very end the earlier task is over, and the arrow would belong to none.
      add_event(
          text_of(arrow_event("s", earlier, start + (earlier_time.begin + earlier_time.end) / 2, arrows_)));
      add_event(text_of(arrow_event("f", task, start + time.begin, arrows_)));
    }
  }
}

std::string ChromeTrace::name_events() const {
  std::string text;
  const auto add = [&](const json& e) { text += text_of(e) + ",\n"; };
  for (auto row = rows_.begin(); row != rows_.end(); ++row) {
    const auto& [device, stream] = *row;
    if (row == rows_.begin() || std::prev(row)->first != device) {
      add(name_event("process_name", device, stream,
                     devices_.has(device) ? devices_[device] : fmt::format("device {}", device.value())));
      add(sort_event("process_sort_index", device, stream, device.value()));
    }
    add(name_event("thread_name", device, stream, to_string(stream)));
    add(sort_event("thread_sort_index", device, stream, static_cast<int>(stream)));
  }
  return text;
}

std::string ChromeTrace::str() const {
  std::string names = name_events();
  if (events_.empty()) names.clear();
  return std::string(begins) + ":\"ms\",\"traceEvents\":[\n" + names + events_ + "\n]}\n";
}

void ChromeTrace::write(const std::string& file) const { write_whole_file(file, str()); }

}  // namespace convnet
