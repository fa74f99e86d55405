// Wire messages between coordinator, workers and the CLI, and their encoding. Knows ids, states and
// MessagePack; must not know sockets. schema/PROTOCOL.md has the same in ABNF.
//
// A message is three ZeroMQ frames (after the routing frame that ROUTER adds):
//   1  magic and version   "NSHF" + one byte version (1)
//   2  message number      one byte, never reused
//   3  body                MessagePack map, at most body_bytes_max
// Unknown keys in a body are ignored (a newer peer of the same version may add some); a missing or
// wrong one is refused with its name. A peer that sends garbage gets an `error` message, is
// counted, and changes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "schema/ids.h"
#include "schema/job_spec.h"
#include "schema/outcome.h"
#include "schema/result.h"
#include "schema/stage_contract.h"

namespace nightshift {

namespace wire {
inline constexpr std::string_view magic = "NSHF";
inline constexpr std::uint8_t version = 1;
inline constexpr std::size_t body_bytes_max = 64u << 20;
inline constexpr std::size_t text_bytes_max = 48u << 20;  // a spec of 20,000 stages, a reply
inline constexpr std::size_t log_bytes_max = 16u << 20;    // a piece of a log
inline constexpr std::size_t name_bytes_max = 256;
inline constexpr std::size_t list_items_max = 100'000;
inline constexpr std::int64_t chunk_bytes_max = 4 << 20;   // a piece of a checkpoint
}  // namespace wire

// What a worker can give.
struct WorkerResources {
  int slots = 1;                     // stages at the same time
  int gpu = 0;
  int cores = 1;
  std::int64_t memory_bytes = 0;
  std::vector<std::string> labels;
  std::string device_class;          // "cpu-avx512", "sm_90": part of content keys of measurements
  std::int64_t disk_quota_bytes = 0;  // for its checkpoints, its own and fetched ones; 0: no limit
};

// An attempt that a worker holds: running, or finished and not yet acknowledged.
struct HeldAttempt {
  AttemptRef ref;
  bool finished = false;
  bool preparing = false;  // its inputs are being fetched: nothing runs yet
};

// ---- worker -> coordinator ------------------------------------------------------------------
struct WorkerHello {
  WorkerId worker;
  std::string session;               // random, new at each start of the process
  std::string host;
  std::int64_t pid = 0;
  std::string software;              // "0.1.0"
  WorkerResources resources;
  std::vector<HeldAttempt> held;
};
// Live numbers of one running attempt; outside the durable path.
struct AttemptPulse {
  AttemptRef ref;
  std::int64_t log_bytes = 0;
  std::int64_t memory_bytes = 0;          // RSS of the whole tree without page cache
  std::int64_t progress_age_ms = 0;       // since the last progress or phase line
  std::int64_t log_age_ms = 0;            // since the log last grew
  std::int64_t elapsed_ms = 0;
  std::string phase;
  std::int64_t quiet_left_ms = 0;         // rest of a declared quiet phase
  std::optional<ProgressReport> progress;
  // Its inputs are being fetched, and the order can still be refused: nothing runs yet.
  bool preparing = false;
};
struct Heartbeat {
  WorkerId worker;
  std::string session;
  std::int64_t server_epoch = 0;
  std::int64_t disk_free_bytes = -1;      // of the checkpoint store; -1: unknown
  std::int64_t temp_free_bytes = -1;
  std::vector<AttemptPulse> attempts;
};
struct AttemptStarted {
  AttemptRef ref;
  std::int64_t pid = 0;
  std::string log_path;
};
struct CheckpointInfo {
  std::string path;                       // final folder on the worker's disk
  std::string digest;
  std::int64_t bytes = 0;
};
// The process is gone and its tree is empty. Sent again after each reconnect until acknowledged.
struct AttemptFinished {
  AttemptRef ref;
  Outcome outcome = Outcome::error;
  int exit_code = -1;                     // -1: ended by a signal
  int signal = 0;
  std::string reason;  // one line for people; the stage's own error where it gave one
  std::string log_tail;                   // last lines, at most 8 KiB
  std::int64_t elapsed_ms = 0;
  std::int64_t peak_memory_bytes = 0;     // of the process tree, as sampled
  bool committed = false;                 // the checkpoint is already renamed to its final place
  std::optional<CheckpointInfo> checkpoint;   // outcome ok
  std::vector<MetricReport> metrics;
  std::vector<RedLineResult> red_lines;
  std::vector<std::string> notes;
};
// The answer to CommitCheckpoint: it is at its final place, or why not.
struct CheckpointCommitted {
  AttemptRef ref;
  bool ok = false;
  std::string reason;
};
struct LogChunk {
  std::int64_t request = 0;
  AttemptRef ref;
  std::int64_t offset = 0;
  std::int64_t size = 0;                  // of the whole log now
  std::string bytes;
  std::string error;                      // not empty: the log could not be read
};
// An order that the worker cannot follow (no free slot, input missing): the attempt never ran.
struct AssignRefused {
  AttemptRef ref;
  std::string reason;
  bool input_missing = false;             // an input could not be fetched: nobody's failure
  std::string corrupt_input;              // stage whose checkpoint is not what its manifest says
};
// A worker without the checkpoint of `input` (a stage that `ref` needs) asks for a piece of one of
// its files. The coordinator asks the worker that has it (CheckpointRead) and passes the answer on.
// The asker bounds what is under way: so many requests are its credit.
struct InputRead {
  std::int64_t request = 0;
  AttemptRef ref;                         // the attempt that wants it
  std::string input;
  std::string file;                       // relative, as the manifest names it; "manifest.json"
  std::int64_t offset = 0;
  std::int64_t bytes_max = 1 << 20;
};
// The answer to both: `bytes` of the file from `offset`; fewer than asked only at its end.
struct CheckpointChunk {
  std::int64_t request = 0;
  std::int64_t offset = 0;
  std::int64_t size = 0;                  // of the whole file
  std::string bytes;
  std::string error;                      // not empty: it could not be read
  bool retryable = false;                 // of the error: its worker may come back
};
// The answer to DropCheckpoint: it is gone from the disk, or why not.
struct CheckpointDropped {
  AttemptRef ref;
  bool ok = false;
  std::string reason;
};

// ---- coordinator -> worker ------------------------------------------------------------------
struct WorkerWelcome {
  std::int64_t server_epoch = 0;
  std::int64_t heartbeat_ms = 1000;
  std::int64_t lease_ms = 10'000;  // without a word for so long, each side gives the other up
};
// Idempotent by ref: a worker that already has it says so again with AttemptStarted.
struct AssignAttempt {
  AttemptRef ref;
  std::int64_t server_epoch = 0;
  StageOrder order;
  std::vector<std::string> command;       // empty: the built-in nightshift-stage
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> input_digests;   // stage -> expected checkpoint digest
  std::string temp;                       // TMPDIR; empty: the worker's own
  std::string retry_reason;
  WatchdogSpec watchdog;
  std::int64_t wall_limit_ms = 0;
  std::vector<int> gpu_devices;           // which of the worker's devices it may use
};
// End it, with this class and reason. Also for attempts that the worker should not have.
struct StopAttempt {
  AttemptRef ref;
  Outcome outcome = Outcome::cancelled;
  std::string reason;
};
// The result is accepted: rename the checkpoint to its final place and answer.
struct CommitCheckpoint {
  AttemptRef ref;
};
// The attempt's end is stored: the worker may forget it (and removes out/ of attempts that failed).
struct AttemptAcknowledged {
  AttemptRef ref;
  bool accepted = true;                   // false: it was not the current attempt
};
struct LogRequest {
  std::int64_t request = 0;
  AttemptRef ref;
  std::int64_t offset = 0;                // < 0: from the end
  std::int64_t bytes_max = 64 * 1024;
};
struct WorkerShutdown {
  std::string reason;
};
struct CheckpointRead {
  std::int64_t request = 0;
  AttemptRef ref;                         // the attempt that made the checkpoint
  std::string file;
  std::int64_t offset = 0;
  std::int64_t bytes_max = 0;
};
// Collected under the disk quota: remove checkpoints/JOB/STAGE.N. Sent again until answered.
struct DropCheckpoint {
  AttemptRef ref;
};

// ---- CLI <-> coordinator --------------------------------------------------------------------
struct SubmitJob {
  std::string spec_json;                  // to_json_text(JobSpec)
  std::string source_text;                // the job file as written
  std::string user;
  std::string request;                    // random: sent again after a lost reply, it submits once
};
struct JobSubmitted {
  JobId job;
};
// Everything else that a person asks. `verb` and the JSON in `arguments` are listed in PROTOCOL.md:
//   status, workers, explain, logs, report, resume, cancel, ping.
struct Command {
  std::int64_t request = 0;
  std::string verb;
  std::string arguments_json = "{}";
};
struct CommandReply {
  std::int64_t request = 0;
  std::string body_json = "{}";
};
// To whom it concerns: the last message could not be followed.
struct ErrorReply {
  std::int64_t request = 0;               // 0: no request
  std::string code;                       // to_string(ErrorCode)
  std::string what;
  std::string where;
  std::string hint;
};

// The order is the message number minus one; append only.
using Message =
    std::variant<WorkerHello, WorkerWelcome, Heartbeat, AssignAttempt, AttemptStarted,
                 AttemptFinished, CommitCheckpoint, CheckpointCommitted, AttemptAcknowledged,
                 StopAttempt, AssignRefused, LogRequest, LogChunk, WorkerShutdown, SubmitJob,
                 JobSubmitted, Command, CommandReply, ErrorReply, InputRead, CheckpointRead,
                 CheckpointChunk, DropCheckpoint, CheckpointDropped>;

struct Frames {
  std::string head;     // magic + version
  std::string number;   // one byte
  std::string body;     // MessagePack
};

const char* message_name(const Message& message);   // "worker_hello"
Frames encode(const Message& message);
// Every bound is checked here: names, list lengths, ranges, UTF-8, finite numbers, attempt >= 1.
Result<Message> decode(std::string_view head, std::string_view number, std::string_view body);

}  // namespace nightshift
