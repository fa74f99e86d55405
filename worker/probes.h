// What the worker measures: memory of process trees, free disk, sizes of logs, its own resources.
// Knows /proc and statvfs; must not judge. Every probe answers with a value or with nothing (could
// not be seen), and may take as long as a stuck disk or process does: the loop asks on a background
// thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schema/messages.h"
#include "worker/process_tree.h"

namespace nightshift {

// Memory of one process without the page cache (a mapped model file is not the process's).
// Anonymous and shared memory; `shared_fairly` divides pages that several processes map by their
// number (Pss), at the price of a walk over the page tables.
std::optional<std::int64_t> process_memory(pid_t pid, bool shared_fairly);

// Of everything below `root`. One process is counted exactly and cheaply; of several, pages that
// they share after fork (data loaders) count once.
std::optional<std::int64_t> tree_memory(pid_t root, const std::vector<ProcessInfo>& processes);

// Bytes that this user may still write below `path`.
std::optional<std::int64_t> disk_free(const std::string& path);
std::optional<std::int64_t> file_bytes(const std::string& path);

// How many processes the kernel has killed for memory: in this cgroup where it is counted, else on
// the machine. Only its growth means something.
std::optional<std::int64_t> oom_kills();

// "cpu-avx512", "cpu-avx2" or "cpu".
std::string device_class();
// Cores by affinity, memory of the machine or of the cgroup's limit.
WorkerResources own_resources(int slots, const std::vector<std::string>& labels);
std::string host_name();

}  // namespace nightshift
