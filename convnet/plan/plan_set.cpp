#include "convnet/plan/plan_set.h"

#include <algorithm>
#include <utility>

#include "convnet/base/cores.h"
#include "convnet/base/share_work.h"
#include "convnet/plan/build.h"
#include "convnet/plan/memory.h"
#include "convnet/plan/verify.h"

namespace convnet {

PlanSet::PlanSet(const Graph& graph, const std::vector<MatrixInfo>& matrices, const Target& target,
                 const PlanOptions& options)
    : graph_(graph),
      matrices_(matrices),
      target_(target),
      options_(options),
      net_buffers_(make_net_buffers(graph, matrices, target, options)) {}

PlanSet::PlanSet(const Graph& graph, const PlanSet& like)
    : graph_(graph),
      matrices_(like.matrices_),
      target_(like.target_),
      options_(like.options_),
      net_buffers_(like.net_buffers_) {}

const Plan& PlanSet::plan(Phase phase, std::int64_t images) {
  const std::pair key(phase, images);
  if (const auto cached = plans_.find(key); cached != plans_.end()) return *cached->second;
  std::unique_ptr<Plan> made = make(phase, images);
#ifdef CONVNET_CHECKS
  verify(*made, graph_);
#endif
  return *plans_.emplace(key, std::move(made)).first->second;
}

const Plan& PlanSet::verified(Phase phase, std::int64_t images) {
  if (!plans_.contains({phase, images})) make_verified({{phase, images}});
  return plan(phase, images);
}

void PlanSet::make_verified(const std::vector<std::pair<Phase, std::int64_t>>& wanted) {
  std::vector<std::unique_ptr<Plan>> made(wanted.size());
  share_work(wanted.size(), usable_cores(), [&](std::size_t i) {
    made[i] = make(wanted[i].first, wanted[i].second);
    verify(*made[i], graph_);
  });
  for (std::size_t i = 0; i < wanted.size(); ++i) plans_.insert_or_assign(wanted[i], std::move(made[i]));
}

std::unique_ptr<Plan> PlanSet::make(Phase phase, std::int64_t images) const {
  auto made = std::make_unique<Plan>(draft(phase, images));
  place_buffers(*made, devices());
  return made;
}

Plan PlanSet::draft(Phase phase, std::int64_t images) const {
  return PlanBuilder(graph_, matrices_, target_, options_, net_buffers_, phase, images).build();
}

std::int64_t PlanSet::memory_needed(DeviceId device) const {
  std::int64_t persistent = 0;
  std::int64_t transient = 0;
  for (const auto& [key, plan] : plans_) {
    const DeviceMemoryNeeds& needs = plan->memory[device];
    persistent = needs.persistent;
    transient = std::max(transient, needs.transient);
  }
  return persistent + transient;
}

}  // namespace convnet
