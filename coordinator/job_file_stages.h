// The stages of a job file. Private to job_file*.cpp. Knows the kinds and their parameters; must
// not know how a stage computes.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/job_file_sections.h"
#include "schema/job_spec.h"

namespace nightshift {

// A stage as read, before it is known that what it needs exists.
struct StageDraft {
  StageSpec spec;                  // without needs
  YamlPlace place;                 // of its name
  std::vector<std::pair<std::string, YamlPlace>> needs;
  Evaluation evaluation;           // kinds that measure
};

// In the order of the file. `job` gives the defaults of retry and resources, and the bench shape.
std::vector<StageDraft> read_stages(const YamlMap& map, const JobSpec& job,
                                    const JobFileContext& context);

// Checks needs (unknown names, cycles as their whole path) and gives the stages in an order in
// which needs come first, otherwise as in the file. Empty when something was wrong.
std::vector<StageSpec> order_stages(const std::vector<StageDraft>& drafts, YamlProblems& problems);

// Whether the red lines can be measured by these stages.
void check_measurable(const std::vector<StageDraft>& drafts, const RedLines& lines,
                      YamlPlace place, YamlProblems& problems);

}  // namespace nightshift
