// The tables of `convnet plan`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "convnet/plan/plan_set.h"

namespace convnet {

/// Returns everything that `convnet plan` prints as JSON: for each layer shape, parameters, FLOPs and bytes
/// of a training step, for each device memory in training and tests, and with `tasks` every task.
nlohmann::json plan_json(const PlanSet& set, const Plan& train, const Plan& test, bool tasks);

/// Returns the text of the JSON of plan_json().
std::string plan_text(const nlohmann::json& plan);

/// Returns a number with a unit prefix: "61.1 M", "1.43 G".
std::string scaled(double value);

}  // namespace convnet
