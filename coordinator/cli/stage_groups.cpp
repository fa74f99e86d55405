#include "coordinator/cli/stage_groups.h"

#include <fmt/format.h>

#include <array>
#include <map>

#include "coordinator/terminal.h"

namespace nightshift::cli {

namespace {

constexpr std::array states_by_interest = {
    StageState::failed, StageState::running,   StageState::assigned, StageState::ready,
    StageState::waiting, StageState::blocked, StageState::cancelled, StageState::done,
    StageState::reused};

}  // namespace

std::vector<StageRow> stage_rows(const std::vector<std::string_view>& groups, bool all) {
  std::map<std::string_view, std::size_t> sizes;
  for (const std::string_view group : groups) ++sizes[group];
  std::vector<StageRow> rows;
  std::map<std::string_view, std::size_t> row_of;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const bool is_collapsed = !all && !groups[i].empty() && sizes[groups[i]] > group_shown_max;
    if (!is_collapsed) {
      rows.push_back({"", {i}});
      continue;
    }
    const auto [known, is_new] = row_of.try_emplace(groups[i], rows.size());
    if (is_new) rows.push_back({std::string(groups[i]), {}});
    rows[known->second].members.push_back(i);
  }
  return rows;
}

std::vector<StageRow> stage_rows(const JobView& view, bool all) {
  std::vector<std::string_view> groups;
  for (const StageView& stage : view.stages) groups.emplace_back(stage.group);
  return stage_rows(groups, all);
}

std::string state_counts(const JobView& view, const StageRow& row) {
  std::map<StageState, std::size_t> counts;
  for (const std::size_t member : row.members) ++counts[view.stages[member].state];
  std::string text;
  for (const StageState state : states_by_interest) {
    const auto count = counts.find(state);
    if (count == counts.end()) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count->second, to_string(state));
  }
  return text;
}

std::vector<std::size_t> telling_members(const JobView& view, const StageRow& row) {
  std::vector<std::size_t> telling;
  for (const bool wants_active : {true, false}) {
    for (const std::size_t member : row.members) {
      const StageState state = view.stages[member].state;
      if (wants_active ? !is_active(state) : state != StageState::failed) continue;
      if (telling.size() == group_named_max) return telling;
      telling.push_back(member);
    }
  }
  return telling;
}

std::string stage_list_text(const JobSpec& spec, bool all) {
  std::vector<std::string_view> groups;
  for (const StageSpec& stage : spec.stages) groups.emplace_back(stage.group);
  std::string text;
  for (const StageRow& row : stage_rows(groups, all)) {
    if (!text.empty()) text += ", ";
    text += row.group.empty()
                ? printable(spec.stages[row.members[0]].name)
                : fmt::format("{} ({} stages)", printable(row.group), row.members.size());
  }
  return text;
}

}  // namespace nightshift::cli
