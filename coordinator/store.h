// What the coordinator keeps through a power cut, as rows and as changes of rows. Knows ids, states
// and specs; must not know SQL (sqlite_store.h does) or how a change came about (the reactor does).
//
// A handler of the reactor says what it changed as a list of Change. apply() writes a list as ONE
// transaction: all of it or nothing. Every change of an existing row carries what the row must look
// like before (state and attempt of a stage, an open attempt); a row that looks different is a
// `conflict`, and nothing of the list is written. Messages leave only after apply() said ok.
//
// When apply() fails the caller cannot know whether it was written (a disk can fail after the
// commit). It does not guess: it loads everything again and starts a new server epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "schema/ids.h"
#include "schema/messages.h"
#include "schema/outcome.h"
#include "schema/red_line.h"
#include "schema/result.h"
#include "schema/stage_state.h"

namespace nightshift {

// ---- rows -----------------------------------------------------------------------------------
// Times are wall time in ms since 1970; 0: not yet.
// States stay text here: a row that this version cannot understand must not stop the service.
struct JobRow {
  JobId job;
  std::string name;
  std::string user;
  std::string request;
  std::string state;
  std::string spec_json;
  std::string source_text;
  std::int64_t submitted_ms = 0;
  std::int64_t ended_ms = 0;
};

struct StageRow {
  StageRef stage;
  std::string state;
  AttemptNumber attempt;              // the current or last one; 0: never ran
  AttemptNumber base_attempt;         // attempts up to this one do not count against retry budgets
  std::string worker;                 // assigned, running
  std::string key;
  std::string retry_reason;
  std::string reuse_reason;
  bool no_reuse = false;              // resume asked for a run, whatever exists already
  std::int64_t not_before_ms = 0;     // end of the back-off
  bool pinned = false;                // its checkpoint is never collected
  std::optional<AttemptRef> result;   // whose measurements (and checkpoint) this stage shows
};

struct AttemptRow {
  AttemptRef ref;
  std::string worker;
  std::string device_class;
  std::int64_t assigned_ms = 0;
  std::int64_t started_ms = 0;
  std::int64_t ended_ms = 0;
  std::int64_t elapsed_ms = 0;
  std::int64_t peak_memory_bytes = 0;
  std::int64_t progress_done = -1;    // the last progress it told; -1: none
  std::string outcome;                // empty: open
  std::string reason;
  std::string log_path;
  std::string log_tail;
  std::vector<int> gpu_devices;
  std::optional<CheckpointInfo> checkpoint;
  std::string checkpoint_state;       // empty: it is there; dropping; dropped
  bool excused = false;               // its end costs no retry
  std::vector<MetricReport> metrics;
  std::vector<RedLineResult> red_lines;
  std::vector<std::string> notes;
};

struct EventRow {
  JobId job;                          // 0: not about a job
  std::int64_t at_ms = 0;
  std::string text;                   // event=stage_done stage=quantize attempt=1 ...
};

struct WorkerRow {
  WorkerId worker;
  std::string session;
  std::string host;
  std::int64_t pid = 0;
  std::string software;
  std::int64_t seen_ms = 0;
};

// A message to people that must be delivered: written with the change that it tells about.
struct OutboxRow {
  std::string id;                     // unique; sent with every try, so that receivers can tell
  JobId job;
  std::string event;                  // done, failed, cancelled, red_line, retry
  int channel = 0;                    // index into JobSpec::notify
  std::string text;
  std::int64_t created_ms = 0;
  int tries = 0;
  std::int64_t next_try_ms = 0;
  std::string state = "pending";      // pending, sent, given_up, uncertain
  std::string last_error;
};

struct StoredState {
  std::vector<JobRow> jobs;           // by id
  std::vector<StageRow> stages;       // by job
  std::vector<AttemptRow> attempts;   // by job, stage, number
  std::vector<EventRow> events;       // the last ones of each job, oldest first
  std::vector<WorkerRow> workers;
  std::vector<OutboxRow> outbox;      // pending ones
  JobId last_job;
};

// ---- changes --------------------------------------------------------------------------------
struct JobAdded {
  JobRow row;
  std::vector<StageRow> stages;
};
struct JobMoved {
  JobId job;
  JobState expected = JobState::active;
  JobState state = JobState::active;
  std::int64_t ended_ms = 0;
};
// Resume with a changed job file. Keys of existing stages come with their StageMoved or StageKeyed.
struct JobSpecReplaced {
  JobId job;
  std::string spec_json;
  std::string source_text;
  std::vector<StageRow> added;
};
// The row after the change; `expected` and `expected_attempt` are the guard.
struct StageMoved {
  StageState expected = StageState::waiting;
  AttemptNumber expected_attempt;
  StageRow row;
};
struct AttemptAdded {
  AttemptRef ref;
  std::string worker;
  std::string device_class;
  std::int64_t assigned_ms = 0;
  std::vector<int> gpu_devices;
};
// Guard: the attempt is open.
struct AttemptRan {
  AttemptRef ref;
  std::string log_path;
  std::int64_t started_ms = 0;
};
// Guard: the attempt is open. Carries what was measured, and the checkpoint of a successful one.
struct AttemptEnded {
  AttemptRow row;
};
// A checkpoint is collected under the disk quota: "" -> dropping -> dropped. Guard: `expected`.
struct CheckpointMoved {
  AttemptRef ref;
  std::string expected;
  std::string state;
};
struct StagePinned {
  StageRef stage;
  bool pinned = false;
};
struct EventAdded {
  EventRow row;
};
struct WorkerSeen {
  WorkerRow row;
};
struct OutboxAdded {
  OutboxRow row;
};
// Guard: still pending.
struct OutboxTried {
  OutboxRow row;
};

using Change = std::variant<JobAdded, JobMoved, JobSpecReplaced, StageMoved, AttemptAdded,
                            AttemptRan, AttemptEnded, CheckpointMoved, StagePinned, EventAdded,
                            WorkerSeen, OutboxAdded, OutboxTried>;

class Store {
 public:
  virtual ~Store() = default;
  // Adds one to the stored epoch and returns it: the first thing of a start.
  virtual Result<ServerEpoch> next_epoch() = 0;
  virtual Result<StoredState> load() = 0;
  // One transaction. conflict: a guard did not match, nothing was written.
  virtual Status apply(const std::vector<Change>& changes) = 0;
  // The caller has nothing to do just now: time for upkeep that would hold up a commit.
  virtual Status rest() { return {}; }
};

}  // namespace nightshift
