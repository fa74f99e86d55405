#include "coordinator/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace nightshift {

namespace {

// Of the needs that a stage waits for: it may have thousands.
constexpr std::size_t needs_explained_max = 16;

// What is left of a worker while a pass hands it out.
struct Room {
  const Worker* worker = nullptr;
  int slots = 0;
  std::vector<int> gpu_free_percent;   // of each device
  int cores = 0;
  std::int64_t memory_bytes = 0;
  bool is_empty = false;               // nothing is held there
  bool is_taken = false;               // somebody has it for himself
};

bool has_labels(const Worker& worker, const ResourceSpec& wish) {
  const auto& have = worker.resources.labels;
  return std::all_of(wish.labels.begin(), wish.labels.end(), [&](const std::string& label) {
    return std::find(have.begin(), have.end(), label) != have.end();
  });
}

Room room_of(const Worker& worker) {
  Room room;
  room.worker = &worker;
  room.slots = worker.resources.slots - worker.used_slots;
  room.gpu_free_percent.assign(static_cast<std::size_t>(worker.resources.gpu), 100);
  for (std::size_t i = 0; i < room.gpu_free_percent.size(); ++i) {
    if (i < worker.used_gpu_percent.size()) room.gpu_free_percent[i] -= worker.used_gpu_percent[i];
  }
  room.cores = worker.resources.cores - worker.used_cores;
  room.memory_bytes = worker.resources.memory_bytes - worker.used_memory_bytes;
  room.is_empty = worker.held.empty();
  room.is_taken = worker.used_exclusively > 0;
  return room;
}

int free_devices(const Room& room) {
  return static_cast<int>(
      std::count(room.gpu_free_percent.begin(), room.gpu_free_percent.end(), 100));
}

// Whole devices: the first free ones. A share: of the fullest device that still has it, so that
// whole ones stay whole. Empty when there is no room, or no wish.
std::vector<int> pick_devices(const Room& room, const ResourceSpec& wish) {
  std::vector<int> picked;
  const auto& free = room.gpu_free_percent;
  if (wish.gpu > 0) {
    for (std::size_t i = 0; i < free.size() && std::ssize(picked) < wish.gpu; ++i) {
      if (free[i] == 100) picked.push_back(static_cast<int>(i));
    }
    if (std::ssize(picked) < wish.gpu) picked.clear();
  } else if (wish.gpu_share_percent > 0) {
    const int* best = nullptr;
    for (const int& left : free) {
      if (left >= wish.gpu_share_percent && (best == nullptr || left < *best)) best = &left;
    }
    if (best != nullptr) picked.push_back(static_cast<int>(best - free.data()));
  }
  return picked;
}

bool wants_gpu(const ResourceSpec& wish) { return wish.gpu > 0 || wish.gpu_share_percent > 0; }

bool fits(const Room& room, const ResourceSpec& wish) {
  return room.slots > 0 && !room.is_taken && (!wish.exclusive || room.is_empty) &&
         (!wants_gpu(wish) || !pick_devices(room, wish).empty()) &&
         (wish.cores == 0 || room.cores >= wish.cores) &&
         (wish.memory_bytes == 0 || room.memory_bytes >= wish.memory_bytes) &&
         has_labels(*room.worker, wish);
}

// Two attempts of one stage would share its partial state: the earlier one must have ended there.
bool still_holds(const Worker& worker, const StageRef& stage) {
  const auto found = worker.held.lower_bound({stage.job, stage.stage, {0}});
  return found != worker.held.end() && found->first.stage_ref() == stage;
}

// One user's ready stages of one priority, while a pass walks through them.
struct UserCursor {
  const std::string* user = nullptr;
  int active = 0;
  std::uint64_t last_turn = 0;
  struct Queue {
    int shape = 0;
    const std::set<StageAt>* stages = nullptr;
    std::set<StageAt>::const_iterator next;
  };
  std::vector<Queue> queues;
};

class Pass {
 public:
  Pass(const Core& core, const SchedulerOptions& options, Now now)
      : core_(core), options_(options), now_(now), turns_(core.turns) {
    for (const auto& [name, worker] : core.workers) {
      if (worker.state != WorkerState::online) continue;
      if (worker.used_slots < worker.resources.slots) rooms_.push_back(room_of(worker));
    }
  }

  std::vector<Assignment> run() {
    for (const auto& [priority, users] : core_.ready) {
      if (rooms_.empty()) break;
      std::vector<UserCursor> cursors = cursors_of(users);
      while (!rooms_.empty()) {
        UserCursor* user = next_user(cursors);
        if (user == nullptr) break;
        try_one(*user);
      }
    }
    return std::move(assignments_);
  }

 private:
  std::vector<UserCursor> cursors_of(
      const std::map<std::string, std::map<int, std::set<StageAt>>>& users) const {
    std::vector<UserCursor> cursors;
    for (const auto& [user, queues] : users) {
      UserCursor cursor;
      cursor.user = &user;
      const auto share = core_.users.find(user);
      if (share != core_.users.end()) {
        cursor.active = share->second.active;
        cursor.last_turn = share->second.last_turn;
      }
      const auto given = given_.find(user);
      if (given != given_.end()) cursor.active += given->second;
      for (const auto& [shape, stages] : queues) {
        cursor.queues.push_back({shape, &stages, stages.begin()});
      }
      cursors.push_back(std::move(cursor));
    }
    return cursors;
  }

  // The fairest user that still has a candidate.
  UserCursor* next_user(std::vector<UserCursor>& cursors) {
    UserCursor* best = nullptr;
    for (UserCursor& cursor : cursors) {
      if (next_queue(cursor) == nullptr) continue;
      if (best == nullptr || std::tie(cursor.active, cursor.last_turn, *cursor.user) <
                                 std::tie(best->active, best->last_turn, *best->user)) {
        best = &cursor;
      }
    }
    return best;
  }

  // The queue with the oldest candidate whose shape may still fit.
  UserCursor::Queue* next_queue(UserCursor& cursor) {
    UserCursor::Queue* best = nullptr;
    for (UserCursor::Queue& queue : cursor.queues) {
      if (full_shapes_.contains(queue.shape)) continue;
      skip_closed(queue);
      if (queue.next == queue.stages->end()) continue;
      if (best == nullptr || *queue.next < *best->next) best = &queue;
    }
    return best;
  }

  // Past stages of jobs whose night window is closed, or closes before they would end.
  void skip_closed(UserCursor::Queue& queue) {
    if (!options_.night) return;
    while (queue.next != queue.stages->end()) {
      const StageAt at = *queue.next;
      const NightWindow& night = window_of(at.job);
      if (!night.open) {
        queue.next = queue.stages->lower_bound(StageAt{{at.job.value + 1}, 0});
      } else if (night.closes_in_ms >= 0 && spec_at(core_, at).expected_ms > night.closes_in_ms) {
        ++queue.next;
      } else {
        return;
      }
    }
  }

  const NightWindow& window_of(JobId job) {
    const auto known = windows_.find(job);
    if (known != windows_.end()) return known->second;
    return windows_.emplace(job, options_.night(core_.jobs.at(job).spec.night, now_.wall_ms))
        .first->second;
  }

  void try_one(UserCursor& cursor) {
    UserCursor::Queue& queue = *next_queue(cursor);
    const StageAt at = *queue.next;
    const ResourceSpec& wish = core_.shapes[static_cast<std::size_t>(queue.shape)];
    const auto room = best_room(at, wish);
    if (room == rooms_.end() && any_fits(wish)) {
      ++queue.next;   // only this one cannot go there
      return;
    }
    if (room == rooms_.end()) {
      full_shapes_.insert(queue.shape);
      if (now_.mono_ms - stage_at(core_, at).ready_mono_ms >= options_.reserve_after_ms) {
        reserve_for(wish);
      }
      return;
    }
    assignments_.push_back({at, room->worker->name, pick_devices(*room, wish)});
    for (const int device : assignments_.back().gpu_devices) {
      room->gpu_free_percent[static_cast<std::size_t>(device)] -=
          wish.gpu > 0 ? 100 : wish.gpu_share_percent;
    }
    ++queue.next;
    cursor.active += 1;
    cursor.last_turn = ++turns_;
    given_[*cursor.user] += 1;
    room->slots -= 1;
    room->is_empty = false;
    room->is_taken = wish.exclusive;
    room->cores -= wish.cores;
    room->memory_bytes -= wish.memory_bytes;
    if (room->slots == 0 || room->is_taken) rooms_.erase(room);
  }

  bool any_fits(const ResourceSpec& wish) const {
    return std::any_of(rooms_.begin(), rooms_.end(),
                       [&](const Room& room) { return fits(room, wish); });
  }

  // Not one that refused it; for a stage without GPU one without GPU; where its inputs are; where
  // most room is.
  std::vector<Room>::iterator best_room(StageAt at, const ResourceSpec& wish) {
    const Job& job = core_.jobs.at(at.job);
    const Stage& stage = job.stages[at.index];
    const auto rank = [&](const Room& room) {
      int inputs_here = 0;
      for (std::uint32_t need : job.graph.needs[at.index]) {
        const auto& result = job.stages[need].result;
        if (result && result->checkpoint && result->checkpoint->worker == room.worker->name) {
          inputs_here += 1;
        }
      }
      return std::make_tuple(stage.refused_by.contains(room.worker->name),
                             !wants_gpu(wish) && room.worker->resources.gpu > 0, -inputs_here,
                             -room.slots);
    };
    auto best = rooms_.end();
    for (auto room = rooms_.begin(); room != rooms_.end(); ++room) {
      if (!fits(*room, wish) || still_holds(*room->worker, ref_of(core_, at))) continue;
      if (best == rooms_.end() || rank(*room) < rank(*best)) best = room;
    }
    return best;
  }

  // The worker that is nearest to having room takes nothing more in this pass.
  void reserve_for(const ResourceSpec& wish) {
    const Worker* nearest = nullptr;
    for (const auto& [name, worker] : core_.workers) {
      if (worker.state != WorkerState::online || reserved_.contains(&worker)) continue;
      if (!could_ever_fit(worker, wish)) continue;
      if (nearest == nullptr || worker.held.size() < nearest->held.size()) nearest = &worker;
    }
    if (nearest == nullptr) return;
    reserved_.insert(nearest);
    std::erase_if(rooms_, [&](const Room& room) { return room.worker == nearest; });
  }

  const Core& core_;
  const SchedulerOptions& options_;
  Now now_;
  std::uint64_t turns_;
  std::vector<Room> rooms_;                    // online, with a free slot, not reserved
  std::set<int> full_shapes_;                  // fit nowhere now; room only shrinks in a pass
  std::set<const Worker*> reserved_;
  std::map<std::string, int> given_;           // stages given in this pass, by user
  std::map<JobId, NightWindow> windows_;
  std::vector<Assignment> assignments_;
};

std::string duration_text(std::int64_t ms) {
  const std::int64_t seconds = (ms + 999) / 1000;
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", (seconds + 59) / 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::int64_t mib = 1 << 20;
  if (bytes < 1024 * mib) return fmt::format("{} MiB", std::max<std::int64_t>(bytes, 0) / mib);
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1024.0 * mib));
}

void explain_ready(const Core& core, const SchedulerOptions& options, StageAt at, Now now,
                   std::vector<std::string>& reasons) {
  const Stage& stage = stage_at(core, at);
  if (stage.not_before_mono_ms > now.mono_ms) {
    reasons.push_back(
        fmt::format("back-off until in {}{}", duration_text(stage.not_before_mono_ms - now.mono_ms),
                    stage.retry_reason.empty() ? "" : " (" + stage.retry_reason + ")"));
  }
  if (options.night) {
    const NightWindow night = options.night(core.jobs.at(at.job).spec.night, now.wall_ms);
    const std::int64_t expected_ms = spec_at(core, at).expected_ms;
    if (!night.open) {
      reasons.push_back(
          fmt::format("outside the night window, which opens in {}",
                      duration_text(night.opens_in_ms)));
    } else if (night.closes_in_ms >= 0 && expected_ms > night.closes_in_ms) {
      reasons.push_back(fmt::format("would not end before the deadline: asks {}, {} left",
                                    duration_text(expected_ms), duration_text(night.closes_in_ms)));
    }
  }
  bool any_online = false;
  for (const auto& [name, worker] : core.workers) {
    if (worker.state != WorkerState::online) continue;
    any_online = true;
    const std::string why = refusal(worker, core.shapes[static_cast<std::size_t>(stage.shape)]);
    if (!why.empty()) {
      reasons.push_back(fmt::format("worker {}: {}", name.value, why));
    } else if (still_holds(worker, ref_of(core, at))) {
      reasons.push_back(
          fmt::format("worker {}: an earlier attempt has not ended there", name.value));
    } else if (reasons.empty()) {
      reasons.push_back(fmt::format("worker {}: has room, others come first", name.value));
    }
  }
  if (!any_online) reasons.push_back("no worker is online");
}

}  // namespace

std::vector<Assignment> schedule(const Core& core, const SchedulerOptions& options, Now now) {
  if (core.ready.empty()) return {};
  return Pass(core, options, now).run();
}

std::string refusal(const Worker& worker, const ResourceSpec& wish) {
  const WorkerResources& all = worker.resources;
  const Room room = room_of(worker);
  for (const std::string& label : wish.labels) {
    if (std::find(all.labels.begin(), all.labels.end(), label) == all.labels.end()) {
      return fmt::format("label {} missing", label);
    }
  }
  if (room.is_taken) {
    const auto owner = std::find_if(worker.held.begin(), worker.held.end(), [](const auto& held) {
      return held.second.resources.exclusive;
    });
    return fmt::format("has {} for itself", to_string(owner->first));
  }
  if (wish.exclusive && !room.is_empty) {
    return fmt::format("wants the worker for itself, {} runs there",
                       to_string(worker.held.begin()->first));
  }
  if (wants_gpu(wish) && pick_devices(room, wish).empty()) {
    return wish.gpu > 0
               ? fmt::format("needs gpu {}, has {} free of {}", wish.gpu, free_devices(room),
                             all.gpu)
               : fmt::format("needs {} % of a gpu, has no such share free of {}",
                             wish.gpu_share_percent, all.gpu);
  }
  if (wish.memory_bytes > 0 && room.memory_bytes < wish.memory_bytes) {
    return fmt::format("needs memory {}, has {} free of {}", bytes_text(wish.memory_bytes),
                       bytes_text(room.memory_bytes), bytes_text(all.memory_bytes));
  }
  if (wish.cores > 0 && room.cores < wish.cores) {
    return fmt::format("needs cores {}, has {} free of {}", wish.cores, std::max(room.cores, 0),
                       all.cores);
  }
  if (room.slots <= 0) return fmt::format("no free slot (of {})", all.slots);
  return "";
}

bool could_ever_fit(const Worker& worker, const ResourceSpec& wish) {
  const WorkerResources& all = worker.resources;
  const int gpu = std::max(wish.gpu, wish.gpu_share_percent > 0 ? 1 : 0);
  return all.slots > 0 && all.gpu >= gpu && all.cores >= wish.cores &&
         all.memory_bytes >= wish.memory_bytes && has_labels(worker, wish);
}

Explanation explain_stage(const Core& core, const SchedulerOptions& options, StageAt at, Now now) {
  const Job& job = core.jobs.at(at.job);
  const Stage& stage = job.stages.at(at.index);
  Explanation explanation{job.spec.stages[at.index].name, stage.state, {}};
  if (stage.state == StageState::waiting || stage.state == StageState::blocked) {
    const char* verb = stage.state == StageState::waiting ? "waits for" : "blocked by";
    std::size_t count = 0;
    for (std::uint32_t need : job.graph.needs[at.index]) {
      if (has_result(job.stages[need].state)) continue;
      if (++count > needs_explained_max) continue;
      explanation.reasons.push_back(fmt::format("{} {} ({})", verb, job.spec.stages[need].name,
                                                to_string(job.stages[need].state)));
    }
    if (count > needs_explained_max) {
      explanation.reasons.push_back(fmt::format("and {} more", count - needs_explained_max));
    }
  } else if (stage.state == StageState::ready) {
    explain_ready(core, options, at, now, explanation.reasons);
  }
  return explanation;
}

std::vector<Explanation> explain(const Core& core, const SchedulerOptions& options, JobId id,
                                 Now now) {
  std::vector<Explanation> explanations;
  const Job* job = find_job(core, id);
  if (job == nullptr) return explanations;
  for (std::uint32_t i = 0; i < job->stages.size(); ++i) {
    explanations.push_back(explain_stage(core, options, {id, i}, now));
  }
  return explanations;
}

}  // namespace nightshift
