// The coordinator's memory: jobs, stages, workers, and the indices that keep every event cheap.
// Knows specs, states and messages; must not know sockets, SQL or the clock.
//
// Only the reactor changes it. All of it can be rebuilt from the store (recovery.h) except what is
// marked live: that comes back when workers report.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/clock.h"
#include "coordinator/plan.h"
#include "coordinator/store.h"
#include "schema/ids.h"
#include "schema/job_spec.h"
#include "schema/messages.h"
#include "schema/outcome.h"
#include "schema/stage_state.h"

namespace nightshift {

// A stage by its place in its job's spec: cheap to compare. Never stored, never on the wire.
struct StageAt {
  JobId job;
  std::uint32_t index = 0;
  auto operator<=>(const StageAt&) const = default;
};

struct Checkpoint {
  CheckpointInfo info;
  WorkerId worker;                  // on whose disk
  std::string device_class;         // on what it was measured
  bool collected = false;           // its numbers stay, its files do not: the disk quota took them
  bool corrupt = false;             // (then also collected) or they are not what was measured
};

// What a done, reused or measured stage shows. A reused stage shows another attempt's.
struct StageResult {
  AttemptRef from;
  std::optional<Checkpoint> checkpoint;
  std::vector<MetricReport> metrics;
  std::vector<RedLineResult> red_lines;
  std::vector<std::string> notes;
};

struct AttemptRecord {
  AttemptNumber number;
  WorkerId worker;
  std::string device_class;
  std::optional<Outcome> outcome;   // none: open
  std::string reason;
  std::string log_path;
  std::string log_tail;
  std::int64_t assigned_ms = 0;     // wall
  std::int64_t started_ms = 0;
  std::int64_t ended_ms = 0;
  std::int64_t elapsed_ms = 0;
  std::int64_t progress_done = -1;
  std::int64_t checkpoint_bytes = -1;   // it left one, on its worker's disk; -1: none
  bool collected = false;               // which is gone, or about to go
  bool excused = false;                 // its end costs no retry
};

struct Stage {
  StageState state = StageState::waiting;
  AttemptNumber attempt;            // the current or last one; 0: never ran
  AttemptNumber base_attempt;       // earlier ones do not count against retry budgets
  std::string key;                  // content key
  std::string retry_reason;         // why the next or current attempt is not the first
  std::string reuse_reason;
  std::string no_reuse_reason;      // live: why an equal result was not taken
  bool no_reuse = false;
  bool pinned = false;              // somebody asked to keep its checkpoint
  std::optional<StageResult> result;
  std::vector<AttemptRecord> attempts;            // oldest first
  std::array<int, all_outcomes.size()> ended{};   // by outcome, attempts after base_attempt
  AttemptNumber excused;  // live: that this attempt is lost costs no retry (see end_badly)
  int stalled_restarts = 0;         // in a row, without more progress than before
  std::int64_t best_progress = -1;
  int shape = 0;                    // index into Core::shapes
  int unmet = 0;                    // needs without a result
  std::int64_t not_before_mono_ms = 0;
  std::int64_t ready_mono_ms = 0;   // since when it is ready
  std::set<WorkerId> refused_by;    // live: workers that refused it, tried last
};

struct Job {
  JobId id;
  JobSpec spec;
  Graph graph;                      // of spec.stages
  std::string source_text;          // the job file as written
  std::string user;
  std::string request;
  JobState state = JobState::active;
  std::int64_t submitted_ms = 0;
  std::int64_t ended_ms = 0;
  std::vector<Stage> stages;        // parallel to spec.stages
  StateCounts counts{};             // stages by state
  std::deque<EventRow> events;      // the last events_kept_max
};
inline constexpr std::size_t events_kept_max = 200;

// Live: the current attempt of an active stage.
struct LiveAttempt {
  AttemptRef ref;
  WorkerId worker;
  std::int64_t assigned_mono_ms = 0;
  std::int64_t asked_mono_ms = 0;           // the last AssignAttempt
  std::int64_t started_mono_ms = -1;
  std::int64_t pulse_mono_ms = -1;          // when the last pulse came; -1: never
  std::optional<AttemptPulse> pulse;
  bool suspected = false;                   // not heard of since the coordinator started
  std::optional<AttemptFinished> finished;  // ok, its checkpoint not yet committed
  std::int64_t commit_sent_mono_ms = -1;
  std::optional<StopAttempt> stop;          // the coordinator wants it to end
  std::int64_t stop_sent_mono_ms = -1;
  bool alarm_told = false;                // mode log, warn: once
};

// What an attempt takes of its worker, from the order until its end is known: a cancelled attempt
// keeps its slot until its process is gone.
struct HeldSlot {
  ResourceSpec resources;
  std::vector<int> gpu_devices;             // which ones; unknown counts as all
  bool stopping = false;                    // no longer current
  StopAttempt stop;
  std::int64_t stop_since_mono_ms = 0;
  std::int64_t stop_told_mono_ms = 0;       // the last StopAttempt
};

enum class WorkerState {
  unknown,   // held attempts before the coordinator started, and has not spoken since
  online,
  lost,
};

struct Worker {
  WorkerId name;
  std::string session;
  std::string host;
  std::int64_t pid = 0;
  std::string software;
  WorkerResources resources;
  WorkerState state = WorkerState::unknown;
  bool greeted = false;                     // said hello to this coordinator: resources are known
  std::int64_t last_word_mono_ms = 0;
  std::int64_t last_word_wall_ms = 0;
  std::int64_t disk_free_bytes = -1;
  std::int64_t temp_free_bytes = -1;
  bool over_quota_told = false;
  std::map<AttemptRef, HeldSlot> held;
  int used_slots = 0;
  std::vector<int> used_gpu_percent;        // of each device
  int used_cores = 0;
  int used_exclusively = 0;                 // held attempts that want the worker for themselves
  std::int64_t used_memory_bytes = 0;
};

// A checkpoint that was collected, until its worker says that it is gone.
struct DropOrder {
  WorkerId worker;
  std::int64_t told_mono_ms = -1;           // the last DropCheckpoint; -1: never
};

// Fair order between users: fewest active stages first, then whose turn is longest ago.
struct UserShare {
  int active = 0;
  std::uint64_t last_turn = 0;
};

struct Counters {
  std::int64_t reports_refused = 0;   // of an attempt that was not the current one
  std::int64_t attempts_lost = 0;
  std::int64_t stages_done = 0;
  std::int64_t stages_reused = 0;
  std::int64_t retries = 0;
};

struct Core {
  ServerEpoch epoch;
  JobId last_job;
  std::map<JobId, Job> jobs;
  std::map<WorkerId, Worker> workers;
  std::map<JobId, std::string> quarantined;             // jobs whose rows make no sense, and why
  std::map<std::string, JobId> requests;                // of submits, so that each counts once
  std::set<std::string> refusals_told;                  // live: each refused report is one event
  std::map<AttemptRef, DropOrder> dropping;             // checkpoints that a worker shall remove
  bool collect_due = false;                             // live: a disk may be over its quota
  std::uint64_t outbox_ids = 0;                         // live: given since this epoch began
  std::map<std::string, OutboxRow> outbox;              // pending
  std::int64_t amnesty_until_mono_ms = 0;
  Counters counters;

  // Indices, kept by the functions below.
  std::map<StageAt, LiveAttempt> live;                  // exactly the active stages
  std::vector<ResourceSpec> shapes;                     // distinct resource wishes
  std::map<std::string, int> shape_ids;
  // Ready and past their back-off: by priority (highest first), user, shape, then age.
  std::map<int, std::map<std::string, std::map<int, std::set<StageAt>>>, std::greater<>> ready;
  std::set<std::pair<std::int64_t, StageAt>> delayed;   // ready, back-off until
  std::map<std::string, UserShare> users;
  std::uint64_t turns = 0;
  std::unordered_map<std::string, std::set<StageAt>> done_by_key;
};

Job* find_job(Core& core, JobId job);
const Job* find_job(const Core& core, JobId job);
Worker* find_worker(Core& core, const WorkerId& worker);
const Worker* find_worker(const Core& core, const WorkerId& worker);
// By name; nullopt when there is no such job or stage (a peer may have sent it).
std::optional<StageAt> find_stage(const Core& core, const StageRef& ref);
Stage& stage_at(Core& core, StageAt at);
const Stage& stage_at(const Core& core, StageAt at);
const StageSpec& spec_at(const Core& core, StageAt at);
StageRef ref_of(const Core& core, StageAt at);
AttemptRef attempt_of(const Core& core, StageAt at);

// Takes the job into the core, counting its states and filling every index except `live`.
Job& add_job(Core& core, Job job, std::int64_t mono_ms);
// Gives a job without active stages another spec; its stages keep what they have, by name, and new
// ones begin as waiting.
void replace_spec(Core& core, JobId job, JobSpec spec, std::int64_t mono_ms);
int intern_shape(Core& core, const ResourceSpec& resources);

// Moves the stage and every index with it; next_state() must have allowed it. Becoming ready it
// waits until not_before_mono_ms; becoming active needs `core.live` to be filled by the caller.
void set_stage_state(Core& core, StageAt at, StageState state, std::int64_t mono_ms);
// Moves stages whose back-off has passed to the ready queues; true when there were some.
bool release_delayed(Core& core, std::int64_t mono_ms);

// A ready stage that waits for its back-off may be placed now.
void end_back_off(Core& core, StageAt at, std::int64_t mono_ms);

// Their files are about to go, or corrupt: no stage takes them as an equal result any more. One
// walk over all stages: a reused one shows another job's checkpoint, under a key which that job may
// have left behind.
void mark_collected(Core& core, const std::set<AttemptRef>& made_by, bool corrupt = false);

// Counts the end of an attempt against the budgets: its class, and whether it came further than the
// ones before. (A lost worker says nothing about the stage; without progress nothing is judged.)
void count_end(Stage& stage, Outcome outcome, std::int64_t progress_done);

void hold_slot(Worker& worker, const AttemptRef& ref, const ResourceSpec& resources,
               std::vector<int> gpu_devices = {});
void release_slot(Worker& worker, const AttemptRef& ref);

// Empty when all is well; else what is broken, one line each. Tests call it after every handler.
std::vector<std::string> check_invariants(const Core& core);

}  // namespace nightshift
