// What people were told and what therefore must hold, judged from outside of the coordinator.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/coordinator/simulated_machines.h"

namespace nightshift::testing {

class SimJudge {
 public:
  SimJudge(SimFate& fate, SimMachines& machines) : fate_(fate), machines_(machines) {}

  // ---- what people were told -----------------------------------------------------------------
  void acknowledge_submit(JobId job) { submitted_.insert(job); }
  void acknowledge_cancel(JobId job) { cancelled_.insert(job); }
  void acknowledge_stop(const StageRef& stage) { stopped_.insert(stage); }
  // From the moment that a resume may have been written: what runs again may end anew.
  void allow_again(JobId job, const std::vector<ResumeStep>& steps) {
    for (const ResumeStep& step : steps) {
      if (!step.rerun) continue;
      const StageRef ref{job, step.stage};
      done_.erase(ref);
      stopped_.erase(ref);
      std::erase_if(machines_.pinned,
                    [&](const AttemptRef& pinned) { return pinned.stage_ref() == ref; });
    }
  }
  void acknowledge_pin(const Core& core, const StageRef& ref, bool pinned) {
    const Stage& stage = stage_at(core, *find_stage(core, ref));
    if (!stage.result || stage.result->checkpoint->collected) return;
    if (pinned) {
      machines_.pinned.insert(stage.result->from);
    } else {
      machines_.pinned.erase(stage.result->from);
    }
  }
  std::size_t submits() const { return submitted_.size(); }
  const std::set<JobId>& submitted() const { return submitted_; }
  bool is_cancelled(JobId job) const { return cancelled_.contains(job); }

  // ---- after each commit ---------------------------------------------------------------------
  void look(const Core& core) {
    for (const auto& [id, job] : core.jobs) {
      if (is_cancelled(id) && job.state != JobState::cancelled && job.state != JobState::failed) {
        fate_.broken(fmt::format("job {} was cancelled and is {}", id.value,
                                 to_string(job.state)));
      }
      for (std::uint32_t i = 0; i < job.stages.size(); ++i) look_at(job, i);
    }
    for (JobId id : submitted_) {
      if (!core.jobs.contains(id)) fate_.broken("an acknowledged job is gone");
    }
  }

  bool all_done(const Core& core) const {
    if (static_cast<int>(submitted_.size()) < fate_.options.jobs) return false;
    for (const auto& [id, job] : core.jobs) {
      if (job.state == JobState::active) return false;
      if (job.state != JobState::done && !is_cancelled(id)) return false;
    }
    return true;
  }

  // ---- in the morning ------------------------------------------------------------------------
  void look_at_end(const Core& core, Store& store) {
    const Result<StoredState> stored = store.load();
    if (!stored.ok()) return fate_.broken(stored.error().line());
    std::map<StageRef, AttemptNumber> base;
    for (const StageRow& row : stored->stages) base[row.stage] = row.base_attempt;
    std::map<StageRef, int> successes;   // since the stage was last made anew
    for (const AttemptRow& row : stored->attempts) {
      const StageRef ref = row.ref.stage_ref();
      if (row.outcome == "ok" && row.ref.attempt > base[ref]) successes[ref] += 1;
    }
    for (const auto& [id, job] : core.jobs) {
      for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
        const StageRef ref{id, job.spec.stages[i].name};
        const int expected = job.stages[i].state == StageState::done ? 1 : 0;
        if (successes[ref] != expected) {
          fate_.broken(fmt::format("{} is {} with {} successes", to_string(ref),
                                   to_string(job.stages[i].state), successes[ref]));
        }
      }
      if (!is_cancelled(id) && job.state != JobState::done) fate_.broken("a job is not done");
    }
  }

 private:
  void look_at(const Job& job, std::uint32_t index) {
    const Stage& stage = job.stages[index];
    const StageRef ref{job.id, job.spec.stages[index].name};
    if (has_result(stage.state) && stopped_.contains(ref)) {
      fate_.broken(to_string(ref) + " was cancelled and is " + to_string(stage.state));
    }
    if (stage.state == StageState::done) {
      if (done_.emplace(ref, stage.attempt).first->second != stage.attempt) {
        fate_.broken(to_string(ref) + " was done and was run again");
      }
      look_at_result(ref, stage);
    } else if (done_.contains(ref)) {
      fate_.broken(to_string(ref) + " was done and is " + to_string(stage.state));
    }
  }
  void look_at_result(const StageRef& ref, const Stage& stage) {
    const AttemptRef attempt{ref.job, ref.stage, stage.attempt};
    const CheckpointInfo& info = stage.result->checkpoint->info;
    if (info.digest != "made by " + to_string(attempt)) {
      fate_.broken(fmt::format("{} is done with a checkpoint {}", to_string(attempt),
                               info.digest));
    }
    if (!machines_.was_committed(info.path)) fate_.broken(info.path + " was never committed");
    if (!machines_.was_run(attempt)) fate_.broken(to_string(attempt) + " is done and never ran");
  }

  SimFate& fate_;
  SimMachines& machines_;
  std::set<JobId> submitted_;
  std::set<JobId> cancelled_;
  std::set<StageRef> stopped_;
  std::map<StageRef, AttemptNumber> done_;
};

}  // namespace nightshift::testing
