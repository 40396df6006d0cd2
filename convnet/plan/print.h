// The tables of `convnet plan`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "convnet/plan/plan_set.h"

namespace convnet {

/// Per layer: shape, parameters, FLOPs and bytes of a training step; per device: memory in training and
/// tests. The JSON form of everything `convnet plan` prints.
nlohmann::json plan_json(const PlanSet& set, const Plan& train, const Plan& test, bool tasks);

/// The same as text, from the JSON.
std::string plan_text(const nlohmann::json& plan);

/// "61.1 M", "1.43 G"
std::string scaled(double value);

}  // namespace convnet
