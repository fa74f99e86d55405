#include <fmt/format.h>

#include "coordinator/content_key.h"
#include "coordinator/reactor_steps.h"

namespace nightshift {

namespace {

StageOrder make_order(const Core& core, StageAt at) {
  const Job& job = core.jobs.at(at.job);
  const StageSpec& spec = job.spec.stages[at.index];
  StageOrder order;
  order.job = at.job.value;
  order.job_name = job.spec.name;
  order.stage = spec.name;
  order.kind = spec.kind;
  order.attempt = job.stages[at.index].attempt.value;
  order.model_path = model_path_of(job.spec, spec);
  order.bench = job.spec.bench;
  order.red_lines = job.spec.red_lines;
  order.params_json = spec.params_json;
  order.needs = spec.needs;
  return order;
}

// A number measured on one device says nothing about another: an equal result of a measuring stage
// is taken only when a worker of that device class could run this one, or none is there to compare.
bool device_matches(const Core& core, StageAt at, const Checkpoint& checkpoint) {
  const StageSpec& spec = spec_at(core, at);
  if (!is_measuring_kind(spec.kind)) return true;
  bool any = false;
  for (const auto& [name, worker] : core.workers) {
    if (worker.state != WorkerState::online || !could_ever_fit(worker, spec.resources)) continue;
    if (worker.resources.device_class == checkpoint.device_class) return true;
    any = true;
  }
  return !any;
}

}  // namespace

bool take_equal_result(Turn& turn, StageAt at) {
  Stage& stage = stage_at(turn.core, at);
  if (stage.no_reuse) return false;
  const auto same = turn.core.done_by_key.find(stage.key);
  if (same == turn.core.done_by_key.end()) return false;
  std::string why_not;
  int asked = 0;
  constexpr int asked_max = 8;
  for (const StageAt& other : same->second) {
    if (++asked > asked_max) break;
    const StageResult& result = *stage_at(turn.core, other).result;
    const Checkpoint& checkpoint = *result.checkpoint;
    if (!device_matches(turn.core, at, checkpoint)) {
      why_not = fmt::format("{} was measured on {}", to_string(result.from),
                            checkpoint.device_class);
      continue;
    }
    if (turn.options.checkpoint_exists && !turn.options.checkpoint_exists(checkpoint.info.path)) {
      why_not = fmt::format("the equal result of {} is gone: {}",
                            to_string(result.from), checkpoint.info.path);
      continue;
    }
    stage.result = result;
    stage.reuse_reason = fmt::format("same content key as job {} attempt {}",
                                     result.from.job.value, result.from.attempt.value);
    if (!move_stage(turn, at, StageEvent::reuse)) return false;
    turn.core.counters.stages_reused += 1;
    tell(turn, at.job,
         fmt::format("event=stage_reused stage={} from={} {}", spec_at(turn.core, at).name,
                     to_string(result.from), field("checkpoint", checkpoint.info.path)));
    return true;
  }
  if (why_not != stage.no_reuse_reason) {
    stage.no_reuse_reason = why_not;
    tell(turn, at.job, fmt::format("event=not_reused stage={} {}", spec_at(turn.core, at).name,
                                   field("why", stage.no_reuse_reason)));
  }
  return false;
}

void send_to(Turn& turn, const Worker& worker, Message message) {
  turn.effects.sends.push_back({worker.name, worker.session, std::move(message)});
}

void send_order(Turn& turn, StageAt at) {
  const Job& job = turn.core.jobs.at(at.job);
  const StageSpec& spec = job.spec.stages[at.index];
  LiveAttempt& live = turn.core.live.at(at);
  const Worker* worker = find_worker(turn.core, live.worker);
  if (worker == nullptr) return;
  AssignAttempt assign;
  assign.ref = live.ref;
  assign.server_epoch = turn.core.epoch.value;
  assign.order = make_order(turn.core, at);
  for (std::uint32_t ancestor : ancestors(job.graph, at.index)) {
    const CheckpointInfo& info = job.stages[ancestor].result->checkpoint->info;
    assign.order.inputs[job.spec.stages[ancestor].name] = info.path;
    assign.input_digests[job.spec.stages[ancestor].name] = info.digest;
  }
  assign.command = spec.command;
  assign.environment = spec.environment;
  assign.temp = spec.resources.temp;
  assign.retry_reason = job.stages[at.index].retry_reason;
  assign.watchdog = job.spec.watchdog;
  assign.wall_limit_ms = spec.wall_limit_ms;
  const auto held = worker->held.find(live.ref);
  if (held != worker->held.end()) assign.gpu_devices = held->second.gpu_devices;
  live.asked_mono_ms = turn.now.mono_ms;
  send_to(turn, *worker, std::move(assign));
}

void send_acknowledgement(Turn& turn, const Worker& worker, const AttemptRef& ref, bool accepted) {
  send_to(turn, worker, AttemptAcknowledged{ref, accepted});
}

}  // namespace nightshift
