#include "worker/probes.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "worker/files.h"

namespace nightshift {

namespace {

// The number behind "Name:" or "name " at the begin of a line.
std::optional<std::int64_t> field(std::string_view text, std::string_view name) {
  std::size_t at = text.starts_with(name) ? 0 : text.find("\n" + std::string(name));
  if (at == text.npos) return std::nullopt;
  at = text.find_first_of("0123456789", at + name.size() + (at == 0 ? 0 : 1));
  if (at == text.npos) return std::nullopt;
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data() + at, text.data() + text.size(), value);
  return parsed.ec == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<std::string> read_text(const std::string& path) {
  auto text = read_file(path, 1 << 20);
  return text ? std::optional(std::move(*text)) : std::nullopt;
}

std::optional<std::int64_t> sum_kib(const std::string& path, std::string_view first,
                                    std::string_view second) {
  const auto text = read_text(path);
  if (!text) return std::nullopt;
  const auto a = field(*text, first);
  const auto b = field(*text, second);
  if (!a || !b) return std::nullopt;  // ended, or a kernel thread
  return (*a + *b) * 1024;
}

// The folder of this process in cgroup v2, or v1's memory controller.
std::string cgroup_folder() {
  const auto text = read_text("/proc/self/cgroup");
  if (!text) return "";
  std::string unified;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    const std::string line = text->substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("0::")) unified = "/sys/fs/cgroup" + line.substr(3);
    const auto v1 = line.find(":memory:");
    if (v1 != std::string::npos) return "/sys/fs/cgroup/memory" + line.substr(v1 + 8);
  }
  return unified;
}

}  // namespace

std::optional<std::int64_t> process_memory(pid_t pid, bool shared_fairly) {
  const std::string folder = "/proc/" + std::to_string(pid);
  if (shared_fairly) {
    const auto fair = sum_kib(folder + "/smaps_rollup", "Pss_Anon:", "Pss_Shmem:");
    if (fair) return fair;
  }
  return sum_kib(folder + "/status", "RssAnon:", "RssShmem:");
}

std::optional<std::int64_t> tree_memory(pid_t root, const std::vector<ProcessInfo>& processes) {
  const std::vector<ProcessInfo> tree = descendants_of(root, processes);
  std::int64_t total = 0;
  bool seen = false;
  for (const ProcessInfo& process : tree) {
    const auto bytes = process_memory(process.pid, tree.size() > 1);
    if (!bytes) continue;  // ended in between
    total += *bytes;
    seen = true;
  }
  return seen ? std::optional(total) : std::nullopt;
}

std::optional<std::int64_t> disk_free(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return std::nullopt;
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

std::optional<std::int64_t> file_bytes(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return static_cast<std::int64_t>(info.st_size);
}

std::optional<std::int64_t> oom_kills() {
  const std::string folder = cgroup_folder();
  for (const char* name : {"/memory.events", "/memory.oom_control"}) {
    const auto text = folder.empty() ? std::nullopt : read_text(folder + name);
    if (!text) continue;
    if (const auto count = field(*text, "oom_kill ")) return count;
  }
  const auto machine = read_text("/proc/vmstat");
  return machine ? field(*machine, "oom_kill ") : std::nullopt;
}

std::string device_class() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return "cpu-avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "cpu-avx2";
#endif
  return "cpu";
}

WorkerResources own_resources(int slots, const std::vector<std::string>& labels) {
  WorkerResources resources;
  resources.slots = slots;
  resources.labels = labels;
  resources.device_class = device_class();
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = ::sched_getaffinity(0, sizeof set, &set) == 0;
  resources.cores =
      std::max(1, known ? CPU_COUNT(&set) : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  resources.memory_bytes = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                           static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  const std::string folder = cgroup_folder();
  for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
    const auto text = folder.empty() ? std::nullopt : read_text(folder + name);
    const auto limit = text ? field(*text, "") : std::nullopt;
    if (limit && *limit > 0) resources.memory_bytes = std::min(resources.memory_bytes, *limit);
  }
  return resources;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace nightshift
