// The coordinator's socket and loop. Knows ZeroMQ and Asio in its source only; what a message means
// is for server_desk.h.
//
// One thread, one turn after the other: take what has arrived (at most so much of each peer, so
// that none starves the others), run the handlers, commit once, send. What was acknowledged is in
// the store. Frames that make no sense are answered once and counted. A peer that floods loses its
// own messages beyond a bound: workers repeat theirs, the CLI asks again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "coordinator/clock.h"
#include "coordinator/home.h"
#include "coordinator/reactor.h"
#include "coordinator/server_desk.h"
#include "coordinator/store.h"
#include "schema/result.h"

namespace nightshift {

struct ServerOptions {
  std::string listen;              // beside the home's own endpoint: "tcp://HOST:PORT"; empty: none
  ReactorOptions reactor;
  DeskOptions desk;
  int parent_fd = -1;              // a pipe: ends when its other end has gone
  bool handle_signals = true;      // SIGTERM, SIGINT end the loop after its turn
  std::int64_t tick_ms = 200;
  std::size_t peer_messages_per_turn = 64;
  std::size_t peer_messages_waiting_max = 8'192;
  std::size_t peer_bytes_waiting_max = 128u << 20;
};

// For ReactorOptions::checkpoint_exists: looks at checkpoints below the home, believes in those of
// workers with another root.
std::function<bool(const std::string& path)> checkpoint_check(const Home& home);

class Server {
 public:
  // Makes keys and access files, opens the store, binds. The home's lock must be held; `store` and
  // `clock` must outlive the server.
  static Result<std::unique_ptr<Server>> open(const Home& home, Store& store, const Clock& clock,
                                              ServerOptions options, Desk::LogLine log);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Until a signal, stop(), or the parent has gone. Workers go on without it.
  Status run();
  // From any thread.
  void stop();

  const std::string& endpoint() const;          // what HOME/access.json names

 private:
  struct Loop;
  explicit Server(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace nightshift
