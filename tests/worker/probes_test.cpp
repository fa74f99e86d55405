#include "worker/probes.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/worker/support.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

constexpr std::size_t mib = 1 << 20;

// A child that holds something and says so; killed at the end.
struct Holder {
  explicit Holder(const std::function<void()>& hold) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid = ::fork();
    if (pid == 0) {
      hold();
      [[maybe_unused]] const auto wrote = ::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Holder() {
    for (const ProcessInfo& p : descendants_of(pid, all_processes())) signal_process(p, SIGKILL);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  pid_t pid = 0;
};

void* touched(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(memory, 1, bytes);
  return memory;
}

}  // namespace

TEST_CASE("probes: page cache of a mapped and read file is not the process's memory") {
  TempFolder folder;
  const std::string path = folder.path() + "/model";
  write_text(path, std::string(64 * mib, 'w'));
  Holder holder([&] {
    const int fd = ::open(path.c_str(), O_RDONLY);
    const char* data =
        static_cast<const char*>(::mmap(nullptr, 64 * mib, PROT_READ, MAP_SHARED, fd, 0));
    volatile long sum = 0;
    for (std::size_t i = 0; i < 64 * mib; i += 4096) sum = sum + data[i];
    touched(20 * mib);
  });
  const auto bytes = process_memory(holder.pid, false);
  REQUIRE(bytes);
  CHECK(*bytes > static_cast<std::int64_t>(20 * mib));
  CHECK(*bytes < static_cast<std::int64_t>(40 * mib));
}

TEST_CASE("probes: forked data loaders that share a model count it once") {
  Holder holder([] {
    touched(32 * mib);
    for (int i = 0; i < 4; ++i) {
      if (::fork() == 0) {
        for (;;) ::pause();
      }
    }
  });
  ::usleep(50'000);
  // From the test process down: the holder and its four children are the tree.
  const auto bytes = tree_memory(::getpid(), all_processes());
  REQUIRE(bytes);
  CHECK(*bytes > static_cast<std::int64_t>(24 * mib));
  CHECK(*bytes < static_cast<std::int64_t>(60 * mib));  // not 5 x 32
}

TEST_CASE("probes: what cannot be seen is unknown, not zero") {
  CHECK_FALSE(process_memory(1 << 22, false));
  CHECK_FALSE(tree_memory(1 << 22, all_processes()));
  CHECK_FALSE(disk_free("/no/such/folder"));
  CHECK_FALSE(file_bytes("/no/such/file"));
}

TEST_CASE("probes: this machine") {
  CHECK(disk_free("/tmp").value_or(0) > 0);
  const WorkerResources own = own_resources(2, {"night"});
  CHECK(own.slots == 2);
  CHECK(own.cores >= 1);
  CHECK(own.memory_bytes > 0);
  CHECK(own.device_class.starts_with("cpu"));
  CHECK_FALSE(host_name().empty());
  CHECK(oom_kills().value_or(0) >= 0);
}

TEST_CASE("probes: a process name with spaces and brackets does not confuse its line") {
  Holder holder([] { ::prctl(PR_SET_NAME, "a) R 1 (b"); });
  const auto process = read_process(holder.pid);
  REQUIRE(process);
  CHECK(process->name == "a) R 1 (b");
  CHECK(process->parent == ::getpid());
}
