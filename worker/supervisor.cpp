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
#include <utility>
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

// All that the child needs, made before it: between vfork and exec it shares this memory.
struct StageStart {
  std::vector<char*> arguments;
  std::vector<char*> variables;
  const char* folder = nullptr;
  int log = -1;
  int report = -1;
  pid_t parent = 0;
  volatile int failed = 0;
};

[[noreturn]] void become_stage(StageStart& start) {
  const auto fail = [&start] {
    start.failed = errno;
    ::_exit(127);
  };
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.parent) ::_exit(127);
  // Short of memory, the kernel shall end the stage, not the agent that reports it.
  if (const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); fd >= 0) {
    [[maybe_unused]] const auto wrote = ::write(fd, "500", 3);
    ::close(fd);
  }
  if (::dup2(start.log, 1) < 0 || ::dup2(start.log, 2) < 0) fail();
  if (::dup2(start.report, report_fd) < 0) fail();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::chdir(start.folder) != 0) fail();
  environ = start.variables.data();  // so that the stage's own PATH is searched
  ::execvp(start.arguments[0], start.arguments.data());
  fail();
  ::_exit(127);
}

// A copy of the page tables costs more than the rest of the start: hence vfork. The child changes
// nothing of ours but `failed` and `environ`. A function of its own, so that no variable of the
// caller lives in a register across the two returns.
[[gnu::noinline]] pid_t spawn_stage(StageStart& start) {
  char** const own = environ;
  const pid_t pid = ::vfork();
  if (pid == 0) become_stage(start);
  environ = own;
  return pid;
}

class Supervisor {
 public:
  int run();

 private:
  enum class Phase { idle, running, ending, killing };

  bool prepare();
  void serve();
  void start();
  void say(const std::string& line) { unsaid_ += line + "\n"; }
  void flush();
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
  std::vector<UniqueFd> received_;  // with `run`: log, report, launch
  std::string unsaid_;              // lines of one turn leave together
  bool worker_gone_ = false;
  LineBuffer commands_{4096};
  pid_t stage_ = 0;
  bool stage_gone_ = false;
  Phase phase_ = Phase::idle;
  std::int64_t deadline_ms_ = 0;  // ending: SIGKILL then; killing: the next round
  std::int64_t killing_since_ms_ = 0;
  std::int64_t survivors_said_ms_ = 0;
};

void Supervisor::flush() {
  const std::string text = std::exchange(unsaid_, {});
  if (worker_gone_ || text.empty()) return;
  if (::send(control_fd, text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == EPIPE) {
    worker_gone_ = true;
  }
}

void Supervisor::start() {
  std::vector<UniqueFd> fds = std::exchange(received_, {});
  Launch launch;
  if (fds.size() != 3 || !read_launch(fds[2].get(), launch)) {
    say("failed " + std::to_string(EINVAL));
    say("empty");
    return;
  }
  StageStart start;
  start.arguments = pointers(launch.arguments);
  start.variables = pointers(launch.environment);
  start.folder = launch.folder.c_str();
  start.log = fds[0].get();
  start.report = fds[1].get();
  start.parent = ::getpid();
  stage_ = spawn_stage(start);
  const int failed = stage_ < 0 ? errno : start.failed;
  if (failed != 0) {
    if (stage_ > 0) ::waitpid(stage_, nullptr, 0);
    say("failed " + std::to_string(failed));
    say("empty");
    return;
  }
  phase_ = Phase::running;
  stage_gone_ = false;
  say("started " + std::to_string(stage_));
}

void Supervisor::on_control() {
  char buffer[1024];
  alignas(cmsghdr) char extra[CMSG_SPACE(3 * sizeof(int))];
  iovec piece{buffer, sizeof buffer};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = extra;
  message.msg_controllen = sizeof extra;
  const ssize_t got = ::recvmsg(control_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    worker_gone_ = true;
    begin_end(leftover_grace_ms);
    return;
  }
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    received_.clear();
    for (std::size_t i = 0; i < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
      received_.emplace_back(fd);
    }
  }
  for (const std::string& line : commands_.add({buffer, static_cast<std::size_t>(got)})) {
    on_command(line);
  }
}

void Supervisor::on_command(const std::string& line) {
  if (line == "run" && phase_ == Phase::idle) start();
  if (line.starts_with("stop ")) begin_end(std::max(0L, std::atol(line.c_str() + 5)));
}

void Supervisor::on_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) begin_end(leftover_grace_ms);
  }
}

void Supervisor::reap() {
  bool empty = false;
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) empty = true;  // ECHILD
    if (pid <= 0) break;
    if (pid != stage_) continue;
    stage_gone_ = true;
    const bool by_signal = WIFSIGNALED(status);
    say("exited " + std::to_string(by_signal ? -1 : WEXITSTATUS(status)) + " " +
        std::to_string(by_signal ? WTERMSIG(status) : 0));
  }
  if (empty) {
    say("empty");
    phase_ = Phase::idle;
    return;
  }
  if (stage_gone_ && phase_ != Phase::killing) {
    const std::vector<ProcessInfo> left = tree();
    if (phase_ == Phase::running && !left.empty()) say("leftovers " + describe_processes(left));
    begin_end(leftover_grace_ms);
  }
}

// Asking twice never makes the grace longer.
void Supervisor::begin_end(std::int64_t grace_ms) {
  if (phase_ == Phase::idle || phase_ == Phase::killing) return;
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
  if (phase_ == Phase::idle || phase_ == Phase::running) return -1;
  return static_cast<int>(std::max<std::int64_t>(0, deadline_ms_ - monotonic_ms()));
}

bool Supervisor::prepare() {
  ::setsid();
  ::prctl(PR_SET_NAME, "ns-supervise");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // What the worker ignores must not be ignored by a stage.
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, number);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  ::close_range(control_fd + 1, ~0U, 0);
  ::fcntl(control_fd, F_SETFD, FD_CLOEXEC);
  // The stage's number is taken, so that nothing received lies there already: dup2 onto itself
  // would leave it to be closed by exec.
  if (::open("/dev/null", O_RDONLY | O_CLOEXEC) != report_fd) return false;
  signals_.reset(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  return signals_.is_open();
}

int Supervisor::run() {
  if (!prepare()) return 1;
  while (!worker_gone_ || phase_ != Phase::idle) serve();
  return 0;
}

void Supervisor::serve() {
  flush();
  pollfd polls[2] = {{signals_.get(), POLLIN, 0}, {worker_gone_ ? -1 : control_fd, POLLIN, 0}};
  ::poll(polls, 2, wait_ms());
  if (polls[0].revents != 0) on_signal();
  if (polls[1].revents != 0) on_control();
  if (phase_ == Phase::idle) return;
  reap();
  const bool ending = phase_ == Phase::ending || phase_ == Phase::killing;
  if (ending && monotonic_ms() >= deadline_ms_) kill_tree();
}

}  // namespace

int supervise_main() {
  return Supervisor().run();
}

}  // namespace nightshift
