// What starting a stage costs: a stage of `/bin/true` under its supervisor, from the order to the
// empty tree, beside fork, exec and waitpid of the same program. Both start from this process,
// which is linked as the worker is and made as large (BALLAST_MIB, touched). The rounds take turns,
// so that both see the same machine; the figure is the ratio of their medians. posix_spawn, which
// copies no page tables, is shown too: the floor for any program. Usage: spawn_bench [ROUNDS
// [BALLAST_MIB]]
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "worker/process.h"

using namespace nightshift;

namespace {

double now_us() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

void report(const std::string& name, double value, const std::string& unit) {
  fmt::print(stderr, "{:<44} {:>14.3f} {}\n", name, value, unit);
  fmt::print("{{\"name\":\"{}\",\"value\":{:.6g},\"unit\":\"{}\"}}\n", name, value, unit);
}

std::string own_folder() {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  return parent_folder(std::string(path, static_cast<std::size_t>(std::max<ssize_t>(size, 0))));
}

std::optional<double> bare_us() {
  const double begun = now_us();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execl("/bin/true", "true", nullptr);
    ::_exit(127);
  }
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid || status != 0) return std::nullopt;
  return now_us() - begun;
}

std::optional<double> posix_spawn_us() {
  char name[] = "true";
  char* arguments[] = {name, nullptr};
  const double begun = now_us();
  pid_t pid = 0;
  int status = 0;
  if (::posix_spawn(&pid, "/bin/true", nullptr, nullptr, arguments, environ) != 0 ||
      ::waitpid(pid, &status, 0) != pid || status != 0) {
    return std::nullopt;
  }
  return now_us() - begun;
}

std::optional<double> stage_us(ProcessFamily& family, int log) {
  const double begun = now_us();
  auto process = StageProcess::start(family, {{"/bin/true"}, {"PATH=/usr/bin:/bin"}, "/tmp", log});
  if (!process.ok()) return std::nullopt;
  bool ended_well = false;
  while (!(*process)->is_empty()) {
    pollfd polls[2] = {{(*process)->control_fd(), POLLIN, 0}, {(*process)->report_fd(), POLLIN, 0}};
    ::poll(polls, 2, 1'000);
    for (const ProcessEvent& event : (*process)->poll_events()) {
      const auto* exited = std::get_if<ProcessExited>(&event);
      if (exited) ended_well = exited->exit_code == 0;
    }
  }
  if (!ended_well) return std::nullopt;
  return now_us() - begun;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = std::max(1, argc > 1 ? std::atoi(argv[1]) : 500);
  const int ballast_mib = std::max(0, argc > 2 ? std::atoi(argv[2]) : 16);
  const std::vector<char> ballast(static_cast<std::size_t>(ballast_mib) << 20, 'x');
  ProcessFamily family(own_folder() + "/nightshift-worker");
  const UniqueFd log(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const double cold_begun = now_us();
  if (!stage_us(family, log.get())) {
    fmt::print(stderr, "no stage can be started: is nightshift-worker beside this program?\n");
    return 1;
  }
  const double cold_us = now_us() - cold_begun;
  std::vector<double> bare;
  std::vector<double> floor;
  std::vector<double> stage;
  for (int i = 0; i < rounds + 20; ++i) {
    const auto one = bare_us();
    const auto least = posix_spawn_us();
    const auto other = stage_us(family, log.get());
    if (!one || !least || !other) return 1;
    if (i < 20) continue;  // caches
    bare.push_back(*one);
    floor.push_back(*least);
    stage.push_back(*other);
  }
  report("spawn_bare_us", median(bare), "us");
  report("spawn_posix_spawn_us", median(floor), "us");
  report("spawn_stage_us", median(stage), "us");
  report("spawn_first_stage_us", cold_us, "us");
  report("spawn_ratio", median(stage) / median(bare), "");
  report("spawn_ratio_to_posix_spawn", median(stage) / median(floor), "");
  return 0;
}
