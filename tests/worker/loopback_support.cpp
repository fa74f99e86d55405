#include "tests/worker/loopback_support.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "schema/access.h"

namespace nightshift::test {

struct FakeCoordinator::Zmq {
  void* context = zmq_ctx_new();
  void* socket = nullptr;
  ~Zmq() {
    if (socket != nullptr) zmq_close(socket);
    zmq_ctx_term(context);
  }
};

FakeCoordinator::FakeCoordinator(const std::string& folder)
    : access_path_(folder + "/access"), endpoint_("ipc://" + folder + "/socket") {
  char server_public[41], server_secret[41], client_public[41], client_secret[41];
  REQUIRE(zmq_curve_keypair(server_public, server_secret) == 0);
  REQUIRE(zmq_curve_keypair(client_public, client_secret) == 0);
  server_secret_ = server_secret;
  const Status wrote =
      write_access(access_path_, {endpoint_, server_public, client_public, client_secret});
  REQUIRE(wrote.ok());
  open();
}

FakeCoordinator::~FakeCoordinator() = default;

void FakeCoordinator::open() {
  zmq_ = std::make_unique<Zmq>();
  zmq_->socket = zmq_socket(zmq_->context, ZMQ_ROUTER);
  const int one = 1;
  const int zero = 0;
  const int timeout_ms = 30'000;
  zmq_setsockopt(zmq_->socket, ZMQ_CURVE_SERVER, &one, sizeof one);
  zmq_setsockopt(zmq_->socket, ZMQ_CURVE_SECRETKEY, server_secret_.c_str(), 41);
  zmq_setsockopt(zmq_->socket, ZMQ_LINGER, &zero, sizeof zero);
  zmq_setsockopt(zmq_->socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
  REQUIRE(zmq_bind(zmq_->socket, endpoint_.c_str()) == 0);
}

void FakeCoordinator::restart() {
  zmq_.reset();
  open();
}

void FakeCoordinator::send_raw(const std::vector<std::string>& frames) {
  zmq_send(zmq_->socket, peer_.data(), peer_.size(), ZMQ_SNDMORE);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    zmq_send(zmq_->socket, frames[i].data(), frames[i].size(),
             i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
  }
}

void FakeCoordinator::send(const Message& message) {
  const Frames frames = encode(message);
  send_raw({frames.head, frames.number, frames.body});
}

Message FakeCoordinator::receive(const Message& wanted, std::int64_t until_ms) {
  REQUIRE_MESSAGE(monotonic_ms() < until_ms, "it does not come: ", message_name(wanted));
  std::vector<std::string> parts;
  int more = 1;
  while (more != 0) {
    zmq_msg_t part;
    zmq_msg_init(&part);
    REQUIRE_MESSAGE(zmq_msg_recv(&part, zmq_->socket, 0) >= 0, "nothing came, waiting for ",
                    message_name(wanted));
    parts.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
    more = zmq_msg_more(&part);
    zmq_msg_close(&part);
  }
  REQUIRE(parts.size() == 4);
  peer_ = parts[0];
  auto message = decode(parts[1], parts[2], parts[3]);
  REQUIRE_MESSAGE(message.ok(), (message.ok() ? "" : message.error().line()));
  return std::move(*message);
}

WorkerProcess::WorkerProcess(const std::string& folder, const std::string& access,
                             std::vector<std::string> more) {
  int parent[2];
  REQUIRE(::pipe2(parent, O_CLOEXEC) == 0);
  parent_.reset(parent[1]);
  const std::string program = worker_program();
  const std::string root = folder + "/root";
  const std::string log = folder + "/worker.log";
  pid_ = ::fork();
  if (pid_ == 0) {
    const int log_fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    ::dup2(log_fd, 2);
    ::fcntl(parent[0], F_SETFD, 0);
    std::vector<std::string> texts = {"nightshift-worker",
                                      "--access",
                                      access,
                                      "--root",
                                      root,
                                      "--name",
                                      "box1",
                                      "--label",
                                      "night",
                                      "--label",
                                      "big",
                                      "--stop-grace",
                                      "1",
                                      "--parent-fd",
                                      std::to_string(parent[0])};
    texts.insert(texts.end(), more.begin(), more.end());
    std::vector<char*> arguments;
    for (std::string& text : texts) arguments.push_back(text.data());
    arguments.push_back(nullptr);
    ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }
  ::close(parent[0]);
}

WorkerProcess::~WorkerProcess() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void WorkerProcess::signal(int number) {
  ::kill(pid_, number);
}

int WorkerProcess::wait() {
  int status = 0;
  const bool ended = eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
  CHECK(ended);
  if (ended) pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace nightshift::test
