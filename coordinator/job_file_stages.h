// The stages of a job file. Private to job_file*.cpp. Knows the kinds and their parameters; must
// not know how a stage computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/job_file_matrix.h"
#include "coordinator/job_file_sections.h"
#include "schema/job_spec.h"

namespace nightshift {

// A stage as read, before it is known that what it needs exists.
struct StageDraft {
  StageSpec spec;                  // without needs
  YamlPlace place;                 // of its name
  std::string title;               // its name in the file: "quantize", also of quantize-int8-1
  Combination axes;                // of a matrix
  std::vector<std::pair<std::string, YamlPlace>> needs;
  Evaluation evaluation;           // kinds that measure
};

// Matrices are expanded; in the order of the file. `job` gives the defaults of retry and resources,
// the model, and the bench shape.
std::vector<StageDraft> read_stages(const YamlMap& map, const JobSpec& job,
                                    const JobFileContext& context);

// Edges by index into the drafts.
using DraftNeeds = std::vector<std::vector<std::uint32_t>>;

// Who needs whom. A need that names a matrix stage means those of its stages that have the same
// values on the axes that both have. None when one does not exist or there are too many.
std::optional<DraftNeeds> resolve_needs(const std::vector<StageDraft>& drafts,
                                        YamlProblems& problems);

// An order in which needs come first, otherwise as in the file. Empty, and each circle reported as
// its path, when there is one.
std::vector<std::uint32_t> order_stages(const std::vector<StageDraft>& drafts,
                                        const DraftNeeds& needs, YamlProblems& problems);

// Whether what the stages need works on the same model, and the red lines can be measured.
void check_measurable(const std::vector<StageDraft>& drafts, const DraftNeeds& needs,
                      const std::vector<std::uint32_t>& order, const JobSpec& job, YamlPlace place,
                      YamlProblems& problems);

}  // namespace nightshift
