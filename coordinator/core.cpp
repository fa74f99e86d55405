#include "coordinator/core.h"

#include <fmt/format.h>

#include <algorithm>

namespace nightshift {

namespace {

std::int32_t& count_of(Job& job, StageState state) {
  return job.counts[static_cast<std::size_t>(state)];
}

void enter_ready(Core& core, const Job& job, StageAt at, const Stage& stage,
                 std::int64_t mono_ms) {
  if (stage.not_before_mono_ms > mono_ms) {
    core.delayed.emplace(stage.not_before_mono_ms, at);
  } else {
    core.ready[job.spec.priority][job.user][stage.shape].insert(at);
  }
}

// Empty queues are removed, so that a pass of the scheduler costs what is there now.
void leave_ready(Core& core, const Job& job, StageAt at, const Stage& stage) {
  if (core.delayed.erase({stage.not_before_mono_ms, at}) > 0) return;
  const auto level = core.ready.find(job.spec.priority);
  if (level == core.ready.end()) return;
  const auto user = level->second.find(job.user);
  if (user == level->second.end()) return;
  const auto queue = user->second.find(stage.shape);
  if (queue == user->second.end()) return;
  queue->second.erase(at);
  if (queue->second.empty()) user->second.erase(queue);
  if (user->second.empty()) level->second.erase(user);
  if (level->second.empty()) core.ready.erase(level);
}

bool is_reusable(const Stage& stage) {
  return has_result(stage.state) && !stage.key.empty() && stage.result &&
         stage.result->checkpoint && !stage.result->checkpoint->collected;
}

void enter_state(Core& core, const Job& job, StageAt at, const Stage& stage,
                 std::int64_t mono_ms) {
  if (stage.state == StageState::ready) enter_ready(core, job, at, stage, mono_ms);
  if (is_active(stage.state)) core.users[job.user].active += 1;
  if (is_reusable(stage)) core.done_by_key[stage.key].insert(at);
}

void leave_state(Core& core, const Job& job, StageAt at, const Stage& stage) {
  if (stage.state == StageState::ready) leave_ready(core, job, at, stage);
  if (is_active(stage.state)) {
    core.users[job.user].active -= 1;
    core.live.erase(at);
  }
  if (has_result(stage.state)) {
    const auto same = core.done_by_key.find(stage.key);
    if (same == core.done_by_key.end()) return;
    same->second.erase(at);
    if (same->second.empty()) core.done_by_key.erase(same);
  }
}

// How much of each device an attempt has: all of each, or its share of one.
int percent_of(const ResourceSpec& resources) {
  return resources.gpu > 0 ? 100 : resources.gpu_share_percent;
}

void count_use(Worker& worker, HeldSlot& slot, int sign) {
  worker.used_slots += sign;
  worker.used_cores += sign * slot.resources.cores;
  worker.used_memory_bytes += sign * slot.resources.memory_bytes;
  worker.used_exclusively += slot.resources.exclusive ? sign : 0;
  const int percent = percent_of(slot.resources);
  if (percent > 0 && slot.gpu_devices.empty()) {
    for (int device = 0; device < worker.resources.gpu; ++device) {
      slot.gpu_devices.push_back(device);
    }
  }
  for (const int device : slot.gpu_devices) {
    const auto place = static_cast<std::size_t>(device);
    if (worker.used_gpu_percent.size() <= place) worker.used_gpu_percent.resize(place + 1);
    worker.used_gpu_percent[place] += sign * percent;
  }
}

void index_job(Core& core, Job& job, std::int64_t mono_ms) {
  job.counts = {};
  for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
    Stage& stage = job.stages[i];
    stage.shape = intern_shape(core, job.spec.stages[i].resources);
    stage.unmet = 0;
    for (std::uint32_t need : job.graph.needs[i]) {
      if (!has_result(job.stages[need].state)) stage.unmet += 1;
    }
    count_of(job, stage.state) += 1;
    enter_state(core, job, {job.id, i}, stage, mono_ms);
  }
}

}  // namespace

Job* find_job(Core& core, JobId job) {
  const auto found = core.jobs.find(job);
  return found == core.jobs.end() ? nullptr : &found->second;
}

const Job* find_job(const Core& core, JobId job) {
  const auto found = core.jobs.find(job);
  return found == core.jobs.end() ? nullptr : &found->second;
}

Worker* find_worker(Core& core, const WorkerId& worker) {
  const auto found = core.workers.find(worker);
  return found == core.workers.end() ? nullptr : &found->second;
}

const Worker* find_worker(const Core& core, const WorkerId& worker) {
  const auto found = core.workers.find(worker);
  return found == core.workers.end() ? nullptr : &found->second;
}

std::optional<StageAt> find_stage(const Core& core, const StageRef& ref) {
  const Job* job = find_job(core, ref.job);
  if (job == nullptr) return std::nullopt;
  const auto found = job->graph.index.find(ref.stage);
  if (found == job->graph.index.end()) return std::nullopt;
  return StageAt{ref.job, found->second};
}

Stage& stage_at(Core& core, StageAt at) { return core.jobs.at(at.job).stages.at(at.index); }

const Stage& stage_at(const Core& core, StageAt at) {
  return core.jobs.at(at.job).stages.at(at.index);
}

const StageSpec& spec_at(const Core& core, StageAt at) {
  return core.jobs.at(at.job).spec.stages.at(at.index);
}

StageRef ref_of(const Core& core, StageAt at) { return {at.job, spec_at(core, at).name}; }

AttemptRef attempt_of(const Core& core, StageAt at) {
  return {at.job, spec_at(core, at).name, stage_at(core, at).attempt};
}

Job& add_job(Core& core, Job job, std::int64_t mono_ms) {
  const JobId id = job.id;
  core.last_job = std::max(core.last_job, id);
  if (!job.request.empty()) core.requests[job.request] = id;
  if (job.graph.index.empty()) job.graph = make_graph(job.spec);
  job.stages.resize(job.spec.stages.size());
  Job& added = core.jobs.insert_or_assign(id, std::move(job)).first->second;
  index_job(core, added, mono_ms);
  return added;
}

void replace_spec(Core& core, JobId id, JobSpec spec, std::int64_t mono_ms) {
  Job& job = core.jobs.at(id);
  for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
    leave_state(core, job, {id, i}, job.stages[i]);
  }
  std::vector<Stage> stages(spec.stages.size());
  for (std::size_t i = 0; i < spec.stages.size(); ++i) {
    const auto old = job.graph.index.find(spec.stages[i].name);
    if (old != job.graph.index.end()) stages[i] = std::move(job.stages[old->second]);
  }
  job.stages = std::move(stages);
  job.spec = std::move(spec);
  job.graph = make_graph(job.spec);
  index_job(core, job, mono_ms);
}

int intern_shape(Core& core, const ResourceSpec& resources) {
  std::vector<std::string> labels = resources.labels;
  std::sort(labels.begin(), labels.end());
  const std::string text = fmt::format(
      "{} {} {} {} {} {}", resources.gpu, resources.gpu_share_percent, resources.memory_bytes,
      resources.cores, resources.exclusive, fmt::join(labels, "\n"));
  const auto [found, added] =
      core.shape_ids.emplace(text, static_cast<int>(core.shapes.size()));
  if (added) core.shapes.push_back(resources);
  return found->second;
}

void set_stage_state(Core& core, StageAt at, StageState state, std::int64_t mono_ms) {
  Job& job = core.jobs.at(at.job);
  Stage& stage = job.stages.at(at.index);
  const StageState before = stage.state;
  const bool stays_active = is_active(before) && is_active(state);
  if (!stays_active) leave_state(core, job, at, stage);
  count_of(job, before) -= 1;
  count_of(job, state) += 1;
  stage.state = state;
  if (state == StageState::ready) stage.ready_mono_ms = mono_ms;
  if (!stays_active) enter_state(core, job, at, stage, mono_ms);
  if (has_result(before) != has_result(state)) {
    const int step = has_result(state) ? -1 : 1;
    for (std::uint32_t dependent : job.graph.dependents[at.index]) {
      job.stages[dependent].unmet += step;
    }
  }
}

bool release_delayed(Core& core, std::int64_t mono_ms) {
  bool released = false;
  while (!core.delayed.empty() && core.delayed.begin()->first <= mono_ms) {
    const StageAt at = core.delayed.begin()->second;
    core.delayed.erase(core.delayed.begin());
    const Job& job = core.jobs.at(at.job);
    core.ready[job.spec.priority][job.user][job.stages[at.index].shape].insert(at);
    released = true;
  }
  return released;
}

void end_back_off(Core& core, StageAt at, std::int64_t mono_ms) {
  const Job& job = core.jobs.at(at.job);
  Stage& stage = core.jobs.at(at.job).stages[at.index];
  if (stage.state != StageState::ready || stage.not_before_mono_ms == 0) return;
  leave_ready(core, job, at, stage);
  stage.not_before_mono_ms = 0;
  enter_ready(core, job, at, stage, mono_ms);
}

void mark_collected(Core& core, const std::set<AttemptRef>& made_by, bool corrupt) {
  if (made_by.empty()) return;
  for (auto& [id, job] : core.jobs) {
    for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
      Stage& stage = job.stages[i];
      if (!stage.result || !stage.result->checkpoint || !made_by.contains(stage.result->from)) {
        continue;
      }
      stage.result->checkpoint->collected = true;
      stage.result->checkpoint->corrupt = corrupt;
      const auto same = core.done_by_key.find(stage.key);
      if (same == core.done_by_key.end()) continue;
      same->second.erase({id, i});
      if (same->second.empty()) core.done_by_key.erase(same);
    }
  }
}

void count_end(Stage& stage, Outcome outcome, std::int64_t progress_done) {
  stage.ended[static_cast<std::size_t>(outcome)] += 1;
  if (outcome == Outcome::lost || progress_done < 0) return;
  if (progress_done > stage.best_progress) {
    stage.best_progress = progress_done;
    stage.stalled_restarts = 0;
  } else {
    stage.stalled_restarts += 1;
  }
}

void hold_slot(Worker& worker, const AttemptRef& ref, const ResourceSpec& resources,
               std::vector<int> gpu_devices) {
  HeldSlot slot;
  slot.resources = resources;
  slot.gpu_devices = std::move(gpu_devices);
  const auto [held, added] = worker.held.emplace(ref, std::move(slot));
  if (added) count_use(worker, held->second, 1);
}

void release_slot(Worker& worker, const AttemptRef& ref) {
  const auto found = worker.held.find(ref);
  if (found == worker.held.end()) return;
  count_use(worker, found->second, -1);
  worker.held.erase(found);
}

}  // namespace nightshift
