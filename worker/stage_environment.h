// The environment of a stage process, as schema/stage_contract.h promises it. Pure.
#pragma once

#include <string>
#include <vector>

#include "schema/messages.h"

namespace nightshift {

// "fuse-2" -> "NIGHTSHIFT_INPUT_FUSE_2".
std::string input_variable(const std::string& stage);

// The worker's own variables, over them what the job file gives, over them the contract's.
// Variables of the contract that the worker itself was started with (it may run inside a stage) are
// left out.
std::vector<std::string> stage_environment(const std::vector<std::string>& own,
                                           const AssignAttempt& order, const std::string& folder,
                                           const std::string& temp);

}  // namespace nightshift
