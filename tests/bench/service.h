// A real coordinator process for benches, and workers that are nothing but their side of the wire:
// they answer every order at once. Knows ZeroMQ; the coordinator is the `nightshift` beside the
// bench.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "schema/access.h"
#include "schema/messages.h"
#include "tests/bench/bench_night.h"

namespace nightshift::bench {

namespace fs = std::filesystem;

inline std::string own_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

// Ends with the object, by SIGKILL: what it left must be enough for the next one.
class Process {
 public:
  explicit Process(std::vector<std::string> command, const std::string& log) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int fd : {1, 2}) {
      posix_spawn_file_actions_addopen(&actions, fd, log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                       0644);
    }
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (::posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ) != 0) {
      pid_ = 0;
    }
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Process() { kill(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  // User and system time so far, of all its threads.
  double cpu_s() const {
    clockid_t clock = 0;
    return ::clock_getcpuclockid(pid_, &clock) == 0 ? seconds(clock) : 0;
  }

 private:
  pid_t pid_ = 0;
};

class Folder {
 public:
  explicit Folder(const fs::path& parent) {
    path_ = (parent / "nightshift-bench-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Service {
 public:
  explicit Service(const fs::path& parent) : folder_(parent) { start(); }

  void start() {
    process_ = std::make_unique<Process>(
        std::vector<std::string>{own_folder() + "/nightshift", "--home", home(), "coordinator"},
        folder_.path() + "/coordinator.log");
  }
  void kill() { process_->kill(); }
  double cpu_s() const { return process_->cpu_s(); }
  std::string home() const { return folder_.path() + "/home"; }
  std::string folder() const { return folder_.path(); }
  // Waits for the access file of a first start.
  std::optional<Access> access() const {
    for (int i = 0; i < 500; ++i) {
      if (auto access = read_access(home() + "/access.json"); access.ok()) return *access;
      ::usleep(10'000);
    }
    fmt::print(stderr, "the coordinator does not start, see {}\n", folder_.path());
    return std::nullopt;
  }

 private:
  Folder folder_;
  std::unique_ptr<Process> process_;
};

// One connection.
class Peer {
 public:
  Peer(zmq::context_t& context, const Access& access)
      : socket(context, zmq::socket_type::dealer) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::sndhwm, 0);
    socket.set(zmq::sockopt::rcvhwm, 0);
    socket.set(zmq::sockopt::reconnect_ivl, 20);
    socket.set(zmq::sockopt::curve_serverkey, access.server_public);
    socket.set(zmq::sockopt::curve_publickey, access.client_public);
    socket.set(zmq::sockopt::curve_secretkey, access.client_secret);
    socket.connect(access.endpoint);
  }
  void send(const Message& message) {
    const Frames frames = encode(message);
    socket.send(zmq::buffer(frames.head), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(frames.number), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(frames.body), zmq::send_flags::none);
  }
  std::optional<Message> receive() {
    zmq::message_t parts[3];
    if (!socket.recv(parts[0], zmq::recv_flags::dontwait)) return std::nullopt;
    (void)socket.recv(parts[1]);
    (void)socket.recv(parts[2]);
    auto message = decode(parts[0].to_string_view(), parts[1].to_string_view(),
                          parts[2].to_string_view());
    if (!message.ok()) {
      fmt::print(stderr, "{}\n", message.error().line());
      return std::nullopt;
    }
    return std::move(*message);
  }

  zmq::socket_t socket;
};

// Workers without processes, on the thread that calls run_until.
class Crew {
 public:
  Crew(const Access& access, int workers, int slots) : access_(access) {
    for (int i = 0; i < workers; ++i) {
      peers_.push_back(std::make_unique<Peer>(context_, access));
      WorkerHello hello;
      hello.worker = {fmt::format("box{}", i)};
      hello.session = fmt::format("session-{}", i);
      hello.host = "here";
      hello.pid = 1;
      hello.resources.slots = slots;
      hellos_.push_back(hello);
      epochs_.push_back(0);
      unanswered_.emplace_back();
      peers_.back()->send(hello);
    }
  }

  // Answers orders until `is_over`, at most so long; false: the time is over.
  bool run_until(const std::function<bool()>& is_over, double limit_s) {
    const double end = seconds(CLOCK_MONOTONIC) + limit_s;
    std::vector<zmq::pollitem_t> items;
    for (const auto& peer : peers_) items.push_back({peer->socket.handle(), 0, ZMQ_POLLIN, 0});
    while (!is_over()) {
      const double now = seconds(CLOCK_MONOTONIC);
      if (now > end) return false;
      if (now >= next_beat_) beat(now);
      zmq::poll(items, std::chrono::milliseconds(50));
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        if ((items[i].revents & ZMQ_POLLIN) == 0) continue;
        for (int n = 0; n < 256; ++n) {
          const auto message = peers_[i]->receive();
          if (!message) break;
          answer(i, *message);
        }
      }
    }
    return true;
  }

  int assigned = 0;
  int done = 0;
  double first_assign_s = 0;    // CLOCK_MONOTONIC
  bool does_work = true;        // false: takes orders, and starts nothing
  bool beats = true;

 private:
  void beat(double now) {
    next_beat_ = now + 1;
    for (std::size_t i = 0; i < peers_.size() && beats; ++i) {
      if (epochs_[i] == 0) peers_[i]->send(hellos_[i]);
      Heartbeat beat;
      beat.worker = hellos_[i].worker;
      beat.session = hellos_[i].session;
      beat.server_epoch = epochs_[i];
      if (epochs_[i] != 0) peers_[i]->send(beat);
    }
    if (now < next_report_) return;  // what a full queue dropped is said again, as workers do
    next_report_ = now + 10;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      for (const auto& [ref, finished] : unanswered_[i]) peers_[i]->send(finished);
    }
  }
  void answer(std::size_t i, const Message& message) {
    if (const auto* welcome = std::get_if<WorkerWelcome>(&message)) {
      if (epochs_[i] != 0 && epochs_[i] != welcome->server_epoch) peers_[i]->send(hellos_[i]);
      epochs_[i] = welcome->server_epoch;
    } else if (const auto* assign = std::get_if<AssignAttempt>(&message)) {
      if (assigned++ == 0) first_assign_s = seconds(CLOCK_MONOTONIC);
      if (!does_work) return;
      peers_[i]->send(AttemptStarted{assign->ref, 1, "/log"});
      AttemptFinished finished;
      finished.ref = assign->ref;
      finished.outcome = Outcome::ok;
      finished.exit_code = 0;
      finished.elapsed_ms = 1;
      finished.checkpoint = CheckpointInfo{"/c/" + to_string(assign->ref), "0123456789abcdef", 1};
      peers_[i]->send(finished);
      unanswered_[i].insert_or_assign(assign->ref, finished);
    } else if (const auto* commit = std::get_if<CommitCheckpoint>(&message)) {
      peers_[i]->send(CheckpointCommitted{commit->ref, true, ""});
    } else if (const auto* stored = std::get_if<AttemptAcknowledged>(&message)) {
      if (unanswered_[i].erase(stored->ref) > 0) done += 1;
    }
  }

  Access access_;
  zmq::context_t context_{1};
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<WorkerHello> hellos_;
  std::vector<std::int64_t> epochs_;
  std::vector<std::map<AttemptRef, AttemptFinished>> unanswered_;
  double next_beat_ = 0;
  double next_report_ = seconds(CLOCK_MONOTONIC) + 10;
};

}  // namespace nightshift::bench
