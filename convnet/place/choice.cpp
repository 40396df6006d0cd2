#include "convnet/place/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace convnet {

std::vector<DeviceId> Spread::devices() const {
  std::vector<DeviceId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(DeviceId(first + i * stride));
  return ids;
}

std::vector<DeviceId> Spread::devices_near(const std::vector<int>& fewer) const {
  const std::vector<DeviceId> all = devices();
  std::vector<DeviceId> ids;
  for (int replica = 0; replica < replicas(); ++replica) {
    int place = 0, run = replicas(), rest = replica, nearest = 1;
    for (const int other : fewer) {
      if (other % nearest != 0 || replicas() % other != 0) continue;
      const int turns = other / std::exchange(nearest, other);
      run /= turns;
      place += rest % turns * run;
      rest /= turns;
    }
    const auto first_part = all.begin() + std::ptrdiff_t{place + rest} * parts;
    ids.insert(ids.end(), first_part, first_part + parts);
  }
  return ids;
}

std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) all.push_back(d);
  }
  return all;
}

std::vector<Spread> spreads_of(const PlacementUnit& unit, int devices, int of_host) {
  std::vector<Spread> spreads;
  for (const int count : divisors(devices)) {
    const int last = unit.beside_another ? devices - count : 0;
    for (int first = 0; first <= last; first += count) spreads.push_back({count, first, 1, 1});
    if (of_host < devices && count > 1 && count < devices) spreads.push_back({count, 0, devices / count, 1});
    for (const int parts : divisors(unit.divisible ? count : 1)) {
      if (parts > 1 && (parts == count || of_host % parts == 0)) spreads.push_back({count, 0, 1, parts});
    }
  }
  return spreads;
}

int most_replicas(const Choice& choice) {
  int most = 1;
  for (const Spread& s : choice) most = std::max(most, s.replicas());
  return most;
}

int devices_of(const Choice& choice) {
  int devices = 1;
  for (const Spread& s : choice) devices = std::max(devices, s.first + (s.count - 1) * s.stride + 1);
  return devices;
}

bool allowed(const PlacementUnits& units, const Choice& choice) {
  const int most = most_replicas(choice);
  int fewest = most;
  for (const Spread& s : choice) fewest = std::min(fewest, s.replicas());
  std::vector<int> of_group(choice.size(), 0);
  for (std::size_t u = 0; u < choice.size(); ++u) {
    const int replicas = choice[u].replicas();
    if (most % replicas != 0 || replicas % fewest != 0) return false;
    if (units.units[u].sees_minibatch && replicas != most) return false;
    int& equal = of_group.at(static_cast<std::size_t>(units.units[u].group));
    if (equal != 0 && equal != replicas) return false;
    equal = replicas;
  }
  return std::all_of(units.edges.begin(), units.edges.end(), [&](const PlacementEdge& edge) {
    const auto [few, many] = std::minmax({choice[edge.from].replicas(), choice[edge.to].replicas()});
    return many % few == 0;
  });
}

Placement placement_of(const Graph& graph, const PlacementUnits& units, const Choice& choice) {
  int devices = 1;
  for (const Spread& s : choice) devices = std::max(devices, s.first + s.count * s.stride);
  std::set<int> counts;
  for (const Spread& s : choice) {
    if (s.covers(devices)) counts.insert(s.replicas());
  }
  const std::vector<int> fewer(counts.begin(), counts.end());
  Placement placement;
  for (std::size_t u = 0; u < choice.size(); ++u) {
    const Spread& spread = choice[u];
    for (const NodeId id : units.units[u].nodes) {
      const Node& node = graph.nodes[id];
      if (node.implicit) continue;
      LayerPlace place{spread.covers(devices) ? spread.devices_near(fewer) : spread.devices(), spread.parts};
      if (spread.divided()) {
        const Division division = node.layer->facts.division;
        const bool above_parts = std::all_of(node.inputs.begin(), node.inputs.end(), [&](NodeId input) {
          const auto below = placement.find(graph.nodes[input].section);
          return below != placement.end() && below->second == place;
        });
        // A layer with an input that is not divided alike runs where the first parts do.
        if (division != Division::outputs && !(division == Division::as_inputs && above_parts))
          place = {place.replicas(), 1};
      }
      placement[node.section] = std::move(place);
    }
  }
  return placement;
}

namespace {

std::string text_of(const Spread& s) {
  if (s.divided() && s.replicas() > 1)
    return fmt::format("in {} replicas, each divided over {}", s.replicas(), s.parts);
  if (s.divided()) return fmt::format("divided over {}", s.count);
  std::string text = fmt::format("on {}", s.count);
  if (s.stride > 1)
    text += fmt::format(", every {}{}", s.stride, s.stride == 2 ? "nd" : s.stride == 3 ? "rd" : "th");
  if (s.first > 0) text += fmt::format(" from {}", s.first);
  return text;
}

}  // namespace

std::string describe(const Graph& graph, const PlacementUnits& units, const Choice& choice) {
  if (std::all_of(choice.begin(), choice.end(), [&](const Spread& s) { return s == choice[0]; }))
    return "all " + text_of(choice[0]);
  const auto first_layer = [&](std::size_t u) {
    for (const NodeId id : units.units[u].nodes) {
      if (graph.nodes[id].role != LayerRole::data) return graph.nodes[id].section;
    }
    return graph.nodes[units.units[u].nodes[0]].section;
  };
  std::string text;
  for (std::size_t u = 0; u < choice.size();) {
    std::size_t end = u + 1;
    while (end < choice.size() && choice[end] == choice[u]) ++end;
    const std::string from = first_layer(u), to = graph.nodes[units.units[end - 1].nodes.back()].section;
    text += (text.empty() ? "" : "; ") + from + (from == to ? "" : " to " + to) + " " + text_of(choice[u]);
    u = end;
  }
  return text;
}

}  // namespace convnet
