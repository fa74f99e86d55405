// Processes by pid *and* start time, and the trees they form, from /proc. Knows the kernel; must
// not know stages. Used by the supervisor (to end a tree), the probes (to measure one) and the
// worker's start (to end what a killed worker left behind).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nightshift {

// A pid alone names whoever has it now; with the start time (clock ticks since boot) it names one
// process for ever.
struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
  std::uint64_t start_ticks = 0;
  char state = '?';  // R, S, D, T, Z, ...
  std::string name;  // as the kernel keeps it: 15 characters
};

std::optional<ProcessInfo> read_process(pid_t pid);
// All that can be seen now; about 10 us a process.
std::vector<ProcessInfo> all_processes();
// `root`'s children and theirs, without `root` and without zombies.
std::vector<ProcessInfo> descendants_of(pid_t root, const std::vector<ProcessInfo>& processes);

enum class Signalled { sent, gone, refused };
// Sends through a pidfd after comparing the start time, so that a recycled pid is never hit.
Signalled signal_process(const ProcessInfo& process, int signal);

// Processes (not this one) in whose environment the variable `name` begins with `prefix`.
std::vector<ProcessInfo> processes_with_environment(const std::string& name,
                                                    const std::string& prefix);

// "1234 python3, 1240 python3 and 3 more".
std::string describe_processes(const std::vector<ProcessInfo>& processes);

}  // namespace nightshift
