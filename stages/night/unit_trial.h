// Tries formats on the units of a plan: each alone, on the same inputs as the 16-bit model. Knows
// engines and plan units; must not know files.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "schema/result.h"
#include "stages/engine/engine.h"
#include "stages/engine/weights.h"
#include "stages/night/calibration.h"
#include "stages/night/plan_units.h"

namespace nightshift {

// How the inputs of a unit's int8 products are quantized: by op index, in falling order of
// boldness. `name` is for people: "static clip", "per token, clipped", "per token".
struct ActivationChoice {
  std::string name;
  std::map<int, kernels::ActivationQuant> by_op;
};

struct UnitVerdict {
  std::string format;           // "int8" or, put back, "bf16"
  ActivationChoice activation;  // int8
  double deviation = 0;         // of what was chosen (int8) or last tried (bf16)
  std::vector<std::pair<std::string, double>> tried;  // choice -> deviation
};

// The choices for one unit: `mode` "static" starts with a fixed scale from calibration, "dynamic"
// with one scale a token that calibration's clip bounds; both end with the plain scale a token.
std::vector<ActivationChoice> activation_choices(const Graph& graph, const PlanUnit& unit,
                                                 const Calibration& calibration,
                                                 const std::string& mode);

// Runs the probe samples once through the 16-bit model (an engine with keep_values and no fusion)
// and, behind each int8 unit, once more through that unit with int8 weights for each choice.
// deviation = |y_int8 - y| / |y| (Euclidean) over the unit's outputs of all probe tokens. The first
// choice at or below `limit` is taken; a unit without one goes back to 16 bits.
Result<std::map<std::string, UnitVerdict>> try_units(
    Engine& engine, const Weights& weights, const std::vector<PlanUnit>& units,
    const Calibration& calibration, const std::string& mode, double limit,
    const std::vector<std::vector<std::int32_t>>& probe,
    const std::function<void(std::int64_t done, std::int64_t of)>& progress);

}  // namespace nightshift
