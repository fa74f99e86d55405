#include "worker/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <string_view>

#include "worker/files.h"

namespace nightshift {

namespace {

// One read() is enough: the kernel gives /proc/PID/stat whole.
std::size_t read_small(const char* path, char* buffer, std::size_t size) {
  const UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return 0;
  const ssize_t got = ::read(fd.get(), buffer, size - 1);
  if (got <= 0) return 0;
  buffer[got] = '\0';
  return static_cast<std::size_t>(got);
}

// By number: the C library's header for these is not usable from C++ everywhere.
int open_pidfd(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}
int signal_pidfd(int fd, int signal) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0));
}

template <typename Number>
bool take_number(std::string_view& text, Number& value) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end.ptr - text.data()));
  return true;
}

}  // namespace

std::optional<ProcessInfo> read_process(pid_t pid) {
  char buffer[1024];
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const std::size_t size = read_small(path.c_str(), buffer, sizeof buffer);
  // "pid (name) state ppid pgrp session ... starttime(22) ...": the name may hold ')' itself.
  const std::string_view text(buffer, size);
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  if (open == text.npos || close == text.npos || close + 3 >= text.size()) return std::nullopt;
  ProcessInfo info;
  info.pid = pid;
  info.name = text.substr(open + 1, close - open - 1);
  info.state = text[close + 2];
  std::string_view rest = text.substr(close + 3);
  long long field = 0;
  if (!take_number(rest, info.parent)) return std::nullopt;
  if (!take_number(rest, field) || !take_number(rest, info.session)) return std::nullopt;
  for (int skipped = 7; skipped <= 21; ++skipped) {
    if (!take_number(rest, field)) return std::nullopt;
  }
  if (!take_number(rest, info.start_ticks)) return std::nullopt;
  return info;
}

std::vector<ProcessInfo> all_processes() {
  std::vector<ProcessInfo> processes;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return processes;
  while (const dirent* entry = ::readdir(folder)) {
    pid_t pid = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    const auto parsed = std::from_chars(entry->d_name, end, pid);
    if (parsed.ec != std::errc() || parsed.ptr != end) continue;
    if (auto info = read_process(pid)) processes.push_back(std::move(*info));
  }
  ::closedir(folder);
  return processes;
}

std::vector<ProcessInfo> descendants_of(pid_t root, const std::vector<ProcessInfo>& processes) {
  std::multimap<pid_t, const ProcessInfo*> by_parent;
  for (const ProcessInfo& process : processes) by_parent.emplace(process.parent, &process);
  std::vector<ProcessInfo> found;
  std::vector<pid_t> open = {root};
  // A list read while processes come and go can hold a cycle through a recycled pid: bounded.
  for (std::size_t steps = 0; !open.empty() && steps <= processes.size(); ++steps) {
    const pid_t parent = open.back();
    open.pop_back();
    const auto [first, last] = by_parent.equal_range(parent);
    for (auto it = first; it != last; ++it) {
      if (it->second->pid == root) continue;
      open.push_back(it->second->pid);
      if (it->second->state != 'Z' && it->second->state != 'X') found.push_back(*it->second);
    }
  }
  return found;
}

Signalled signal_process(const ProcessInfo& process, int signal) {
  const UniqueFd fd(open_pidfd(process.pid));
  if (!fd.is_open() && errno == ESRCH) return Signalled::gone;
  // The pidfd is open first: whoever it names cannot be swapped after the comparison.
  const auto now = read_process(process.pid);
  if (!now || now->start_ticks != process.start_ticks) return Signalled::gone;
  const int failed = fd.is_open() ? signal_pidfd(fd.get(), signal)
                                  : ::kill(process.pid, signal);  // kernels before 5.3
  if (failed == 0) return Signalled::sent;
  return errno == ESRCH ? Signalled::gone : Signalled::refused;
}

std::vector<ProcessInfo> processes_with_environment(const std::string& name,
                                                    const std::string& prefix) {
  std::vector<ProcessInfo> found;
  const std::string wanted = name + "=" + prefix;
  for (ProcessInfo& process : all_processes()) {
    if (process.pid == ::getpid() || process.state == 'Z') continue;
    auto text = read_file("/proc/" + std::to_string(process.pid) + "/environ", 8 << 20);
    if (!text) continue;  // another user's
    const std::string_view environment = *text;
    const bool first = environment.starts_with(wanted);
    if (first || environment.find(std::string(1, '\0') + wanted) != environment.npos) {
      found.push_back(std::move(process));
    }
  }
  return found;
}

std::string describe_processes(const std::vector<ProcessInfo>& processes) {
  std::string text;
  const std::size_t shown = std::min<std::size_t>(processes.size(), 8);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(processes[i].pid) + " " + processes[i].name;
    if (processes[i].state == 'D') text += " (in the kernel)";
  }
  if (processes.size() > shown) {
    text += " and " + std::to_string(processes.size() - shown) + " more";
  }
  return text;
}

}  // namespace nightshift
