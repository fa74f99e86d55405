#include "worker/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "schema/stage_contract.h"
#include "worker/supervisor.h"

namespace nightshift {

namespace {

constexpr std::size_t report_bytes_per_poll = 256 * 1024;
constexpr std::size_t idle_supervisors_max = 32;

Status write_whole(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno_error(errno, "hand over the command", "launch file");
    done += static_cast<std::size_t>(wrote);
  }
  return {};
}

// The command as supervisor.h lays it out, in a file without a name: no size limit, no blocking.
Result<UniqueFd> make_launch(const StageCommand& command) {
  std::string text;
  const auto add = [&text](const std::string& field) {
    text += field;
    text += '\0';
    return field.find('\0') == std::string::npos;
  };
  bool clean = add(command.folder);
  add(std::to_string(command.arguments.size()));
  for (const std::string& argument : command.arguments) clean = add(argument) && clean;
  for (const std::string& variable : command.environment) clean = add(variable) && clean;
  if (!clean || command.arguments.empty() || command.arguments[0].empty()) {
    return Error{ErrorCode::invalid_argument, "the command is empty or holds a NUL character",
                 "stage command", "give `command` as a list of plain words"};
  }
  add(std::string(contract::env_report_fd) + "=" + std::to_string(supervisor::report_fd));
  UniqueFd fd(::memfd_create("nightshift-launch", MFD_CLOEXEC));
  if (!fd.is_open()) return errno_error(errno, "make the launch file", "memfd");
  NS_TRY(write_whole(fd.get(), text));
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

Result<IdleSupervisor> spawn_supervisor(const std::string& program) {
  int control[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) != 0) {
    return errno_error(errno, "make the control socket", "supervisor");
  }
  IdleSupervisor made{0, UniqueFd(control[0])};
  const UniqueFd there(control[1]);
  ::fcntl(made.control.get(), F_SETFL, O_NONBLOCK);
  // Above what the supervisor expects, so that no dup2 overwrites it or leaves it as it was.
  const UniqueFd source(::fcntl(there.get(), F_DUPFD_CLOEXEC, 16));
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  for (const int fd : {0, 1, 2}) {
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, source.get(), supervisor::control_fd);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::string name = "nightshift-worker";
  std::string argument = supervisor::argument;
  char* arguments[] = {name.data(), argument.data(), nullptr};
  const int failed =
      ::posix_spawn(&made.pid, program.c_str(), &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return errno_error(failed, "start the supervisor", program);
  return made;
}

// The kernel's reason names neither the file that was found nor what is wrong with it.
Error not_run_error(int reason, const std::string& program, const std::string& folder) {
  Error error = errno_error(reason, "run the command", program);
  if (program.find('/') == std::string::npos) return error;
  const std::string path = program.starts_with('/') ? program : folder + "/" + program;
  if (is_folder(path)) {
    error.what = "cannot run the command: it is a folder";
    error.hint = "name a program in it";
  } else if (reason == EACCES && is_file(path)) {
    error.hint = "make it executable (chmod +x), or write its interpreter before it";
  } else if (reason == ENOENT && is_file(path)) {
    error.hint = "the file is there, the interpreter that its first line names is not";
  }
  return error;
}

// False: it is dead.
bool send_launch(int control, int log, int report, int launch) {
  const int fds[3] = {log, report, launch};
  char text[] = "run\n";
  alignas(cmsghdr) char extra[CMSG_SPACE(sizeof fds)] = {};
  iovec piece{text, sizeof text - 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = extra;
  message.msg_controllen = sizeof extra;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(head), fds, sizeof fds);
  return ::sendmsg(control, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(piece.iov_len);
}

}  // namespace

ProcessFamily::ProcessFamily(std::string program) : program_(std::move(program)) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

ProcessFamily::~ProcessFamily() {
  for (IdleSupervisor& supervisor : idle_) end(std::move(supervisor));
}

Status ProcessFamily::warm_up() {
  NS_TRY_ASSIGN(IdleSupervisor made, spawn_supervisor(program_));
  supervisors_.insert(made.pid);
  idle_.push_back(std::move(made));
  return {};
}

Result<IdleSupervisor> ProcessFamily::take() {
  if (idle_.empty()) NS_TRY(warm_up());
  IdleSupervisor supervisor = std::move(idle_.back());
  idle_.pop_back();
  return supervisor;
}

void ProcessFamily::give_back(IdleSupervisor supervisor) {
  if (idle_.size() >= idle_supervisors_max) return end(std::move(supervisor));
  idle_.push_back(std::move(supervisor));
}

void ProcessFamily::end(IdleSupervisor supervisor) {
  supervisor.control.reset();
  ::waitpid(supervisor.pid, nullptr, 0);
  supervisors_.erase(supervisor.pid);
}

std::vector<ProcessInfo> ProcessFamily::end_strays() const {
  std::vector<ProcessInfo> processes = all_processes();
  // Cut the living supervisors out: the walk then does not come to what is theirs.
  std::erase_if(processes, [this](const ProcessInfo& p) { return supervisors_.contains(p.pid); });
  std::vector<ProcessInfo> strays;
  for (const ProcessInfo& process : descendants_of(::getpid(), processes)) {
    signal_process(process, SIGKILL);
    strays.push_back(process);
  }
  for (const ProcessInfo& process : processes) {
    if (process.parent == ::getpid()) ::waitpid(process.pid, nullptr, WNOHANG);
  }
  return strays;
}

Result<std::unique_ptr<StageProcess>> StageProcess::start(ProcessFamily& family,
                                                          const StageCommand& command) {
  NS_TRY_ASSIGN(const UniqueFd launch, make_launch(command));
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) {
    return errno_error(errno, "make the report pipe", "supervisor");
  }
  UniqueFd report_here(report[0]);
  const UniqueFd report_there(report[1]);
  ::fcntl(report_here.get(), F_SETFL, O_NONBLOCK);
  for (;;) {
    const bool was_waiting = family.idle() > 0;
    NS_TRY_ASSIGN(IdleSupervisor supervisor, family.take());
    if (send_launch(supervisor.control.get(), command.log_fd, report_there.get(), launch.get())) {
      return std::unique_ptr<StageProcess>(
          new StageProcess(family, command, std::move(supervisor), std::move(report_here)));
    }
    const int reason = errno;
    family.end(std::move(supervisor));
    // One that waited may have been killed from outside; a new one that is dead is a fault.
    if (!was_waiting) return errno_error(reason, "hand over the command", "supervisor");
  }
}

StageProcess::StageProcess(ProcessFamily& family, const StageCommand& command,
                           IdleSupervisor supervisor, UniqueFd report)
    : family_(family),
      program_(command.arguments[0]),
      folder_(command.folder),
      supervisor_(supervisor.pid),
      control_(std::move(supervisor.control)),
      report_(std::move(report)),
      report_lines_(contract::report_line_bytes_max) {}

StageProcess::~StageProcess() {
  if (empty_said_) return;
  control_.reset();
  if (family_.has(supervisor_) && ::waitpid(supervisor_, nullptr, WNOHANG) != 0) {
    family_.remove(supervisor_);
  }
}

// Its end of the socket is closed: it is exiting.
void StageProcess::reap_supervisor() {
  control_.reset();
  if (!family_.has(supervisor_)) return;
  ::waitpid(supervisor_, nullptr, 0);
  family_.remove(supervisor_);
}

void StageProcess::stop(std::int64_t grace_ms) {
  if (!control_.is_open()) return;
  const std::string line = "stop " + std::to_string(grace_ms) + "\n";
  // Full only if the supervisor has not read hundreds of earlier stops: they do the same.
  [[maybe_unused]] const auto sent =
      ::send(control_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::vector<ProcessEvent> StageProcess::poll_events() {
  std::vector<ProcessEvent> events;
  if (empty_said_) return events;
  if (!empty_) {
    read_report(events);
    if (control_.is_open()) {
      read_control(events);
    } else {
      on_supervisor_gone(events);
    }
  }
  if (empty_) {
    if (control_.is_open()) family_.give_back({supervisor_, std::move(control_)});
    drain_report(events);
    if (!exited_) events.push_back(ProcessExited{-1, SIGKILL});
    empty_said_ = true;
    events.push_back(ProcessTreeEmpty{});
  }
  return events;
}

void StageProcess::read_control(std::vector<ProcessEvent>& events) {
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::recv(control_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) break;
    for (const std::string& line : control_lines_.add({buffer, static_cast<std::size_t>(got)})) {
      on_control_line(line, events);
    }
  }
  reap_supervisor();
  if (!empty_) on_supervisor_gone(events);
}

void StageProcess::on_control_line(const std::string& line, std::vector<ProcessEvent>& events) {
  const auto space = line.find(' ');
  const std::string word = line.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
  if (word == "started") {
    events.push_back(ProcessStarted{static_cast<pid_t>(std::atol(rest.c_str()))});
  } else if (word == "failed") {
    exited_ = true;
    events.push_back(ProcessNotStarted{not_run_error(std::atoi(rest.c_str()), program_, folder_)});
  } else if (word == "exited") {
    char* end = nullptr;
    const long code = std::strtol(rest.c_str(), &end, 10);
    exited_ = true;
    events.push_back(
        ProcessExited{static_cast<int>(code), static_cast<int>(std::strtol(end, nullptr, 10))});
  } else if (word == "leftovers") {
    events.push_back(ProcessNote{"processes outlived the stage and were ended: " + rest});
  } else if (word == "survivors") {
    events.push_back(ProcessNote{"SIGKILL has not ended yet: " + rest});
  } else if (word == "empty") {
    empty_ = true;
  }
}

// It was killed itself: its stage got SIGKILL from the kernel, and the rest came to this process.
void StageProcess::on_supervisor_gone(std::vector<ProcessEvent>& events) {
  const std::vector<ProcessInfo> strays = family_.end_strays();
  if (!strays_noted_) {
    strays_noted_ = true;
    std::string text = "the supervisor was killed from outside";
    if (!strays.empty()) text += "; ended from the worker: " + describe_processes(strays);
    events.push_back(ProcessNote{text});
  }
  empty_ = strays.empty();
}

void StageProcess::read_report(std::vector<ProcessEvent>& events) {
  char buffer[16 * 1024];
  std::size_t total = 0;
  while (report_.is_open() && total < report_bytes_per_poll) {
    const ssize_t got = ::read(report_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      report_.reset();
      return;
    }
    total += static_cast<std::size_t>(got);
    for (std::string& line : report_lines_.add({buffer, static_cast<std::size_t>(got)})) {
      events.push_back(ProcessReportLine{std::move(line)});
    }
  }
}

// Nobody writes any more: what is left is what the pipe can hold.
void StageProcess::drain_report(std::vector<ProcessEvent>& events) {
  for (int round = 0; round < 8 && report_.is_open(); ++round) read_report(events);
  report_.reset();
  for (std::string& line : report_lines_.finish()) {
    events.push_back(ProcessReportLine{std::move(line)});
  }
}

}  // namespace nightshift
