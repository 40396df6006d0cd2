#include "convnet/place/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/share_work.h"
#include "convnet/place/estimate.h"
#include "convnet/plan/memory.h"
#include "convnet/plan/plan_set.h"

namespace convnet {
namespace {

/// If the numbers of devices of all possible candidates add up to at most this, all candidates are simulated.
constexpr std::size_t kExhaustiveWork = 2400;
/// An exhaustive search with more candidates than this keeps layers together that cannot be divided.
constexpr std::size_t kExhaustiveCandidates = 20000;
/// More products of spreads are not counted.
constexpr double kCountable = 5e5;
/// Proposals that are simulated, for up to 64 devices; fewer for more, whose plans take longer.
constexpr int kProposals = 50, kFewestProposals = 10, kUsualDevices = 64;
/// The number of changes of the best candidate that are simulated before the search checks whether one is
/// better, how often it simulates more if none is, and how often it continues from a better one.
constexpr std::size_t kChanges = 24;
constexpr int kBatches = 5, kRounds = 20;
/// No candidate is faster than least_seconds(), except by rounding, and because operations may be less
/// efficient on larger tensors.
constexpr double kSurelySlower = 0.95;
/// Candidates whose estimated time is more than this many times the best one's are not simulated. The
/// estimate ignores overlap, but overlap does not hide so much.
constexpr double kHopeless = 3;
/// Plans with more copies of gathered parts take minutes to make: they are simulated only if the estimate,
/// too, is better than the best.
constexpr std::int64_t kManyCopies = 20000;

/// Throws InputError if the files are wrong.
Graph checked_graph(const PlacementQuestion& question, const Placement* placement, int data_devices) {
  Diagnostics diagnostics;
  GraphOptions options = question.graph;
  options.placement = placement;
  options.data_parallel = data_devices > 0;
  if (data_devices > 0) options.devices = data_devices;
  Graph graph =
      build_graph(question.definition, question.parameters, question.matrices, options, diagnostics);
  diagnostics.throw_if_errors();
  return graph;
}

/// A graph and what makes its plans, for the target of `used` devices.
struct Planned {
  Graph graph;
  std::shared_ptr<const Target> target;
  PlanSet plans;

  Planned(const PlacementQuestion& question, const Placement* placement, int data_devices, int used)
      : graph(checked_graph(question, placement, data_devices)),
        target(question.target(used)),
        plans(graph, question.matrices, *target, question.plan) {}
  Planned(const Planned&) = delete;
  Planned& operator=(const Planned&) = delete;
};

class Search {
 public:
  explicit Search(const PlacementQuestion& question) : question_(question) {
    PlacementQuestion plain = question;
    plain.graph.rewrites = false;
    graph_ = checked_graph(plain, nullptr, 1);
    Diagnostics diagnostics;
    for (const Node& node : graph_.nodes) {
      if (node.layer->facts.sees == SeesImages::of_replica && question.graph.devices > 1)
        diagnostics.error(node.where, "layer '" + node.section +
                                          "': with sync=0 each replica has statistics of "
                                          "its own, so the number of devices changes what "
                                          "is learnt; take the key out to search placements");
    }
    diagnostics.throw_if_errors();
    units_ = find_units(graph_);
    for (const PlacementUnit& unit : units_.units) spreads_.push_back(spreads_of(unit, devices(), of_host()));
  }

  PlacementAnswer run() {
    PlacementAnswer answer;
    answer.possible = count_possible();
    if (question_.exhaustive && (answer.possible == 0 || answer.possible > kExhaustiveCandidates)) {
      answer.joined = true;
      join_trunk();
      answer.possible = count_possible();
      if (answer.possible == 0)
        throw InputError("--exhaustive: the net has too many placements to simulate all; search without it");
    }
    answer.exhaustive =
        question_.exhaustive ||
        (answer.possible > 0 && answer.possible * static_cast<std::size_t>(devices()) <= kExhaustiveWork);
    if (!answer.exhaustive || pipelines()) make_estimate();
    add_known();
    if (answer.exhaustive) {
      simulate(all_choices());
    } else {
      propose();
      improve();
    }
    answer.memory = question_.memory;
    answer.simulated = known_.size();
    for (auto& [choice, candidate] : known_) answer.candidates.push_back(std::move(candidate));
    if (file_) answer.candidates.push_back(std::move(*file_));
    std::stable_sort(answer.candidates.begin(), answer.candidates.end(), faster);
    while (answer.candidates[0].fits && !really_fits(answer.candidates[0]))
      std::stable_sort(answer.candidates.begin(), answer.candidates.end(), faster);
    return answer;
  }

 private:
  int devices() const { return question_.graph.devices; }
  bool pipelines() const { return question_.graph.microbatches > 1; }
  /// Returns the number of devices of the first host, or on the first outermost switch if there is one host.
  int of_host() const {
    const Topology& topology = question_.plan.topology;
    const std::vector<SwitchLevel>& switches = question_.links.switches;
    const auto with_first = [&](DeviceId device) {
      return topology.host(device) == 0 &&
             (topology.hosts() > 1 || switches.empty() || switches.back().group(device) == 0);
    };
    int count = 1;
    while (count < devices() && with_first(DeviceId(count))) ++count;
    return count;
  }

  static bool faster(const PlacedCandidate& a, const PlacedCandidate& b) {
    // The placement that uses fewer devices and less memory is better where times are equal.
    return std::tuple(!a.fits, a.seconds, a.devices, a.memory) <
           std::tuple(!b.fits, b.seconds, b.devices, b.memory);
  }

  // Which candidates there are.

  /// Adds the candidates that people would try: one device, data parallelism, the hybrid scheme, and the
  /// file's own.
  void add_known() {
    std::vector<Choice> choices, hybrids;
    for (const int count : divisors(devices())) {
      choices.push_back(Choice(units_.units.size(), Spread{count, 0, 1, 1}));
      names_[choices.back()] = count == 1 ? "one device" : fmt::format("data on {}", count);
      add_hybrid(choices.back(), count, fmt::format("hybrid on {}", count), hybrids);
      if (count > of_host() && count % of_host() == 0)
        add_hybrid(choices.back(), of_host(), fmt::format("hybrid within hosts on {}", count), hybrids);
    }
    simulate(choices);
    // Many devices have many passes, whose plans take long to make.
    if (estimate_) std::erase_if(hybrids, [&](const Choice& choice) { return !promises(choice); });
    simulate(hybrids);
    if (pipelines()) simulate(known_pipelines());
    Diagnostics diagnostics;
    GraphOptions options = question_.graph;
    options.placement = nullptr;
    options.data_parallel = false;
    Placement written = written_placement(question_.definition, question_.parameters, question_.matrices,
                                          options, diagnostics);
    // A file for other devices is no candidate.
    if (diagnostics.has_errors()) return;
    const bool placed = std::any_of(written.begin(), written.end(), [](const auto& layer) {
      return layer.second.gpus != std::vector<DeviceId>{DeviceId(0)};
    });
    if (!placed) return;
    for (const auto& [choice, candidate] : known_) {
      if (candidate.placement == written) return;
    }
    int used = 1;
    for (const auto& [layer, place] : written) {
      for (const DeviceId d : place.gpus) used = std::max(used, d.value() + 1);
    }
    file_ = candidate_of(std::move(written), used, "file", "the gpu= lines of the file");
  }

  /// Adds a choice whose units are divided into `parts` where they can be.
  void add_hybrid(Choice choice, int parts, const std::string& name, std::vector<Choice>& hybrids) {
    const Choice data = choice;
    for (std::size_t u = 0; u < choice.size(); ++u) choice[u].parts = units_.units[u].divisible ? parts : 1;
    if (choice == data || !allowed(units_, choice)) return;
    hybrids.push_back(choice);
    names_[choice] = name;
  }

  /// Returns pipelines on any number of devices: stages of neighbouring units, each with as many replicas,
  /// that take about as long.
  std::vector<Choice> known_pipelines() {
    std::vector<Choice> choices;
    for (const int count : divisors(devices())) {
      for (const int replicas : divisors(count)) {
        const int stages = count / replicas;
        if (stages == 1 || static_cast<std::size_t>(stages) > units_.units.size()) continue;
        Choice choice;
        for (const int stage : estimate_->balanced_runs(stages))
          choice.push_back({replicas, stage * replicas});
        if (!allowed(units_, choice)) continue;
        names_[choice] = fmt::format("pipeline of {} stages", stages) +
                         (replicas > 1 ? fmt::format(" on {} each", replicas) : "");
        choices.push_back(std::move(choice));
      }
    }
    return choices;
  }

  /// Returns how many choices the rules allow; 0 where counting them takes too long.
  std::size_t count_possible() {
    double product = 1;
    for (std::size_t u = 0; u < spreads_.size(); ++u) {
      if (leader_of(u) == u) product *= static_cast<double>(spreads_[u].size());
    }
    return product > kCountable ? 0 : all_choices().size();
  }

  std::vector<Choice> all_choices() const {
    std::vector<Choice> choices;
    Choice choice(units_.units.size());
    add_choices(0, choice, choices);
    return choices;
  }

  void add_choices(std::size_t unit, Choice& choice, std::vector<Choice>& choices) const {
    if (unit == choice.size()) {
      if (allowed(units_, choice)) choices.push_back(choice);
      return;
    }
    for (const Spread& spread : spreads_[unit]) {
      choice[unit] = spread;
      // Units of one group have the same spread as their leader.
      const std::size_t leader = leader_of(unit);
      if (leader != unit && choice[leader] != spread) continue;
      add_choices(unit + 1, choice, choices);
    }
  }

  std::size_t leader_of(std::size_t unit) const { return leaders_.empty() ? unit : leaders_[unit]; }

  /// Keeps units together that cannot be divided.
  void join_trunk() {
    std::optional<std::size_t> first;
    for (std::size_t u = 0; u < units_.units.size(); ++u) {
      if (!units_.units[u].divisible && !first) first = u;
      leaders_.push_back(units_.units[u].divisible ? u : *first);
    }
    for (std::size_t u = 0; u < units_.units.size(); ++u) {
      if (leaders_[u] != u) spreads_[u] = spreads_[leaders_[u]];
    }
  }

  // Searching among many.

  void make_estimate() {
    std::vector<UnitCosts> costs(units_.units.size());
    Table<NodeId, std::size_t> unit_of(graph_.nodes.size(), 0);
    for (std::size_t u = 0; u < units_.units.size(); ++u) {
      for (const NodeId node : units_.units[u].nodes) unit_of[node] = u;
    }
    for (const Node& node : graph_.nodes) {
      for (std::size_t i = 0; i < node.owners.size(); ++i) {
        if (node.owners[i] == WeightOwner{node.id, i} && graph_.learns(node, i))
          costs[unit_of[node.id]].weight_bytes +=
              4.0 * static_cast<double>(element_count(node.layer->weights[i].dims));
      }
    }
    for (const int most : divisors(devices())) add_seconds(most, unit_of, costs);
    std::vector<double> bytes;
    for (const PlacementEdge& edge : units_.edges)
      bytes.push_back(4.0 *
                      static_cast<double>(question_.images * graph_.nodes[edge.node].layer->output.size()));
    estimate_.emplace(units_, std::move(costs), std::move(bytes), question_.links, question_.plan.topology,
                      devices());
  }

  /// Adds the seconds that each unit takes on one device for a microbatch of a `most`-th of the minibatch.
  void add_seconds(int most, const Table<NodeId, std::size_t>& unit_of, std::vector<UnitCosts>& costs) {
    Planned planned(question_, nullptr, 1, most);
    const Plan plan = planned.plans.draft(Phase::train, std::max<std::int64_t>(1, question_.images / most));
    const Simulation simulation = question_.predict(plan, most);
    for (UnitCosts& unit : costs) unit.update_seconds = unit.seconds[most] = 0;
    for (const TaskId t : plan.tasks.ids()) {
      const Task& task = plan.tasks[t];
      const double seconds = simulation.times[t].end - simulation.times[t].begin;
      const bool updates = task.kind == TaskKind::update || communicates(task.kind);
      for (const LayerShare& share : layer_shares(plan, task)) {
        if (!share.node.exists()) continue;
        // Both graphs have the same nodes: rewrites mark them, and nothing is divided.
        UnitCosts& unit = costs[unit_of[share.node]];
        (updates ? unit.update_seconds : unit.seconds[most]) += seconds * share.part;
      }
    }
  }

  void propose() {
    const int wanted = std::clamp(kProposals * kUsualDevices / devices(), kFewestProposals, kProposals);
    std::vector<std::pair<double, Choice>> all;
    for (const int most : divisors(devices())) {
      for (Choice& choice : estimate_->propose(spreads_, most, static_cast<std::size_t>(wanted)))
        all.emplace_back(estimate_->seconds(choice), std::move(choice));
    }
    std::sort(all.begin(), all.end());
    std::vector<Choice> choices;
    for (auto& [seconds, choice] : all) {
      if (choices.size() == static_cast<std::size_t>(wanted)) break;
      if (promises(choice)) choices.push_back(std::move(choice));
    }
    simulate(choices);
  }

  /// Changes one unit, two neighbours or one end of the net of the best candidate at a time, until no change
  /// is faster. Of each kind of change, those with the fastest estimates are simulated first.
  void improve() {
    for (int round = 0; round < kRounds; ++round) {
      const double seconds = best_known()->second.seconds;
      const std::set<std::pair<double, Choice>> changes = changes_of(best_known()->first);
      std::vector<Choice> choices;
      int batches = 0;
      for (auto change = changes.begin(); change != changes.end() && batches < kBatches;) {
        choices.push_back((change++)->second);
        if (choices.size() < kChanges && change != changes.end()) continue;
        simulate(choices);
        choices.clear();
        batches = best_known()->second.seconds < seconds ? kBatches : batches + 1;
      }
      if (!(best_known()->second.seconds < seconds)) return;
    }
  }

  std::set<std::pair<double, Choice>> changes_of(const Choice& best) const {
    const std::size_t units = units_.units.size();
    std::set<std::pair<double, Choice>> changes;
    for (std::size_t u = 0; u < units; ++u) {
      for (const Spread& spread : spreads_[u]) {
        for (const auto& [begin, end] :
             {std::pair(u, u + 1), std::pair(std::size_t{0}, u + 1), std::pair(u, units)}) {
          if (const auto changed = with_spread(best, begin, end, spread)) add_change(*changed, changes);
        }
      }
    }
    for (const PlacementEdge& edge : units_.edges) {
      for (const Spread& below : spreads_[edge.from]) {
        const auto changed = with_spread(best, edge.from, edge.from + 1, below);
        for (const Spread& above : spreads_[edge.to]) {
          if (!changed) break;
          if (const auto both = with_spread(*changed, edge.to, edge.to + 1, above))
            add_change(*both, changes);
        }
      }
    }
    return changes;
  }

  void add_change(const Choice& choice, std::set<std::pair<double, Choice>>& changes) const {
    if (!known_.contains(choice) && allowed(units_, choice) && promises(choice))
      changes.emplace(estimate_->seconds(choice), choice);
  }

  /// Returns the choice whose units from `begin` to `end` have another spread, and the units that must have
  /// as many replicas as the first of them; none where they cannot have it.
  std::optional<Choice> with_spread(const Choice& from, std::size_t begin, std::size_t end,
                                    const Spread& spread) const {
    Choice choice = from;
    for (std::size_t u = begin; u < end; ++u) {
      Spread own = spread;
      if (!units_.units[u].divisible) own.parts = 1;
      if (!contains(spreads_[u], own)) return std::nullopt;
      choice[u] = own;
    }
    for (std::size_t u = 0; u < choice.size(); ++u) {
      const bool partner = units_.units[u].group == units_.units[begin].group &&
                           choice[u].replicas() != choice[begin].replicas();
      if (partner && contains(spreads_[u], spread)) choice[u] = spread;
    }
    return choice;
  }

  static bool contains(const std::vector<Spread>& spreads, const Spread& spread) {
    return std::find(spreads.begin(), spreads.end(), spread) != spreads.end();
  }

  bool promises(const Choice& choice) const {
    const double best = best_known()->second.seconds;
    const double hopeless = copies_of(choice) > kManyCopies ? 1 : kHopeless;
    return estimate_->least_seconds(choice) * kSurelySlower < best &&
           estimate_->seconds(choice) < best * hopeless;
  }

  /// Counts the copies of parts to parts: in each pass every part of a unit reads every part of the one
  /// below.
  static std::int64_t copies_of(const Choice& choice) {
    std::int64_t copies = 0;
    for (const Spread& s : choice) copies += s.divided() ? std::int64_t{s.parts} * s.parts : 0;
    return copies * most_replicas(choice);
  }

  std::map<Choice, PlacedCandidate>::const_iterator best_known() const {
    return std::min_element(known_.begin(), known_.end(),
                            [](const auto& a, const auto& b) { return faster(a.second, b.second); });
  }

  // Planning and simulating.

  PlacedCandidate candidate_of(Placement placement, int used, std::string name,
                               std::string description) const {
    PlacedCandidate candidate;
    candidate.name = std::move(name);
    candidate.description = std::move(description);
    Planned planned(question_, &placement, 0, used);
    const Plan plan = planned.plans.draft(Phase::train, question_.images);
    const Table<DeviceId, std::int64_t> needs = least_memory(plan, planned.plans.devices());
    candidate.memory = *std::max_element(needs.begin(), needs.end());
    candidate.fits = question_.memory.holds(needs);
    for (const Task& task : plan.tasks) {
      if (!communicates(task.kind)) continue;
      for (const auto& [from, bytes] : bytes_fetched(plan, task))
        candidate.moved += from.exists() ? bytes : 0;
    }
    const Simulation simulation = question_.predict(plan, used);
    candidate.seconds = simulation.step;
    candidate.limited_by = limits(simulation_json(simulation, plan, planned.graph, ""));
    candidate.placement = std::move(placement);
    candidate.devices = used;
    return candidate;
  }

  /// Finds the memory that a candidate needs with all places, and returns whether it fits.
  bool really_fits(PlacedCandidate& candidate) const {
    Planned planned(question_, &candidate.placement, 0, candidate.devices);
    planned.plans.plan(Phase::train, question_.images);
    Table<DeviceId, std::int64_t> needs;
    for (const DeviceId device : planned.plans.device_ids())
      needs.push_back(planned.plans.memory_needed(device));
    candidate.memory = *std::max_element(needs.begin(), needs.end());
    candidate.fits = question_.memory.holds(needs);
    return candidate.fits;
  }

  static std::string limits(const nlohmann::json& simulation) {
    const nlohmann::json& path = simulation["critical_path"];
    const double step = simulation["step_seconds"].get<double>();
    const auto share = [&](const nlohmann::json& seconds) {
      return step > 0 ? 100 * seconds.get<double>() / step : 0.0;
    };
    std::string text;
    if (!path["rows"].empty()) {
      const nlohmann::json& row = path["rows"][0];
      const std::string layer = row["layer"].get<std::string>();
      text = fmt::format("{}{} {:.0f}%; ", layer.empty() ? "" : layer + " ", row["kind"].get<std::string>(),
                         share(row["seconds"]));
    }
    return text + fmt::format("communication {:.0f}%, waiting {:.0f}%", share(path["communication_seconds"]),
                              share(path["waiting_seconds"]));
  }

  /// Simulates the choices that are not known yet, several at a time.
  void simulate(const std::vector<Choice>& choices) {
    std::set<Choice> fresh;
    for (const Choice& choice : choices) {
      if (!known_.contains(choice)) fresh.insert(choice);
    }
    const std::vector<Choice> work(fresh.begin(), fresh.end());
    std::vector<PlacedCandidate> results(work.size());
    share_work(work.size(), question_.threads, [&](std::size_t i) {
      const auto name = names_.find(work[i]);
      results[i] = candidate_of(placement_of(graph_, units_, work[i]), devices_of(work[i]),
                                name == names_.end() ? "" : name->second, describe(graph_, units_, work[i]));
    });
    for (std::size_t i = 0; i < work.size(); ++i) known_.emplace(work[i], std::move(results[i]));
  }

  const PlacementQuestion& question_;
  Graph graph_;  ///< of the net on one device
  PlacementUnits units_;
  std::vector<std::vector<Spread>> spreads_;  ///< by unit
  std::vector<std::size_t> leaders_;          ///< by unit: the one whose spread it shares; empty: itself
  std::map<Choice, std::string> names_;
  std::map<Choice, PlacedCandidate> known_;
  std::optional<PlacedCandidate> file_;
  std::optional<PlacementEstimate> estimate_;
};

}  // namespace

PlacementAnswer search_placement(const PlacementQuestion& question) { return Search(question).run(); }

}  // namespace convnet
