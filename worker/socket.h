// The worker's connection to its coordinator: a ZeroMQ DEALER with CURVE. The only file of the
// worker that knows ZeroMQ; must not know what messages mean.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "schema/access.h"
#include "schema/messages.h"
#include "schema/result.h"

namespace nightshift {

struct SocketConnected {};
struct SocketDisconnected {
  std::string reason;
};
struct SocketGarbage {
  Error error;
};  // frames that are no message
using SocketEvent = std::variant<SocketConnected, SocketDisconnected, SocketGarbage, Message>;

// A plain descriptor to wait for together with the socket.
struct WaitFor {
  int fd = -1;
  bool ready = false;  // readable, closed or broken
};

class CoordinatorSocket {
 public:
  explicit CoordinatorSocket(Access access);
  ~CoordinatorSocket();
  CoordinatorSocket(const CoordinatorSocket&) = delete;
  CoordinatorSocket& operator=(const CoordinatorSocket&) = delete;

  // A new socket (an earlier one is dropped with what it had queued) that connects in the
  // background and again after a loss. Errors: a wrong key or endpoint.
  Status open();
  // Sends what is queued for at most so long, then closes.
  void close(int linger_ms);

  // Until something can be received, a descriptor is ready, or the time is over.
  void wait(std::vector<WaitFor>& others, int timeout_ms);
  // What has come, at most a few hundred events a call.
  std::vector<SocketEvent> receive();
  // Never blocks. `unavailable` when there is no connection or its queue is full: dropped.
  Status send(const Message& message);

 private:
  struct Zmq;
  void receive_monitor(std::vector<SocketEvent>& events);
  bool receive_message(std::vector<SocketEvent>& events);

  Access access_;
  std::unique_ptr<Zmq> zmq_;
  bool connected_ = false;
};

}  // namespace nightshift
