#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "coordinator/job_file_stages.h"
#include "coordinator/yaml_reader.h"
#include "schema/text.h"

namespace nightshift {
namespace {

using Index = std::map<std::string, std::size_t>;

Index index_of(const std::vector<StageDraft>& drafts) {
  Index index;
  for (std::size_t i = 0; i < drafts.size(); ++i) index.emplace(drafts[i].spec.name, i);
  return index;
}

bool check_names(const std::vector<StageDraft>& drafts, const Index& index,
                 YamlProblems& problems) {
  std::vector<std::string> names;
  for (const StageDraft& draft : drafts) names.push_back(draft.spec.name);
  bool fine = true;
  for (const StageDraft& draft : drafts) {
    for (const auto& [needed, place] : draft.needs) {
      if (index.contains(needed)) continue;
      fine = false;
      problems.add(place, fmt::format("stages.{}.needs: there is no stage `{}`", draft.spec.name,
                                      clip_utf8(needed, 60)),
                   suggestion(needed, names));
    }
  }
  return fine;
}

// Depth first over needs; `path` is the way from the first stage to this one.
class CycleSearch {
 public:
  CycleSearch(const std::vector<StageDraft>& drafts, const Index& index, YamlProblems& problems)
      : drafts_(drafts), index_(index), problems_(problems), marks_(drafts.size(), Mark::fresh) {}

  bool none() {
    for (std::size_t i = 0; i < drafts_.size(); ++i) visit(i);
    return none_;
  }

 private:
  enum class Mark { fresh, open, closed };

  void visit(std::size_t at) {
    if (marks_[at] != Mark::fresh) return;
    marks_[at] = Mark::open;
    path_.push_back(at);
    for (const auto& [needed, place] : drafts_[at].needs) {
      const auto it = index_.find(needed);
      if (it == index_.end()) continue;
      if (marks_[it->second] == Mark::open) report(it->second, place);
      visit(it->second);
    }
    path_.pop_back();
    marks_[at] = Mark::closed;
  }

  void report(std::size_t first, YamlPlace place) {
    none_ = false;
    std::string text;
    const auto begin = std::find(path_.begin(), path_.end(), first);
    for (auto it = begin; it != path_.end(); ++it) text += drafts_[*it].spec.name + " -> ";
    text += drafts_[first].spec.name;
    problems_.add(place, "stages need each other in a circle: " + text,
                  "each needs the next one; take one `needs` away");
  }

  const std::vector<StageDraft>& drafts_;
  const Index& index_;
  YamlProblems& problems_;
  std::vector<Mark> marks_;
  std::vector<std::size_t> path_;
  bool none_ = true;
};

// Whether `at` or anything that it needs is of this kind.
bool comes_from(const std::vector<StageDraft>& drafts, const Index& index, std::size_t at,
                const std::string& kind, std::set<std::size_t>& seen) {
  if (!seen.insert(at).second) return false;
  if (drafts[at].spec.kind == kind) return true;
  for (const auto& [needed, place] : drafts[at].needs) {
    const auto it = index.find(needed);
    if (it != index.end() && comes_from(drafts, index, it->second, kind, seen)) return true;
  }
  return false;
}

bool compares_with_baseline(const RedLines& lines) {
  for (const auto* limit : {&lines.throughput_tok_s, &lines.ttft_ms, &lines.tpot_ms,
                            &lines.peak_memory_bytes}) {
    if (*limit && (*limit)->relative) return true;
  }
  return !lines.accuracy_drop.empty();
}

bool has_any(const RedLines& lines) {
  return lines.throughput_tok_s || lines.ttft_ms || lines.tpot_ms || lines.peak_memory_bytes ||
         lines.token_match || !lines.accuracy_drop.empty();
}

void check_accuracy_groups(const StageDraft& draft, const RedLines& lines,
                           YamlProblems& problems) {
  if (lines.accuracy_drop.empty()) return;
  const std::string name = "stages." + draft.spec.name;
  if (draft.evaluation.tasks.empty()) {
    problems.add(draft.place, name + ": red_lines.accuracy_drop is set, but there are no tasks",
                 "add evaluation: {tasks: FILE, groups: {...}}");
    return;
  }
  for (const auto& [line, drop] : lines.accuracy_drop) {
    const auto it = draft.evaluation.groups.find(line);
    if (it != draft.evaluation.groups.end() && !it->second.empty()) continue;
    std::vector<std::string> names;
    for (const auto& [group, members] : draft.evaluation.groups) names.push_back(group);
    problems.add(draft.place,
                 fmt::format("{}: red_lines.accuracy_drop names `{}`, but groups does not", name,
                             line),
                 suggestion(line, names));
  }
}

}  // namespace

std::vector<StageSpec> order_stages(const std::vector<StageDraft>& drafts,
                                    YamlProblems& problems) {
  const Index index = index_of(drafts);
  const bool named = check_names(drafts, index, problems);
  if (!CycleSearch(drafts, index, problems).none() || !named) return {};
  std::vector<StageSpec> ordered;
  std::set<std::string> placed;
  // At each step the first stage of the file whose needs are placed.
  while (ordered.size() < drafts.size()) {
    for (const StageDraft& draft : drafts) {
      if (placed.contains(draft.spec.name)) continue;
      const bool ready = std::all_of(draft.needs.begin(), draft.needs.end(), [&](const auto& need) {
        return placed.contains(need.first);
      });
      if (!ready) continue;
      StageSpec spec = draft.spec;
      for (const auto& [needed, place] : draft.needs) spec.needs.push_back(needed);
      placed.insert(spec.name);
      ordered.push_back(std::move(spec));
      break;
    }
  }
  return ordered;
}

void check_measurable(const std::vector<StageDraft>& drafts, const RedLines& lines,
                      YamlPlace place, YamlProblems& problems) {
  if (!has_any(lines)) {
    problems.warn(place, "no red_lines: whatever comes out is accepted");
    return;
  }
  const Index index = index_of(drafts);
  bool evaluated = false;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (drafts[i].spec.kind != "evaluate") continue;
    evaluated = true;
    check_accuracy_groups(drafts[i], lines, problems);
    std::set<std::size_t> seen;
    if (compares_with_baseline(lines) && !comes_from(drafts, index, i, "baseline", seen)) {
      problems.add(drafts[i].place,
                   fmt::format("stages.{}: red lines compare with the baseline, but no stage of "
                               "kind baseline comes before it",
                               drafts[i].spec.name),
                   "add baseline: {} and let the first stage need it");
    }
  }
  if (!evaluated) {
    problems.warn(place, "red_lines are set, but no stage of kind evaluate compares with them");
  }
}

}  // namespace nightshift
