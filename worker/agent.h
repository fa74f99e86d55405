// The worker's state machine: what it holds, and what it does about every message and event. Pure:
// no I/O and no clock; `now_ms` is an argument, and the answer is a list of actions for the loop.
// Knows messages and attempts; must not know sockets, processes or folders.
//
// An attempt goes
//
//   preparing -> running -> sealing -> finished -> (acknowledged: forgotten)
//
// preparing  its folder is being made; the order can still be refused
// running    its supervisor was started; a stop may have been asked for
// sealing    its process tree is empty; the result is being made durable
// finished   the result is on disk; reported after each (re)connect until it is acknowledged
//
// Silence. Any message from the coordinator renews the lease. Past half the lease the agent asks
// (hello), past the whole lease it makes its connection anew, backing off 1 -> 32 s, and watches
// its attempts alone (cut_off_watch.h). It does not end them then: a coordinator that restarts
// finds its stages running. Only after `fence_after_ms` it ends them itself as `lost`, so that an
// attempt which was given to somebody else does not run for ever; that time is longer than any
// amnesty of a coordinator, whose guard is the attempt number anyway. Finished results stay until
// they are acknowledged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "schema/messages.h"
#include "worker/attempt_record.h"
#include "worker/cut_off_watch.h"

namespace nightshift {

struct AgentOptions {
  WorkerId worker;
  std::string session;  // random, new at each start
  std::string host;
  std::int64_t pid = 0;
  std::string software;
  WorkerResources resources;
  std::int64_t stop_grace_ms = 10'000;
  std::int64_t fence_after_ms = 10 * 60'000;
  std::int64_t backoff_ms_min = 1'000;
  std::int64_t backoff_ms_max = 32'000;
  std::int64_t report_again_ms = 10'000;  // an end without an answer: a full queue dropped it
  std::int64_t goodbye_ms = 2'000;        // waits so long for acknowledgements when it ends
};

// ---- Actions --------------------------------------------------------------------------------
struct SendMessage {
  Message message;
};
struct StartStage {
  AssignAttempt order;
};  // prepare the folder, start the process
struct StopStage {
  AttemptRef ref;
  std::int64_t grace_ms = 0;
};
struct FinishAttempt {
  AttemptFinished draft;
};  // seal and make durable
struct CommitAttempt {
  AttemptRef ref;
};  // rename out/ to its final place
struct ForgetAttempt {
  AttemptRef ref;
  bool accepted = false;
};
struct ReadLog {
  LogRequest request;
};
struct Reconnect {};  // a new socket
struct WriteLog {     // a line in the worker's own log
  std::string event;
  std::vector<std::pair<std::string, std::string>> fields;
};
struct ExitWorker {};
using Action = std::variant<SendMessage, StartStage, StopStage, FinishAttempt, CommitAttempt,
                            ForgetAttempt, ReadLog, Reconnect, WriteLog, ExitWorker>;

class Agent {
 public:
  // `unreported`: results found on disk (AttemptStore::recover).
  Agent(AgentOptions options, std::vector<AttemptFinished> unreported, std::int64_t now_ms);

  // ---- connection
  void on_connected(std::int64_t now_ms);
  void on_disconnected(std::int64_t now_ms);
  void on_message(const Message& message, std::int64_t now_ms);
  // Something came that is not a message: a sign of life, and nothing else.
  void on_bad_message(const Error& error, std::int64_t now_ms);

  // ---- what the actions led to
  void on_stage_started(const AttemptRef& ref, std::int64_t pid, const std::string& log_path,
                        std::int64_t now_ms);
  // The folder could not be made: a full disk ends the attempt, anything else refuses the order.
  void on_prepare_failed(const AttemptRef& ref, const Error& error, std::int64_t now_ms);
  // The process could not be started; on_tree_empty follows.
  void on_not_started(const AttemptRef& ref, const Error& error);
  void on_report_line(const AttemptRef& ref, const std::string& line, std::int64_t now_ms);
  void on_process_note(const AttemptRef& ref, const std::string& text);
  void on_stage_exited(const AttemptRef& ref, const StageExit& exit);
  void on_tree_empty(const AttemptRef& ref, std::int64_t lines_dropped, std::int64_t now_ms);
  void on_result_stored(const AttemptFinished& result);
  void on_committed(const AttemptRef& ref, const Status& status);
  void on_log_read(const LogChunk& chunk);

  // ---- time and probes
  void on_sample(const AttemptRef& ref, const AttemptSample& sample, std::int64_t now_ms);
  void on_disk_sample(const DiskSample& sample) { disk_ = sample; }
  void on_tick(std::int64_t now_ms);
  // Ends all stages gracefully as `lost`, keeps state and results, then asks to exit.
  void on_terminate(const std::string& reason, std::int64_t now_ms);

  std::vector<Action> take_actions() { return std::exchange(actions_, {}); }
  // When on_tick has something to do next; at most a second away.
  std::int64_t next_tick_ms(std::int64_t now_ms) const;
  std::vector<AttemptRef> running() const;
  bool is_terminating() const { return !terminating_.empty(); }

 private:
  enum class State { preparing, running, sealing, finished };
  struct Attempt {
    Attempt(AssignAttempt order_, std::int64_t now_ms)
        : order(std::move(order_)), record(order.ref, now_ms) {}
    State state = State::preparing;
    AssignAttempt order;
    AttemptRecord record;
    CutOffWatch watch;
    std::int64_t pid = 0;  // 0: not yet running
    std::string log_path;
    std::string survivors;
    std::optional<StopAttempt> stop;
    bool stop_sent = false;
    bool committing = false;
    AttemptFinished result;  // finished
  };
  struct OnMessage;

  void act(Action action) { actions_.push_back(std::move(action)); }
  void send(Message message) { act(SendMessage{std::move(message)}); }
  void log(std::string event, std::vector<std::pair<std::string, std::string>> fields);
  Attempt* find(const AttemptRef& ref);
  bool is_unfinished(const Attempt& attempt) const { return attempt.state != State::finished; }

  void on_welcome(const WorkerWelcome& welcome, std::int64_t now_ms);
  void on_assign(const AssignAttempt& order, std::int64_t now_ms);
  std::string why_refuse(const AssignAttempt& order) const;
  void on_stop(const StopAttempt& stop);
  void on_commit(const CommitCheckpoint& commit);
  void on_acknowledged(const AttemptAcknowledged& acknowledged);

  void say_hello(std::int64_t now_ms);
  void report_all(std::int64_t now_ms);
  void report_finished(std::int64_t now_ms);
  void report(const Attempt& attempt);
  void send_heartbeat(std::int64_t now_ms);
  void ask_to_stop(Attempt& attempt, const StopAttempt& stop);
  void watch_connection(std::int64_t now_ms);
  void watch_alone(std::int64_t now_ms);
  void watch_end(std::int64_t now_ms);

  AgentOptions options_;
  std::map<AttemptRef, Attempt> attempts_;
  std::vector<Action> actions_;
  DiskSample disk_;

  bool connected_ = false;
  bool hello_open_ = false;  // said, not answered
  bool welcomed_ = false;
  std::int64_t epoch_ = 0;
  std::int64_t heartbeat_ms_ = 1'000;
  std::int64_t lease_ms_ = 10'000;
  std::int64_t last_word_ms_;
  std::int64_t next_hello_ms_;
  std::int64_t hello_backoff_ms_;
  std::int64_t next_reconnect_ms_;
  std::int64_t reconnect_backoff_ms_;
  std::int64_t next_heartbeat_ms_;
  std::int64_t next_report_ms_ = 0;
  std::int64_t next_look_ms_;
  bool fenced_ = false;

  std::string terminating_;   // why; empty: it is not
  std::int64_t exit_ms_ = 0;  // all stages are gone: leaves then at the latest
  bool exit_said_ = false;
};

}  // namespace nightshift
