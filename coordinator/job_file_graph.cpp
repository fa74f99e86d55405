#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>

#include "coordinator/job_file_stages.h"
#include "coordinator/yaml_reader.h"

namespace nightshift {
namespace {

// Depth first over needs, with the way from the first stage to this one kept by hand: a chain may
// be as long as a job.
class CycleSearch {
 public:
  CycleSearch(const std::vector<StageDraft>& drafts, const DraftNeeds& needs,
              YamlProblems& problems)
      : drafts_(drafts), needs_(needs), problems_(problems), marks_(drafts.size(), Mark::fresh) {}

  void run() {
    for (std::uint32_t i = 0; i < drafts_.size(); ++i) {
      if (marks_[i] == Mark::fresh) walk(i);
      if (reported_ == reports_max) return;
    }
  }

 private:
  enum class Mark { fresh, open, closed };
  struct Step {
    std::uint32_t at = 0;
    std::size_t next = 0;  // which of its needs comes next
  };
  // A circle in a matrix is one mistake and as many circles as stages.
  static constexpr int reports_max = 10;
  static constexpr std::size_t names_max = 20;

  void walk(std::uint32_t from) {
    enter(from);
    while (!path_.empty()) {
      Step& step = path_.back();
      if (step.next == needs_[step.at].size()) {
        marks_[step.at] = Mark::closed;
        path_.pop_back();
        continue;
      }
      const std::uint32_t need = needs_[step.at][step.next++];
      if (marks_[need] == Mark::open && reported_ < reports_max) report(need);
      if (marks_[need] == Mark::fresh) enter(need);
    }
  }

  void enter(std::uint32_t at) {
    marks_[at] = Mark::open;
    path_.push_back({at, 0});
  }

  void report(std::uint32_t first) {
    ++reported_;
    const auto begin = std::find_if(path_.begin(), path_.end(),
                                    [first](const Step& step) { return step.at == first; });
    const auto length = static_cast<std::size_t>(path_.end() - begin);
    std::string text;
    for (std::size_t i = 0; i < length; ++i) {
      if (length > names_max && i == names_max / 2) {
        const std::size_t left_out = length - names_max;
        text += fmt::format("({} more) -> ", left_out);
        i += left_out;
      }
      text += drafts_[(begin + static_cast<std::ptrdiff_t>(i))->at].spec.name + " -> ";
    }
    text += drafts_[first].spec.name;
    problems_.add(place_of_need(path_.back().at, first),
                  "stages need each other in a circle: " + text,
                  "each needs the next one; take one `needs` away");
  }

  // Where in the file `stage` says that it needs `need`.
  YamlPlace place_of_need(std::uint32_t stage, std::uint32_t need) const {
    for (const auto& [name, place] : drafts_[stage].needs) {
      if (name == drafts_[need].spec.name || name == drafts_[need].title) return place;
    }
    return drafts_[stage].place;
  }

  const std::vector<StageDraft>& drafts_;
  const DraftNeeds& needs_;
  YamlProblems& problems_;
  std::vector<Mark> marks_;
  std::vector<Step> path_;
  int reported_ = 0;
};

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
  const std::string name = "stages." + draft.title;
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

// The model of a checkpoint is the model of what it was made from.
void check_models(const std::vector<StageDraft>& drafts, const DraftNeeds& needs,
                  const JobSpec& job, YamlProblems& problems) {
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (drafts[i].spec.kind == "run") continue;
    const std::string& model = model_path_of(job, drafts[i].spec);
    for (const std::uint32_t need : needs[i]) {
      const std::string& other = model_path_of(job, drafts[need].spec);
      if (model == other) continue;
      problems.add(drafts[i].place,
                   fmt::format("stages.{}: works on the model {}, but needs `{}`, which works on "
                               "{}",
                               drafts[i].title, model, drafts[need].title, other),
                   fmt::format("give both the same `model:`; with an axis `model`, both need the "
                               "axis"));
      return;
    }
  }
}

}  // namespace

std::vector<std::uint32_t> order_stages(const std::vector<StageDraft>& drafts,
                                        const DraftNeeds& needs, YamlProblems& problems) {
  const std::size_t count = drafts.size();
  std::vector<std::vector<std::uint32_t>> dependents(count);
  std::vector<std::size_t> missing(count);
  // The first stage of the file whose needs are placed comes next.
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t i = 0; i < count; ++i) {
    missing[i] = needs[i].size();
    if (missing[i] == 0) ready.push(i);
    for (const std::uint32_t need : needs[i]) dependents[need].push_back(i);
  }
  std::vector<std::uint32_t> order;
  order.reserve(count);
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const std::uint32_t dependent : dependents[order.back()]) {
      if (--missing[dependent] == 0) ready.push(dependent);
    }
  }
  if (order.size() == count) return order;
  CycleSearch(drafts, needs, problems).run();
  return {};
}

void check_measurable(const std::vector<StageDraft>& drafts, const DraftNeeds& needs,
                      const std::vector<std::uint32_t>& order, const JobSpec& job, YamlPlace place,
                      YamlProblems& problems) {
  check_models(drafts, needs, job, problems);
  const RedLines& lines = job.red_lines;
  if (!has_any(lines)) {
    problems.warn(place, "no red_lines: whatever comes out is accepted");
    return;
  }
  std::vector<char> from_baseline(drafts.size(), 0);
  for (const std::uint32_t at : order) {
    from_baseline[at] = drafts[at].spec.kind == "baseline";
    for (const std::uint32_t need : needs[at]) from_baseline[at] |= from_baseline[need];
  }
  bool evaluated = false;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (drafts[i].spec.kind != "evaluate") continue;
    evaluated = true;
    check_accuracy_groups(drafts[i], lines, problems);
    if (compares_with_baseline(lines) && !from_baseline[i]) {
      problems.add(drafts[i].place,
                   fmt::format("stages.{}: red lines compare with the baseline, but no stage of "
                               "kind baseline comes before it",
                               drafts[i].title),
                   "add baseline: {} and let the first stage need it");
    }
  }
  if (!evaluated) {
    problems.warn(place, "red_lines are set, but no stage of kind evaluate compares with them");
  }
}

}  // namespace nightshift
