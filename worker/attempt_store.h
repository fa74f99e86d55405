// What a worker keeps on disk: the folders of attempts, their results, and the checkpoints. Knows
// files and the stage contract; must not know processes, sockets or the agent's states.
//
//   ROOT/worker.lock                    one worker a root
//   ROOT/attempts/JOB/STAGE/N/          one attempt; N is never used twice
//       spec.json  out/  state/  log    schema/stage_contract.h
//       temp                            the path of its TMPDIR while it has one
//       result.json                     it ended and the coordinator has not stored that yet
//       result.acknowledged.json        it has
//   ROOT/checkpoints/JOB/STAGE.N/       committed: renamed from out/ by the coordinator's decision
//
// A crash between any two steps leaves one of: no result (the attempt is lost and is not reported),
// a result without commit (reported again), out/ renamed but the result not marked (found by
// recover(), which marks it). An attempt that has no result when the worker starts is abandoned:
// its log and state/ stay, its out/ and TMPDIR go.
//
// Calls may take as long as the disk does: the loop makes them on background threads. Two calls at
// the same time are fine for different stages; the agent keeps those of one stage in order.
#pragma once

#include <string>
#include <vector>

#include "schema/messages.h"
#include "schema/result.h"
#include "worker/files.h"

namespace nightshift {

// Ready to start: folders made, log opened.
struct PreparedAttempt {
  std::string folder;
  std::string log_path;
  std::string temp;  // its TMPDIR
  UniqueFd log;
  std::vector<std::string> environment;
};

class AttemptStore {
 public:
  // `temp`: where TMPDIRs are made when an order names no place; empty: ROOT/tmp.
  explicit AttemptStore(std::string root, std::string temp = "");

  // Makes the folders and takes the lock; refuses a root that another worker uses.
  Status open();

  // out_of_disk: the attempt ends with Outcome::disk; other errors: the order is refused (an N that
  // exists, an input that is missing or another one than expected).
  Result<PreparedAttempt> prepare(const AssignAttempt& order,
                                  const std::vector<std::string>& own_environment);
  // The process tree is empty: seals out/ when the draft says ok, adds the tail of the log, and
  // makes the result durable. What cannot be sealed or written changes the outcome, never goes
  // unsaid.
  AttemptFinished finish(AttemptFinished draft);
  // Renames out/ to its final place. Doing it again is fine.
  Status commit(const AttemptRef& ref);
  // The end is stored by the coordinator. out/ of what was not accepted or did not end well goes;
  // state/ goes with success, so that a forced rerun starts fresh.
  Status forget(const AttemptRef& ref, bool accepted);

  // At the start: the results to report again. Unreadable ones are put aside and named in the log.
  std::vector<AttemptFinished> recover();

  LogChunk read_log(const LogRequest& request) const;

  const std::string& root() const { return root_; }
  const std::string& temp() const { return temp_; }
  std::string attempt_folder(const AttemptRef& ref) const;
  std::string log_path(const AttemptRef& ref) const { return attempt_folder(ref) + "/log"; }
  std::string checkpoint_folder(const AttemptRef& ref) const;

 private:
  Status check_inputs(const AssignAttempt& order) const;
  Status fill_folder(const AssignAttempt& order, PreparedAttempt& prepared);
  Status make_state(const AttemptRef& ref);
  Result<std::string> make_temp(const AssignAttempt& order, const std::string& folder);
  void remove_temp(const std::string& folder);
  Status seal(AttemptFinished& result);
  Status write_result(const AttemptFinished& result);
  Result<AttemptFinished> read_result(const std::string& path) const;
  void recover_attempt(const AttemptRef& ref, std::vector<AttemptFinished>& results);

  std::string root_;
  std::string temp_;
  UniqueFd lock_;
};

// result.json and back: the body of the wire message as JSON, checked by the wire's own bounds.
std::string result_to_json_text(const AttemptFinished& result);
Result<AttemptFinished> result_from_json(const std::string& text, const std::string& where);

}  // namespace nightshift
