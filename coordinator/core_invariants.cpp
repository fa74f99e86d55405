#include <fmt/format.h>

#include <algorithm>

#include "coordinator/core.h"

namespace nightshift {

namespace {

using Broken = std::vector<std::string>;

// Made into text only when something is broken: this runs after every handler of every test.
struct Named {
  const Core& core;
  StageAt at;
  std::string text() const { return to_string(ref_of(core, at)); }
};

bool is_dead_end(StageState state) {
  return state == StageState::failed || state == StageState::cancelled ||
         state == StageState::blocked;
}

void check_attempts(const Named& name, const Stage& stage, Broken& broken) {
  for (std::size_t i = 1; i < stage.attempts.size(); ++i) {
    if (stage.attempts[i - 1].number >= stage.attempts[i].number) {
      broken.push_back(fmt::format("{}: attempt numbers do not grow", name.text()));
    }
    if (!stage.attempts[i - 1].outcome) {
      broken.push_back(fmt::format("{}: attempt {} was never ended", name.text(),
                                   stage.attempts[i - 1].number.value));
    }
  }
  const std::int32_t last = stage.attempts.empty() ? 0 : stage.attempts.back().number.value;
  if (last != stage.attempt.value) {
    broken.push_back(fmt::format("{}: attempt {} but the last record is {}", name.text(),
                                 stage.attempt.value, last));
  }
  const bool open = !stage.attempts.empty() && !stage.attempts.back().outcome;
  if (open != is_active(stage.state)) {
    broken.push_back(fmt::format("{}: {} with {} attempt", name.text(), to_string(stage.state),
                                 open ? "an open" : "no open"));
  }
  const auto successes = std::count_if(
      stage.attempts.begin(), stage.attempts.end(), [&](const AttemptRecord& record) {
        return record.number > stage.base_attempt && record.outcome == Outcome::ok;
      });
  if (successes > (stage.state == StageState::done ? 1 : 0)) {
    broken.push_back(fmt::format("{}: {} with {} successful attempts", name.text(),
                                 to_string(stage.state), successes));
  }
}

void check_needs(const Job& job, std::uint32_t index, const Named& name, Broken& broken) {
  const Stage& stage = job.stages[index];
  int unmet = 0;
  bool dead_end = false;
  for (std::uint32_t need : job.graph.needs[index]) {
    if (!has_result(job.stages[need].state)) unmet += 1;
    if (is_dead_end(job.stages[need].state)) dead_end = true;
  }
  if (unmet != stage.unmet) {
    broken.push_back(fmt::format("{}: unmet is {}, counted {}", name.text(), stage.unmet, unmet));
  }
  const bool needs_all = stage.state == StageState::ready || is_active(stage.state) ||
                         has_result(stage.state);
  if (needs_all && unmet > 0) {
    broken.push_back(
        fmt::format("{}: {} without what it needs", name.text(), to_string(stage.state)));
  }
  if (stage.state == StageState::waiting && unmet == 0) {
    broken.push_back(fmt::format("{}: waiting for nothing", name.text()));
  }
  if (stage.state == StageState::waiting && dead_end) {
    broken.push_back(fmt::format("{}: waiting for what cannot come", name.text()));
  }
  if (stage.state == StageState::blocked && !dead_end) {
    broken.push_back(fmt::format("{}: blocked, but nothing blocks it", name.text()));
  }
}

bool is_queued(const Core& core, const Job& job, StageAt at, const Stage& stage) {
  const auto level = core.ready.find(job.spec.priority);
  if (level == core.ready.end()) return false;
  const auto user = level->second.find(job.user);
  if (user == level->second.end()) return false;
  const auto queue = user->second.find(stage.shape);
  return queue != user->second.end() && queue->second.contains(at);
}

void check_places(const Core& core, const Job& job, StageAt at, const Named& name,
                  Broken& broken) {
  const Stage& stage = job.stages[at.index];
  const int places = (is_queued(core, job, at, stage) ? 1 : 0) +
                     (core.delayed.contains({stage.not_before_mono_ms, at}) ? 1 : 0);
  if (places != (stage.state == StageState::ready ? 1 : 0)) {
    broken.push_back(fmt::format("{}: {} and in {} ready queues", name.text(),
                                 to_string(stage.state), places));
  }
  if (has_result(stage.state)) {
    if (!stage.result || !stage.result->checkpoint) {
      broken.push_back(
          fmt::format("{}: {} without a checkpoint", name.text(), to_string(stage.state)));
    }
    const bool collected = stage.result && stage.result->checkpoint &&
                           stage.result->checkpoint->collected;
    const auto same = core.done_by_key.find(stage.key);
    const bool indexed = same != core.done_by_key.end() && same->second.contains(at);
    if (indexed == collected) {
      broken.push_back(fmt::format("{}: its key is {} the index", name.text(),
                                   indexed ? "still in" : "not in"));
    }
  }
  const auto live = core.live.find(at);
  if ((live != core.live.end()) != is_active(stage.state)) {
    broken.push_back(fmt::format("{}: {} and {}", name.text(), to_string(stage.state),
                                 live != core.live.end() ? "live" : "not live"));
    return;
  }
  if (live == core.live.end()) return;
  const AttemptRef current = attempt_of(core, at);
  if (live->second.ref != current) {
    broken.push_back(
        fmt::format("{}: live attempt is {}", name.text(), to_string(live->second.ref)));
  }
  const Worker* worker = find_worker(core, live->second.worker);
  const auto held = worker ? worker->held.find(current) : decltype(worker->held.find(current)){};
  if (worker == nullptr || worker->state == WorkerState::lost) {
    broken.push_back(fmt::format("{}: active on {}, which is not there", name.text(),
                                 live->second.worker.value));
  } else if (held == worker->held.end() || held->second.stopping) {
    broken.push_back(fmt::format("{}: {} does not hold it", name.text(), worker->name.value));
  }
}

void check_worker(const Core& core, const Worker& worker, Broken& broken) {
  int slots = 0, cores = 0, exclusive = 0, current = 0;
  std::map<int, int> gpu;
  std::int64_t memory = 0;
  for (const auto& [ref, slot] : worker.held) {
    slots += 1;
    for (const int device : slot.gpu_devices) {
      gpu[device] += slot.resources.gpu > 0 ? 100 : slot.resources.gpu_share_percent;
    }
    cores += slot.resources.cores;
    exclusive += slot.resources.exclusive ? 1 : 0;
    memory += slot.resources.memory_bytes;
    if (slot.stopping) continue;
    current += 1;
    const auto at = find_stage(core, ref.stage_ref());
    const auto live = at ? core.live.find(*at) : core.live.end();
    if (live == core.live.end() || live->second.ref != ref || live->second.worker != worker.name) {
      broken.push_back(fmt::format("worker {}: holds {}, which is not its current attempt",
                                   worker.name.value, to_string(ref)));
    }
  }
  bool gpu_agrees = true;
  for (std::size_t i = 0; i < worker.used_gpu_percent.size(); ++i) {
    gpu_agrees = gpu_agrees && worker.used_gpu_percent[i] == gpu[static_cast<int>(i)];
  }
  if (slots != worker.used_slots || !gpu_agrees || cores != worker.used_cores ||
      exclusive != worker.used_exclusively || memory != worker.used_memory_bytes) {
    broken.push_back(fmt::format("worker {}: its use is not the sum of what it holds",
                                 worker.name.value));
  }
  if (worker.state == WorkerState::online && current > worker.resources.slots) {
    broken.push_back(fmt::format("worker {}: {} attempts in {} slots", worker.name.value, current,
                                 worker.resources.slots));
  }
  if (worker.state == WorkerState::lost && !worker.held.empty()) {
    broken.push_back(fmt::format("worker {}: lost, and holds attempts", worker.name.value));
  }
}

void check_indices(const Core& core, Broken& broken) {
  std::map<std::string, int> active;
  std::size_t ready = 0, queued = core.delayed.size();
  for (const auto& [id, job] : core.jobs) {
    for (const Stage& stage : job.stages) {
      if (is_active(stage.state)) active[job.user] += 1;
      if (stage.state == StageState::ready) ready += 1;
    }
  }
  for (const auto& [user, share] : core.users) {
    const auto counted = active.find(user);
    if (share.active != (counted == active.end() ? 0 : counted->second)) {
      broken.push_back(fmt::format("user {}: active is {}", user, share.active));
    }
  }
  for (const auto& [priority, users] : core.ready) {
    for (const auto& [user, queues] : users) {
      for (const auto& [shape, queue] : queues) queued += queue.size();
    }
  }
  if (ready != queued) {
    broken.push_back(fmt::format("{} stages are ready, {} are queued", ready, queued));
  }
  for (const auto& [at, live] : core.live) {
    if (!core.jobs.contains(at.job)) broken.push_back("a live attempt of no job");
  }
}

}  // namespace

std::vector<std::string> check_invariants(const Core& core) {
  Broken broken;
  for (const auto& [id, job] : core.jobs) {
    StateCounts counts{};
    for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
      const Stage& stage = job.stages[i];
      const Named name{core, {id, i}};
      counts[static_cast<std::size_t>(stage.state)] += 1;
      check_attempts(name, stage, broken);
      check_needs(job, i, name, broken);
      check_places(core, job, {id, i}, name, broken);
    }
    if (counts != job.counts) broken.push_back(fmt::format("job {}: counts are wrong", id.value));
    if (job.state != job_state_of(counts)) {
      broken.push_back(fmt::format("job {}: {} does not follow its stages", id.value,
                                   to_string(job.state)));
    }
  }
  for (const auto& [name, worker] : core.workers) check_worker(core, worker, broken);
  check_indices(core, broken);
  return broken;
}

}  // namespace nightshift
