// Steps that several handlers of the reactor share. Only reactor*.cpp includes it.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/reactor.h"

namespace nightshift {

// Appends one line to the job's events; job 0: about the coordinator or a worker. `line` begins
// with "event=".
void tell(Turn& turn, JobId job, std::string line);

StageRow stage_row(const Core& core, StageAt at, Now now);
// Moves the stage along the transition table and writes the guarded change. For `assign` the caller
// has raised the attempt already and says what it was. False: the table does not allow it.
bool move_stage(Turn& turn, StageAt at, StageEvent event, AttemptNumber attempt_before);
bool move_stage(Turn& turn, StageAt at, StageEvent event);

// The stage has all that it needs: it becomes reused when an equal result exists, else ready.
// Either way everything that follows from it is done, too.
void make_ready(Turn& turn, StageAt at);
// An equal result for a waiting or ready stage was found and taken.
bool take_equal_result(Turn& turn, StageAt at);
// After a stage got its result: its dependents become ready. After it became failed or cancelled:
// everything that needs it is blocked.
void settle_dependents(Turn& turn, StageAt at);
void update_job_state(Turn& turn, JobId job);

// How an attempt ended, from whomever.
struct AttemptEnd {
  Outcome outcome = Outcome::error;
  std::string reason;
  const AttemptFinished* report = nullptr;   // when its worker told
  bool excused = false;                      // lost, and nobody's fault: costs no retry
};
// Closes the attempt row and record, and frees the slot unless `keeps_slot`. Not the stage.
void close_attempt(Turn& turn, StageAt at, const AttemptEnd& end, bool keeps_slot = false);
// The attempt ended with a committed checkpoint: the stage is done.
void end_well(Turn& turn, StageAt at, const AttemptFinished& report);
// The attempt ended otherwise: another one is allowed or the stage has failed.
void end_badly(Turn& turn, StageAt at, AttemptEnd end);

// The live attempt that a report is about, or nullptr when the report is not to be believed: the
// stage is not active, another attempt is current, or another worker has it.
LiveAttempt* current_attempt(Turn& turn, const WorkerId& worker, const AttemptRef& ref,
                             StageAt* at = nullptr);
// Counts it, and stores it as an event the first time.
void refuse_report(Turn& turn, const WorkerId& worker, const AttemptRef& ref,
                   std::string_view what);
// A worker runs an attempt that it should not have: it is told to stop and keeps its slot until it
// says that it is over.
void stop_zombie(Turn& turn, Worker& worker, const AttemptRef& ref);
void stop_held(Turn& turn, const Worker& worker, HeldSlot& slot, StopAttempt stop);
// Assigned, and its worker showed that it runs.
void mark_started(Turn& turn, StageAt at, LiveAttempt& live, const std::string& log_path);

void send_to(Turn& turn, const Worker& worker, Message message);
// The same order as before, from what the core knows now.
void send_order(Turn& turn, StageAt at);
void send_acknowledgement(Turn& turn, const Worker& worker, const AttemptRef& ref, bool accepted);
// Any message of a worker's current session is a sign of life. nullptr: not its current session.
Worker* note_word(Turn& turn, const WorkerId& worker, const std::string& session);

// Looks after disk quotas; part of on_tick.
void collect_checkpoints(Turn& turn);
// A worker found that the files are not what their manifest says: a resume makes them again. False:
// the stage has no checkpoint.
bool mark_corrupt(Turn& turn, const StageRef& stage);

// Outbox rows for everybody who wants to hear of `event`.
void notify(Turn& turn, const Job& job, const std::string& event, const std::string& text);

// "key=value" with quotes where the value has spaces.
std::string field(std::string_view key, std::string_view value);

}  // namespace nightshift
