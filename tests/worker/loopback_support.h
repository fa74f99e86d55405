// A coordinator of a few lines, and the real worker program. Knows ZeroMQ through its .cpp.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/worker/support.h"
#include "worker/clock.h"

namespace nightshift::test {

// A ROUTER with CURVE on an ipc endpoint in `folder`; speaks to whoever spoke last.
class FakeCoordinator {
 public:
  explicit FakeCoordinator(const std::string& folder);
  ~FakeCoordinator();
  FakeCoordinator(const FakeCoordinator&) = delete;
  FakeCoordinator& operator=(const FakeCoordinator&) = delete;

  const std::string& access_path() const { return access_path_; }
  void send(const Message& message);
  void send_raw(const std::vector<std::string>& frames);
  // The next message of this kind within half a minute; others are passed over.
  template <typename T>
  T expect() {
    const std::int64_t until = monotonic_ms() + 30'000;
    for (;;) {
      const Message message = receive(T{}, until);
      if (const auto* found = std::get_if<T>(&message)) return *found;
    }
  }
  // Closes and binds again: a new process on the same endpoint.
  void restart();

 private:
  struct Zmq;
  Message receive(const Message& wanted, std::int64_t until_ms);
  void open();

  std::string access_path_;
  std::string endpoint_;
  std::string server_secret_;
  std::string peer_;
  std::unique_ptr<Zmq> zmq_;
};

// `nightshift-worker` with its root in FOLDER/root, slots 1, labels night and big, --parent-fd.
// Ended with SIGKILL and reaped at the end, its tree with it.
class WorkerProcess {
 public:
  WorkerProcess(const std::string& folder, const std::string& access,
                std::vector<std::string> more = {});
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  void signal(int number);
  void close_parent() { parent_.reset(); }
  int wait();  // the exit status; -1 by a signal; at most half a minute

 private:
  pid_t pid_ = 0;
  UniqueFd parent_;
};

}  // namespace nightshift::test
