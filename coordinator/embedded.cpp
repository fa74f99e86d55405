#include "coordinator/embedded.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "schema/json.h"

extern char** environ;

namespace nightshift {

namespace {

constexpr int child_pipe_fd = 3;
constexpr std::int64_t restart_ms_min = 500;
constexpr std::int64_t restart_ms_max = 16'000;
constexpr std::int64_t poll_ms = 20;
constexpr std::size_t log_bytes_read = 64 * 1024;

std::int64_t mono_now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(poll_ms)); }

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

// The last line of a log that says something, for an error message.
std::string last_words(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string text(log_bytes_read, '\0');
  const off_t size = ::lseek(fd, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(text.size()));
  const ssize_t got = ::pread(fd, text.data(), text.size(), from);
  ::close(fd);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const std::size_t newline = text.rfind('\n');
  return newline == std::string::npos ? text : text.substr(newline + 1);
}

class SpawnActions {
 public:
  SpawnActions() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnActions() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
};

}  // namespace

Result<std::string> program_beside(const std::string& name) {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return errno_error(failed.value(), "find this program", "/proc/self/exe");
  const std::string path = (self.parent_path() / name).string();
  if (::access(path.c_str(), X_OK) != 0) {
    return Error{ErrorCode::not_found, fmt::format("{} is not beside this program", name), path,
                 "install all Nightshift programs in one folder"};
  }
  return path;
}

EmbeddedPair::EmbeddedPair(Home home, EmbeddedOptions options)
    : home_(std::move(home)), options_(std::move(options)) {
  coordinator_.name = "coordinator";
  coordinator_.restarts_max = options_.coordinator_restarts_max;
  worker_.name = "worker";
  worker_.restarts_max = options_.worker_restarts_max;
}

EmbeddedPair::~EmbeddedPair() { stop(); }

Result<std::unique_ptr<EmbeddedPair>> EmbeddedPair::start(const Home& home,
                                                          EmbeddedOptions options) {
  NS_TRY(home.create());
  std::unique_ptr<EmbeddedPair> pair(new EmbeddedPair(home, std::move(options)));
  NS_TRY(pair->make_commands());
  NS_TRY(pair->spawn(pair->coordinator_));
  NS_TRY(pair->wait_until_ready());
  NS_TRY(pair->spawn(pair->worker_));
  return pair;
}

Status EmbeddedPair::make_commands() {
  std::error_code failed;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  if (failed) return errno_error(failed.value(), "find this program", "/proc/self/exe");
  NS_TRY_ASSIGN(const std::string worker, program_beside("nightshift-worker"));
  const std::string fd = std::to_string(child_pipe_fd);
  coordinator_.command = {self, "coordinator", "--home", home_.root(), "--parent-fd", fd};
  worker_.command = {worker,   "--access", home_.access_file(),   "--root",  home_.root(),
                     "--name", options_.worker_name, "--slots", std::to_string(options_.slots),
                     "--parent-fd", fd};
  if (!options_.stage_program.empty()) {
    worker_.command.insert(worker_.command.end(), {"--stage-program", options_.stage_program});
  }
  return {};
}

std::string EmbeddedPair::log_of(const Child& child) const {
  return fmt::format("{}/{}.log", home_.logs_folder(), child.name);
}

Status EmbeddedPair::spawn(Child& child) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "make a pipe", "");
  const std::string log = log_of(child);
  SpawnActions with;
  ::posix_spawn_file_actions_addopen(&with.actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&with.actions, 1, log.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::posix_spawn_file_actions_adddup2(&with.actions, 1, 2);
  ::posix_spawn_file_actions_adddup2(&with.actions, ends[0], child_pipe_fd);
  ::posix_spawnattr_setflags(&with.attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&with.attributes, 0);
  std::vector<char*> arguments;
  for (std::string& argument : child.command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const int failed = ::posix_spawn(&child.pid, arguments[0], &with.actions, &with.attributes,
                                   arguments.data(), environ);
  ::close(ends[0]);
  if (failed != 0) {
    ::close(ends[1]);
    child.pid = -1;
    return errno_error(failed, "start the " + child.name, child.command[0]);
  }
  child.pipe_fd = ends[1];
  return {};
}

// Ready is when the coordinator that we started answers: an access file may be an old one.
Status EmbeddedPair::wait_until_ready() {
  const std::int64_t deadline = mono_now_ms() + options_.ready_ms_max;
  while (mono_now_ms() < deadline) {
    std::string how;
    if (reap(coordinator_, &how)) {
      return Error{ErrorCode::io, fmt::format("the coordinator ended at its start ({}): {}", how,
                                              last_words(log_of(coordinator_))),
                   "", "its log is " + log_of(coordinator_)};
    }
    nap();
    if (coordinator_pid(home_) != coordinator_.pid) continue;
    const Result<Access> access = read_access(home_.access_file());
    if (!access.ok()) continue;
    Result<Client> client = Client::open(*access, {250, 1});
    if (!client.ok()) continue;
    const Result<Json> answer = client->ask("ping", Json::object());
    if (answer.ok() && answer->value("pid", 0) == coordinator_.pid) return {};
  }
  return Error{ErrorCode::unavailable,
               fmt::format("the coordinator does not answer after {} s: {}",
                           options_.ready_ms_max / 1000, last_words(log_of(coordinator_))),
               "", "its log is " + log_of(coordinator_)};
}

bool EmbeddedPair::reap(Child& child, std::string* how) {
  if (child.pid < 0) return true;
  int status = 0;
  const pid_t ended = ::waitpid(child.pid, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
  if (how) *how = ended > 0 ? how_it_ended(status) : "unknown";
  child.pid = -1;
  if (child.pipe_fd >= 0) ::close(child.pipe_fd);
  child.pipe_fd = -1;
  return true;
}

Status EmbeddedPair::tend_child(Child& child, std::int64_t mono_ms,
                                std::vector<std::string>& lines) {
  if (child.pid >= 0) {
    std::string how;
    if (!reap(child, &how)) return {};
    if (child.restarts >= child.restarts_max) {
      return Error{ErrorCode::unavailable,
                   fmt::format("the {} ended {} times, the last time with {}: {}", child.name,
                               child.restarts + 1, how, last_words(log_of(child))),
                   "", "its log is " + log_of(child)};
    }
    const std::int64_t pause = std::min(restart_ms_max, restart_ms_min << child.restarts);
    child.restart_mono_ms = mono_ms + pause;
    lines.push_back(fmt::format("the {} ended ({}); it is started again in {:.1f} s ({} of {})",
                                child.name, how, static_cast<double>(pause) / 1000,
                                child.restarts + 1, child.restarts_max));
  }
  if (mono_ms < child.restart_mono_ms) return {};
  ++child.restarts;
  return spawn(child);
}

Result<std::vector<std::string>> EmbeddedPair::tend(std::int64_t mono_ms) {
  std::vector<std::string> lines;
  NS_TRY(tend_child(coordinator_, mono_ms, lines));
  NS_TRY(tend_child(worker_, mono_ms, lines));
  return lines;
}

// The closed pipe asks; signals follow where it is not heard.
void EmbeddedPair::end_child(Child& child, std::int64_t wait_ms) {
  if (child.pid < 0) return;
  if (child.pipe_fd >= 0) ::close(child.pipe_fd);
  child.pipe_fd = -1;
  const std::int64_t begun = mono_now_ms();
  bool has_asked = false;
  while (!reap(child)) {
    const std::int64_t waited = mono_now_ms() - begun;
    if (waited > wait_ms) {
      ::kill(child.pid, SIGKILL);
      int status = 0;
      ::waitpid(child.pid, &status, 0);
      child.pid = -1;
      return;
    }
    if (waited > wait_ms / 2 && !has_asked) {
      ::kill(child.pid, SIGTERM);
      has_asked = true;
    }
    nap();
  }
}

void EmbeddedPair::stop() {
  end_child(worker_, options_.stop_ms_max);
  end_child(coordinator_, options_.stop_ms_max / 2);
}

}  // namespace nightshift
