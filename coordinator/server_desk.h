// What the coordinator does with a message: who sent it, which handler it goes to, and who gets the
// answer. Knows the engine, messages and peers (as opaque addresses); must not know sockets.
//
// A turn is any number of on_... calls and then one end_turn(), which commits what the handlers
// changed and gives out the letters that may leave. A letter never leaves before the commit of the
// turn that wrote it. When the commit fails, the turn's messages to workers are gone with it (the
// engine starts from the store again, and they are made anew); people who asked in that turn are
// told `unavailable`, with the reason, instead of the answer that is no longer true.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/clock.h"
#include "coordinator/home.h"
#include "coordinator/reactor_engine.h"
#include "schema/json_fwd.h"
#include "schema/messages.h"

namespace nightshift {

struct Letter {
  std::string peer;         // address as the socket gave it
  Message message;
};

struct DeskOptions {
  std::int64_t log_answer_ms_max = 5'000;      // how long a worker may take to send a piece of log
  std::int64_t chunk_answer_ms_max = 20'000;   // or a piece of a checkpoint
  std::int64_t peer_idle_ms_max = 10 * 60'000; // then a peer is forgotten
  std::int64_t reopen_ms = 1'000;              // between tries to load a store that failed
  std::size_t jobs_listed_max = 500;
};

struct DeskCounters {
  std::int64_t messages = 0;
  std::int64_t garbage = 0;                    // frames that are no message
  std::int64_t misdirected = 0;                // messages that only a coordinator sends
  std::int64_t unknown_workers = 0;            // reports before a hello
  std::int64_t unreachable = 0;                // letters that could not be delivered
  std::int64_t failed_commits = 0;
  std::int64_t flooded = 0;                    // dropped: more than a peer may have waiting
  std::int64_t refused_keys = 0;               // handshakes that the gate refused
  std::int64_t checkpoint_bytes = 0;           // passed on from worker to worker
};

class Desk {
 public:
  using LogLine = std::function<void(const std::string& line)>;   // "event=... key=value"

  Desk(Engine& engine, Home home, LogLine log, DeskOptions options = {});

  void on_message(const std::string& peer, const Message& message, Now now);
  // Answered once for each peer, so that a broken one cannot make us talk.
  void on_garbage(const std::string& peer, const Error& why, Now now);
  void on_tick(Now now);
  // The socket knows no such peer any more.
  void on_unreachable(const std::string& peer);
  std::vector<Letter> end_turn(Now now);

  DeskCounters& counters() { return counters_; }

 private:
  struct Peer {
    std::optional<Sender> sender;     // a worker that has said hello or sent a heartbeat
    std::int64_t last_word_mono_ms = 0;
    bool garbage_answered = false;
  };
  struct OpenLog {                    // a piece of log that a worker was asked for
    std::string peer;
    std::int64_t request = 0;         // of the person
    AttemptRef ref;
    WorkerId worker;
    bool is_open = false;
    std::int64_t offset = 0;  // that was asked for
    std::int64_t deadline_mono_ms = 0;
  };
  struct Transfer {                   // a piece of a checkpoint that a worker was asked for
    std::string peer;                 // who wants it
    InputRead read;
    WorkerId holder;
    std::int64_t deadline_mono_ms = 0;
  };
  struct LogPlace {                   // which log a person means
    AttemptRef ref;
    WorkerId worker;
    bool is_open = false;             // more may be written to it
  };
  struct OnMessage;

  // ---- server_desk.cpp
  void bind(const std::string& peer, const WorkerId& worker, const std::string& session);
  void reply(const std::string& peer, std::int64_t request, const Result<Json>& body);
  void reply_error(const std::string& peer, std::int64_t request, const Error& error);
  void on_submit_job(const std::string& peer, const SubmitJob& submit, Now now);
  void on_command(const std::string& peer, const Command& command, Now now);
  void forget_idle_peers(Now now);
  void reopen_if_broken(Now now);
  std::vector<Letter> give_up_turn(const Error& why);

  // ---- server_transfers.cpp
  void on_input_read(const std::string& peer, const Sender& sender, const InputRead& read,
                     Now now);
  void on_checkpoint_chunk(const Sender& sender, const CheckpointChunk& chunk);
  void expire_transfers(Now now);

  // ---- server_commands.cpp: the verbs
  Result<Json> ping(Now now) const;
  Result<Json> status(const Json& arguments, Now now) const;
  Result<Json> workers(Now now) const;
  Result<Json> explain(const Json& arguments, Now now) const;
  Result<Json> resume(const Json& arguments, Now now);
  Result<Json> cancel(const Json& arguments, Now now);
  Result<Json> pin(const Json& arguments, Now now);
  // nullopt: a worker has been asked, the answer comes with on_log_chunk.
  Result<std::optional<Json>> logs(const std::string& peer, std::int64_t request,
                                   const Json& arguments, Now now);
  void on_log_chunk(const std::string& peer, const LogChunk& chunk);
  Result<LogPlace> find_log(const Json& arguments) const;
  // By number, else the newest of that name.
  Result<JobId> find_job_id(const Json& arguments) const;

  Engine& engine_;
  Home home_;
  LogLine log_;
  DeskOptions options_;
  DeskCounters counters_;
  std::map<std::string, Peer> peers_;
  std::map<std::pair<WorkerId, std::string>, std::string> addresses_;   // worker, session -> peer
  std::map<std::int64_t, OpenLog> open_logs_;                           // by our request number
  std::int64_t last_log_request_ = 0;
  std::map<std::int64_t, Transfer> transfers_;                          // by our request number
  std::int64_t last_transfer_ = 0;
  std::vector<Letter> letters_;                                         // wait for the commit
  std::int64_t next_reopen_mono_ms_ = 0;
};

}  // namespace nightshift
