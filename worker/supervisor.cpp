#include "worker/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "worker/clock.h"
#include "worker/files.h"
#include "worker/line_buffer.h"
#include "worker/process_tree.h"

namespace nightshift {

namespace {

using namespace supervisor;

struct Launch {
  std::string folder;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
};

bool read_launch(int fd, Launch& launch) {
  std::string text;
  char buffer[16 * 1024];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  std::vector<std::string> fields;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\0', begin);
    if (end == std::string::npos) return false;
    fields.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (fields.size() < 3) return false;
  const std::size_t count = std::strtoul(fields[1].c_str(), nullptr, 10);
  if (count == 0 || fields.size() < 2 + count) return false;
  launch.folder = fields[0];
  const auto middle = fields.begin() + 2 + static_cast<std::ptrdiff_t>(count);
  launch.arguments.assign(fields.begin() + 2, middle);
  launch.environment.assign(middle, fields.end());
  return true;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

// In the child between fork and exec.
[[noreturn]] void become_stage(Launch& launch, pid_t parent, int failure_fd) {
  const auto fail = [failure_fd] {
    const int reason = errno;
    [[maybe_unused]] const auto wrote = ::write(failure_fd, &reason, sizeof reason);
    ::_exit(127);
  };
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  // Short of memory, the kernel shall end the stage, not the agent that reports it.
  if (const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); fd >= 0) {
    [[maybe_unused]] const auto wrote = ::write(fd, "500", 3);
    ::close(fd);
  }
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::fcntl(report_fd, F_SETFD, 0);
  if (::chdir(launch.folder.c_str()) != 0) fail();
  std::vector<char*> arguments = pointers(launch.arguments);
  std::vector<char*> variables = pointers(launch.environment);
  environ = variables.data();  // so that the stage's own PATH is searched
  ::execvp(arguments[0], arguments.data());
  fail();
  ::_exit(127);
}

class Supervisor {
 public:
  int run();

 private:
  enum class Phase { running, ending, killing };

  bool start(Launch& launch);
  void say(const std::string& line);
  void on_control();
  void on_command(const std::string& line);
  void on_signal();
  void reap();
  void begin_end(std::int64_t grace_ms);
  void terminate_tree(bool whole);
  void kill_tree();
  std::vector<ProcessInfo> tree() const { return descendants_of(::getpid(), all_processes()); }
  int wait_ms() const;

  UniqueFd signals_;
  bool worker_gone_ = false;
  LineBuffer commands_{4096};
  pid_t stage_ = 0;
  bool stage_gone_ = false;
  bool empty_ = false;
  Phase phase_ = Phase::running;
  std::int64_t deadline_ms_ = 0;  // ending: SIGKILL then; killing: the next round
  std::int64_t killing_since_ms_ = 0;
  std::int64_t survivors_said_ms_ = 0;
};

void Supervisor::say(const std::string& line) {
  if (worker_gone_) return;
  const std::string text = line + "\n";
  if (::send(control_fd, text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == EPIPE) {
    worker_gone_ = true;
  }
}

bool Supervisor::start(Launch& launch) {
  int failure[2];
  if (::pipe2(failure, O_CLOEXEC) != 0) return false;
  const UniqueFd failure_in(failure[0]);
  UniqueFd failure_out(failure[1]);
  const pid_t self = ::getpid();
  stage_ = ::fork();
  if (stage_ < 0) {
    say("failed " + std::to_string(errno));
    say("empty");
    return false;
  }
  if (stage_ == 0) become_stage(launch, self, failure_out.get());
  failure_out.reset();
  ::close(report_fd);
  int reason = 0;
  ssize_t got = 0;
  do {
    got = ::read(failure_in.get(), &reason, sizeof reason);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof reason) {
    ::waitpid(stage_, nullptr, 0);
    say("failed " + std::to_string(reason));
    say("empty");
    return false;
  }
  say("started " + std::to_string(stage_));
  return true;
}

void Supervisor::on_control() {
  char buffer[1024];
  const ssize_t got = ::recv(control_fd, buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    worker_gone_ = true;
    begin_end(leftover_grace_ms);
    return;
  }
  for (const std::string& line : commands_.add({buffer, static_cast<std::size_t>(got)})) {
    on_command(line);
  }
}

void Supervisor::on_command(const std::string& line) {
  if (line.starts_with("stop ")) begin_end(std::max(0L, std::atol(line.c_str() + 5)));
}

void Supervisor::on_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) begin_end(leftover_grace_ms);
  }
}

void Supervisor::reap() {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) empty_ = true;  // ECHILD
    if (pid <= 0) break;
    if (pid != stage_) continue;
    stage_gone_ = true;
    const bool by_signal = WIFSIGNALED(status);
    say("exited " + std::to_string(by_signal ? -1 : WEXITSTATUS(status)) + " " +
        std::to_string(by_signal ? WTERMSIG(status) : 0));
  }
  if (stage_gone_ && !empty_ && phase_ != Phase::killing) {
    const std::vector<ProcessInfo> left = tree();
    if (phase_ == Phase::running && !left.empty()) say("leftovers " + describe_processes(left));
    begin_end(leftover_grace_ms);
  }
}

// Asking twice never makes the grace longer.
void Supervisor::begin_end(std::int64_t grace_ms) {
  if (phase_ == Phase::killing) return;
  const std::int64_t deadline = monotonic_ms() + grace_ms;
  deadline_ms_ = phase_ == Phase::ending ? std::min(deadline_ms_, deadline) : deadline;
  phase_ = Phase::ending;
  terminate_tree(stage_gone_);
}

// While the stage's first process lives, only its session is asked: what has left the session may
// be something the stage wants to end in its own order.
void Supervisor::terminate_tree(bool whole) {
  for (const ProcessInfo& process : tree()) {
    if (!whole && process.session != stage_) continue;
    signal_process(process, SIGTERM);
    signal_process(process, SIGCONT);  // a stopped process hears the SIGTERM only now
  }
}

void Supervisor::kill_tree() {
  const std::int64_t now = monotonic_ms();
  if (phase_ != Phase::killing) {
    phase_ = Phase::killing;
    killing_since_ms_ = survivors_said_ms_ = now;
  }
  const std::vector<ProcessInfo> left = tree();
  for (const ProcessInfo& process : left) signal_process(process, SIGKILL);
  if (now - survivors_said_ms_ >= survivors_after_ms && !left.empty()) {
    survivors_said_ms_ = now;
    say("survivors " + describe_processes(left));
  }
  deadline_ms_ = now + (now - killing_since_ms_ < 1000 ? 20 : 200);
}

int Supervisor::wait_ms() const {
  if (phase_ == Phase::running) return -1;
  return static_cast<int>(std::max<std::int64_t>(0, deadline_ms_ - monotonic_ms()));
}

int Supervisor::run() {
  ::setsid();
  ::prctl(PR_SET_NAME, "ns-supervise");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t mask;
  sigemptyset(&mask);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, number);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  ::close_range(launch_fd + 1, ~0U, 0);
  signals_.reset(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  for (const int fd : {control_fd, report_fd, launch_fd}) ::fcntl(fd, F_SETFD, FD_CLOEXEC);

  Launch launch;
  if (!signals_.is_open() || !read_launch(launch_fd, launch)) {
    say("failed " + std::to_string(EINVAL));
    say("empty");
    return 1;
  }
  ::close(launch_fd);
  if (!start(launch)) return 0;

  while (!empty_) {
    pollfd polls[2] = {{signals_.get(), POLLIN, 0}, {worker_gone_ ? -1 : control_fd, POLLIN, 0}};
    ::poll(polls, 2, wait_ms());
    if (polls[0].revents != 0) on_signal();
    if (polls[1].revents != 0) on_control();
    reap();
    if (!empty_ && phase_ != Phase::running && monotonic_ms() >= deadline_ms_) kill_tree();
  }
  say("empty");
  return 0;
}

}  // namespace

int supervise_main() {
  return Supervisor().run();
}

}  // namespace nightshift
