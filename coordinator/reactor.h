// What happens when something happens: one handler for each event. Pure: a handler changes the core
// and appends to the effects; it does no I/O and reads no clock. Its caller (reactor_engine.h)
// commits the changes, and only then sends the messages.
//
// An attempt's life on the wire:
//   coordinator              worker
//   AssignAttempt       ->                    stage assigned; attempt row open
//                       <-   AttemptStarted   stage running
//                       <-   AttemptFinished  ok, not committed: stage stays running
//   CommitCheckpoint    ->
//                       <-   CheckpointCommitted   stage done, result stored
//   AttemptAcknowledged ->                    the worker may forget it
// Every message can be lost, doubled or late. AssignAttempt, CommitCheckpoint and StopAttempt are
// sent again until answered and are idempotent. A report is accepted when the stage is active, the
// attempt is the current one and the sender is its worker; anything else is counted, stored as an
// event, answered with AttemptAcknowledged{accepted=false} (StopAttempt when it still runs), and
// changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/clock.h"
#include "coordinator/core.h"
#include "coordinator/scheduler.h"
#include "coordinator/store.h"
#include "schema/job_view.h"
#include "schema/messages.h"

namespace nightshift {

struct ReactorOptions {
  std::int64_t heartbeat_ms = 1'000;
  std::int64_t lease_ms = 10'000;           // silence after which a worker counts as lost
  std::int64_t assign_repeat_ms = 5'000;    // an order without an answer is sent again
  std::int64_t assign_give_up_ms = 60'000;  // and then given up
  std::int64_t stop_repeat_ms = 10'000;
  std::int64_t stop_forget_ms = 30'000;     // a stopped attempt that no heartbeat lists any more
  std::int64_t commit_repeat_ms = 10'000;
  std::int64_t drop_repeat_ms = 30'000;
  std::int64_t backoff_max_ms = 10 * 60'000;
  int stalled_restarts_max = 3;             // then Outcome::no_progress
  SchedulerOptions scheduler;
  // Whether the folder is there and has a manifest; empty: believed. Asked before a reuse only.
  std::function<bool(const std::string& path)> checkpoint_exists;
};

struct Send {
  WorkerId worker;
  std::string session;      // drop it when the worker speaks from another session by now
  Message message;
};

struct Effects {
  std::vector<Change> changes;
  std::vector<Send> sends;
  bool schedule = false;    // something may be assignable: on_schedule runs before the commit
};

// One call of a handler.
struct Turn {
  Core& core;
  const ReactorOptions& options;
  Now now;
  Effects& effects;
};

// Whose message it is: known from the worker's hello on the same connection.
struct Sender {
  WorkerId worker;
  std::string session;
};

struct Submission {
  JobSpec spec;             // checked by job_spec_from_json
  std::string source_text;
  std::string user;
  std::string request;      // a second submit of the same request gives the same job; empty: none
};

// ---- people ---------------------------------------------------------------------------------
Result<JobId> on_submit(Turn& turn, const Submission& submission);
// `stage` empty: the whole job. Acknowledged means: it will not become done.
Status on_cancel(Turn& turn, JobId job, const std::string& stage, const std::string& by);
// Applies plan_resume (resume.h) and gives the steps back. `spec`: a changed job file.
struct ResumeRequest {
  JobId job;
  std::optional<JobSpec> spec;
  std::string source_text;  // of `spec`
  std::string from;         // empty: what failed
};
Result<std::vector<ResumeStep>> on_resume(Turn& turn, const ResumeRequest& request);
// A pinned stage's checkpoint is never collected under the disk quota. `stage` empty: all of them.
Status on_pin(Turn& turn, JobId job, const std::string& stage, bool pinned);

// ---- workers --------------------------------------------------------------------------------
// A heartbeat is answered with WorkerWelcome: a worker that sees another epoch than the one it was
// welcomed with says hello again, and so does one that gets an ErrorReply `not_found` (its hello
// was lost). A worker sends attempt_finished again until it is acknowledged.
void on_worker_hello(Turn& turn, const WorkerHello& hello);
// Also any other word of a worker is a sign of life: the handlers below see to that.
void on_heartbeat(Turn& turn, const Heartbeat& heartbeat);
void on_attempt_started(Turn& turn, const Sender& sender, const AttemptStarted& report);
void on_attempt_finished(Turn& turn, const Sender& sender, const AttemptFinished& report);
void on_checkpoint_committed(Turn& turn, const Sender& sender, const CheckpointCommitted& report);
void on_assign_refused(Turn& turn, const Sender& sender, const AssignRefused& report);
void on_checkpoint_dropped(Turn& turn, const Sender& sender, const CheckpointDropped& report);
// The worker says goodbye or its connection is known to be dead: as if its lease had run out.
void on_worker_lost(Turn& turn, const WorkerId& worker, const std::string& why);

// ---- time -----------------------------------------------------------------------------------
// Leases, amnesty, back-off, watchdog, orders and stops to repeat. Call it every 100 ms to 1 s.
void on_tick(Turn& turn);
// The one place that assigns. Call it when effects.schedule is set.
void on_schedule(Turn& turn);

// ---- outbox ---------------------------------------------------------------------------------
// A try to deliver ended. ok: sent. Else it is tried again after a growing pause, five times in
// all; then given_up, or `uncertain` when the last try may have arrived (reply lost).
void on_outbox_tried(Turn& turn, const std::string& id, bool ok, bool maybe_arrived,
                     const std::string& error);
// Pending ones that are due, oldest first.
std::vector<OutboxRow> outbox_due(const Core& core, Now now);

}  // namespace nightshift
