// A disk that runs full while a result is made durable. A small tmpfs in a mount namespace of its
// own, in a forked child; where the system forbids that, the test says so.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/worker/support.h"
#include "worker/attempt_store.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

constexpr int no_namespace = 77;

// Exit status of `body` in a child whose `folder` is a tmpfs of `size`.
int on_small_disk(const std::string& folder, const char* size, const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool own = ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    if (!own || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder.c_str(), "tmpfs", 0, (std::string("size=") + size).c_str()) != 0) {
      ::_exit(no_namespace);
    }
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

void fill(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  const std::string block(4096, 'x');
  while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
  }
}

}  // namespace

TEST_CASE("disk full: the result cannot be stored: outcome disk, with the path, and it is told") {
  TempFolder folder;
  const int status = on_small_disk(folder.path(), "2m", [&] {
    AttemptStore store(folder.path());
    const AttemptRef ref = make_ref(3, "quantize", 1);
    if (!store.open() || !store.prepare(make_order(ref), {})) return 1;
    fill(store.attempt_folder(ref) + "/out/weights");
    AttemptFinished draft;
    draft.ref = ref;
    draft.outcome = Outcome::ok;
    const AttemptFinished result = store.finish(draft);
    if (result.outcome != Outcome::disk || result.checkpoint) return 2;
    if (result.reason.find(store.attempt_folder(ref)) == std::string::npos) return 3;
    if (result.reason.find("No space left") == std::string::npos) return 5;
    // Room was made by dropping what is of no use, and the result is durable after all.
    const auto stored = store.recover();
    if (stored.size() != 1 || stored[0].outcome != Outcome::disk) return 4;
    return 0;
  });
  if (status == no_namespace) {
    MESSAGE("skipped: no mount namespace");
    return;
  }
  CHECK(status == 0);
}

TEST_CASE("disk full: an order finds no room: out_of_disk, the earlier state/ is not lost") {
  TempFolder folder;
  const int status = on_small_disk(folder.path(), "1m", [&] {
    AttemptStore store(folder.path());
    const AttemptRef ref = make_ref(3, "quantize", 1);
    if (!store.open() || !store.prepare(make_order(ref), {})) return 1;
    write_text(store.attempt_folder(ref) + "/state/step", "40");
    AttemptFinished draft;
    draft.ref = ref;
    draft.outcome = Outcome::crash;
    (void)store.finish(draft);
    fill(folder.path() + "/somebody-elses-file");
    const AttemptRef next = make_ref(3, "quantize", 2);
    const auto prepared = store.prepare(make_order(next), {});
    if (prepared || prepared.error().code != ErrorCode::out_of_disk) return 2;
    if (read_text(store.attempt_folder(ref) + "/state/step") != "40") return 3;
    return 0;
  });
  if (status == no_namespace) {
    MESSAGE("skipped: no mount namespace");
    return;
  }
  CHECK(status == 0);
}
