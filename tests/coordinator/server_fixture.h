// A coordinator with its socket, on a thread, in a home of its own; and peers that speak to it.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "coordinator/client.h"
#include "coordinator/curve_keys.h"
#include "coordinator/home.h"
#include "coordinator/server.h"
#include "coordinator/store.h"
#include "schema/access.h"
#include "schema/json.h"
#include "schema/messages.h"

namespace nightshift::testing {

struct TemporaryHome {
  std::string path;
  TemporaryHome() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ns-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~TemporaryHome() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Home home() const {
    Result<Home> home = Home::locate(path);
    REQUIRE(home.ok());
    REQUIRE(home->create().ok());
    return *home;
  }
};

// Runs from the constructor to stop() or the destructor.
class RunningServer {
 public:
  RunningServer(const Home& home, Store& store, ServerOptions options = {}) : home_(home) {
    options.handle_signals = false;
    options.tick_ms = 20;
    Result<std::unique_ptr<Server>> server =
        Server::open(home, store, clock_, std::move(options), [this](const std::string& line) {
          const std::lock_guard lock(mutex_);
          lines_.push_back(line);
        });
    if (!server.ok()) FAIL(server.error().line());
    server_ = std::move(*server);
    thread_ = std::thread([this] { CHECK(server_->run().ok()); });
  }
  ~RunningServer() { stop(); }

  void stop() {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
    server_.reset();
  }
  Access access() const {
    Result<Access> access = read_access(home_.access_file());
    REQUIRE(access.ok());
    return *access;
  }
  Client client(ClientOptions options = {2'000, 3}) const {
    Result<Client> client = Client::open(access(), options);
    REQUIRE(client.ok());
    return std::move(*client);
  }
  bool has_logged(const std::string& part) {
    const std::lock_guard lock(mutex_);
    for (const std::string& line : lines_) {
      if (line.find(part) != std::string::npos) return true;
    }
    return false;
  }

 private:
  Home home_;
  SystemClock clock_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

// A DEALER that says what it is told to.
class RawPeer {
 public:
  explicit RawPeer(const Access& access, const std::string& routing_id = "")
      : socket_(context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 0);
    if (!routing_id.empty()) socket_.set(zmq::sockopt::routing_id, routing_id);
    socket_.set(zmq::sockopt::curve_serverkey, access.server_public);
    socket_.set(zmq::sockopt::curve_publickey, access.client_public);
    socket_.set(zmq::sockopt::curve_secretkey, access.client_secret);
    socket_.connect(access.endpoint);
  }
  void send_frames(const std::vector<std::string>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      socket_.send(zmq::buffer(frames[i]),
                   i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }
  void send(const Message& message) {
    const Frames frames = encode(message);
    send_frames({frames.head, frames.number, frames.body});
  }
  // nullopt: nothing came in time.
  std::optional<Message> receive(std::int64_t wait_ms = 3'000) {
    zmq::pollitem_t item{socket_.handle(), 0, ZMQ_POLLIN, 0};
    if (zmq::poll(&item, 1, std::chrono::milliseconds(wait_ms)) == 0) return std::nullopt;
    std::vector<std::string> frames;
    zmq::message_t part;
    do {
      (void)socket_.recv(part, zmq::recv_flags::none);
      frames.push_back(part.to_string());
    } while (part.more());
    REQUIRE(frames.size() == 3);
    Result<Message> message = decode(frames[0], frames[1], frames[2]);
    if (!message.ok()) FAIL(message.error().line());
    return std::move(*message);
  }
  // The next message of this kind; others are passed over.
  template <typename T>
  T expect(std::int64_t wait_ms = 5'000) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
    while (std::chrono::steady_clock::now() < until) {
      std::optional<Message> message = receive(200);
      if (!message) continue;
      if (T* wanted = std::get_if<T>(&*message)) return std::move(*wanted);
    }
    FAIL("the expected message did not come");
    return T{};
  }

 private:
  zmq::context_t context_{1};
  zmq::socket_t socket_;
};

// Says hello and does what it is told, message by message.
class FakeWorker {
 public:
  FakeWorker(const Access& access, const std::string& name, const std::string& session,
             const std::string& routing_id = "")
      : peer(access, routing_id), name_(name), session_(session) {
    hello();
    welcome = peer.expect<WorkerWelcome>();
  }
  void hello(std::vector<HeldAttempt> held = {}) {
    WorkerHello hello;
    hello.worker = {name_};
    hello.session = session_;
    hello.host = "here";
    hello.pid = 1;
    hello.software = "test";
    hello.held = std::move(held);
    peer.send(hello);
  }
  void started(const AttemptRef& ref, const std::string& log_path = "/log") {
    peer.send(AttemptStarted{ref, 17, log_path});
  }
  void finished(const AttemptRef& ref, const std::string& checkpoint = "/checkpoints/x") {
    AttemptFinished report;
    report.ref = ref;
    report.outcome = Outcome::ok;
    report.exit_code = 0;
    report.elapsed_ms = 5;
    report.checkpoint = CheckpointInfo{checkpoint, "digest-of-x", 10};
    report.metrics = {{"ttft_ms", 118, "ms", "", "m"}};
    peer.send(report);
  }
  // From the assignment to the acknowledgement.
  AttemptRef do_one() {
    const AttemptRef ref = peer.expect<AssignAttempt>().ref;
    started(ref);
    finished(ref);
    CHECK(peer.expect<CommitCheckpoint>().ref == ref);
    peer.send(CheckpointCommitted{ref, true, ""});
    const AttemptAcknowledged acknowledged = peer.expect<AttemptAcknowledged>();
    CHECK(acknowledged.ref == ref);
    CHECK(acknowledged.accepted);
    return ref;
  }

  RawPeer peer;
  WorkerWelcome welcome;

 private:
  std::string name_;
  std::string session_;
};

}  // namespace nightshift::testing
