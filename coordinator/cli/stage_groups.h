// The stages of a job as rows to show: a large matrix is one row with its counts. Pure; knows names
// and states; must not know how rows are drawn.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "schema/job_spec.h"
#include "schema/job_view.h"

namespace nightshift::cli {

inline constexpr std::size_t group_shown_max = 8;    // a larger one is one row
inline constexpr std::size_t group_named_max = 8;    // its stages that run or failed

struct StageRow {
  std::string group;                    // empty: one stage
  std::vector<std::size_t> members;     // indexes of stages; of a group: all of it
};

// Each stage once, in the order of their first ones. `all`: every stage is a row of its own.
std::vector<StageRow> stage_rows(const std::vector<std::string_view>& groups, bool all);
std::vector<StageRow> stage_rows(const JobView& view, bool all);

// "3 failed, 2 running, 985 ready, 10 done": what a person wants to know first.
std::string state_counts(const JobView& view, const StageRow& row);
// Of a group: those that run, then those that failed; at most group_named_max.
std::vector<std::size_t> telling_members(const JobView& view, const StageRow& row);

// "baseline, seeds (1000 stages), evaluate": what `check` says.
std::string stage_list_text(const JobSpec& spec, bool all);

}  // namespace nightshift::cli
