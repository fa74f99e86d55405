#include "coordinator/resume.h"

#include <fmt/format.h>

#include <set>

#include "coordinator/content_key.h"

namespace nightshift {

namespace {

using Exists = std::function<bool(const std::string&)>;

class Planner {
 public:
  Planner(const Job& job, const JobSpec& spec, const std::string& from, const Exists& exists)
      : job_(job), spec_(spec), from_(from), exists_(exists), graph_(make_graph(spec)) {
    plan_.keys = stage_keys(spec);
  }

  Result<ResumePlan> run() {
    // What was collected under the disk quota is made again only when something below it runs.
    while (true) {
      NS_TRY(plan_once());
      if (!wants_collected()) return std::move(plan_);
    }
  }

 private:
  Status plan_once() {
    plan_.steps.clear();
    plan_.no_reuse.assign(spec_.stages.size(), false);
    for (std::uint32_t i = 0; i < spec_.stages.size(); ++i) {
      ResumeStep step = judge(i);
      const Stage* stage = stage_of(i);
      if (stage != nullptr && is_active(stage->state)) {
        if (step.rerun) {
          return Error{ErrorCode::conflict,
                       fmt::format("{} runs now and would have to run again: {}", step.stage,
                                   step.reason),
                       to_string(StageRef{job_.id, step.stage}),
                       "cancel it, or wait until it ends"};
        }
        step.reason = fmt::format("runs now (attempt {})", stage->attempt.value);
      }
      plan_.steps.push_back(std::move(step));
    }
    return {};
  }

  bool wants_collected() {
    bool more = false;
    for (std::uint32_t i = 0; i < spec_.stages.size(); ++i) {
      if (!plan_.steps[i].rerun) continue;
      for (const std::uint32_t above : ancestors(graph_, i)) {
        const Stage* stage = stage_of(above);
        if (plan_.steps[above].rerun || stage == nullptr || !is_collected(*stage)) continue;
        more = wanted_.insert(above).second || more;
      }
    }
    return more;
  }

  static bool is_collected(const Stage& stage) {
    return stage.result && stage.result->checkpoint && stage.result->checkpoint->collected;
  }

  const Stage* stage_of(std::uint32_t i) const {
    const auto found = job_.graph.index.find(spec_.stages[i].name);
    return found == job_.graph.index.end() ? nullptr : &job_.stages[found->second];
  }

  ResumeStep judge(std::uint32_t i) {
    const StageSpec& spec = spec_.stages[i];
    const Stage* stage = stage_of(i);
    const bool again_above = inherit_no_reuse(i);
    if (!from_.empty() && spec.name == from_) {
      plan_.no_reuse[i] = true;
      return {spec.name, true, "forced by --from"};
    }
    if (stage == nullptr) return {spec.name, true, "new in the job file"};
    const StageSpec& before = job_.spec.stages[job_.graph.index.at(spec.name)];
    const std::string difference = describe_difference(job_.spec, before, spec_, spec);
    if (stage->key != plan_.keys[i] && !difference.empty()) {
      return {spec.name, true, "parameters changed: " + difference};
    }
    if (stage->state == StageState::failed) return {spec.name, true, failure_of(*stage)};
    if (stage->state == StageState::cancelled) return {spec.name, true, "was cancelled"};
    if (again_above) {
      return {spec.name, true, fmt::format("depends on {}, which runs again", first_rerun_need(i))};
    }
    if (stage->key != plan_.keys[i]) return {spec.name, true, "its content key changed"};
    return judge_unchanged(i, *stage);
  }

  ResumeStep judge_unchanged(std::uint32_t i, const Stage& stage) {
    const std::string& name = spec_.stages[i].name;
    if (has_result(stage.state) && is_collected(stage)) {
      const bool is_corrupt = stage.result->checkpoint->corrupt;
      if (wanted_.contains(i)) {
        return {name, true,
                fmt::format("its checkpoint {}",
                            is_corrupt ? "is corrupt" : "was collected under the disk quota")};
      }
      return {name, false,
              fmt::format("{}, key unchanged (its checkpoint {}, nothing needs it)",
                          to_string(stage.state), is_corrupt ? "is corrupt" : "was collected")};
    }
    if (has_result(stage.state)) {
      const std::string& path = stage.result->checkpoint->info.path;
      if (exists_ && !exists_(path)) {
        plan_.no_reuse[i] = true;
        return {name, true, "its checkpoint is gone: " + path};
      }
      return {name, false, fmt::format("{}, key unchanged", to_string(stage.state))};
    }
    if (stage.state == StageState::blocked) return {name, true, "was blocked"};
    if (is_active(stage.state)) return {name, false, ""};
    return {name, true, fmt::format("has not run yet ({})", to_string(stage.state))};
  }

  // Whether a need runs again. What is made anew although its key is the same may come out
  // differently: then equal results below it must not be taken either.
  bool inherit_no_reuse(std::uint32_t i) {
    bool again = false;
    for (std::uint32_t need : graph_.needs[i]) {
      if (!plan_.steps[need].rerun) continue;
      again = true;
      if (plan_.no_reuse[need]) plan_.no_reuse[i] = true;
    }
    return again;
  }

  std::string first_rerun_need(std::uint32_t i) const {
    for (std::uint32_t need : graph_.needs[i]) {
      if (plan_.steps[need].rerun) return spec_.stages[need].name;
    }
    return "";
  }

  static std::string failure_of(const Stage& stage) {
    if (stage.attempts.empty() || !stage.attempts.back().outcome) return "failed";
    const AttemptRecord& last = stage.attempts.back();
    return fmt::format("failed: {}{}{}", to_string(*last.outcome), last.reason.empty() ? "" : ": ",
                       last.reason);
  }

  const Job& job_;
  const JobSpec& spec_;
  const std::string& from_;
  const Exists& exists_;
  Graph graph_;
  std::set<std::uint32_t> wanted_;   // collected, and something that runs again needs it
  ResumePlan plan_;
};

std::vector<std::string> names_of(const JobSpec& spec) {
  std::vector<std::string> names;
  for (const StageSpec& stage : spec.stages) names.push_back(stage.name);
  return names;
}

Status check_new_spec(const Job& job, const JobSpec& spec) {
  const Graph graph = make_graph(spec);
  for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
    const std::string& name = job.spec.stages[i].name;
    if (is_active(job.stages[i].state)) {
      return Error{ErrorCode::conflict,
                   fmt::format("the job file cannot change while {} runs", name),
                   to_string(StageRef{job.id, name}), "cancel it, or wait until it ends"};
    }
    if (!graph.index.contains(name)) {
      return Error{ErrorCode::unsupported, fmt::format("the new job file has no stage {}", name),
                   spec.source_path,
                   "submit it as a new job: equal results are taken from this one"};
    }
  }
  return {};
}

}  // namespace

Result<ResumePlan> plan_resume(const Core& core, JobId id, const std::optional<JobSpec>& spec,
                               const std::string& from, const Exists& checkpoint_exists) {
  const Job* job = find_job(core, id);
  if (job == nullptr) {
    const auto bad = core.quarantined.find(id);
    if (bad != core.quarantined.end()) {
      return Error{ErrorCode::corrupt, fmt::format("job {} is quarantined: {}", id.value,
                                                   bad->second), "", "submit it again"};
    }
    return Error{ErrorCode::not_found, fmt::format("there is no job {}", id.value), "", ""};
  }
  if (spec) NS_TRY(check_new_spec(*job, *spec));
  const JobSpec& wanted = spec ? *spec : job->spec;
  if (!from.empty() && !make_graph(wanted).index.contains(from)) {
    const std::string near = did_you_mean(from, names_of(wanted));
    return Error{ErrorCode::not_found, fmt::format("job {} has no stage {}", id.value, from), "",
                 near.empty() ? "" : fmt::format("did you mean {}?", near)};
  }
  return Planner(*job, wanted, from, checkpoint_exists).run();
}

}  // namespace nightshift
