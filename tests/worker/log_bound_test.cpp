// A log that is too long: its head and tail stay, and every reader says what is missing.
#include "worker/log_bound.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "schema/log_piece.h"
#include "tests/worker/loopback_support.h"
#include "worker/log_reader.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

constexpr std::int64_t kib = 1024;
constexpr std::int64_t mib = 1024 * kib;

std::int64_t bytes_on_disk(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_blocks * 512 : -1;
}

}  // namespace

TEST_CASE("log bound: a quarter in front and the rest behind, on whole edges") {
  CHECK(log_hole(0, 256 * mib).bytes == 0);
  CHECK(log_hole(256 * mib, 256 * mib).bytes == 0);
  CHECK(log_hole(256 * mib + 255 * kib, 256 * mib).bytes == 0);
  const LogHole hole = log_hole(1000 * mib + 5, 256 * mib);
  CHECK(hole.offset == 64 * mib);
  CHECK(hole.offset + hole.bytes == (1000 - 192) * mib);
  CHECK(log_hole(100 * mib, mib).offset == 256 * kib);
}

TEST_CASE("log bound: offsets, size and appending stay; a piece begins behind the hole") {
  TempFolder folder;
  const std::string path = folder.path() + "/log";
  std::string text;
  for (int i = 0; text.size() < 8 * mib; ++i) text += "line " + std::to_string(i) + "\n";
  write_text(path, text);
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  LogBound bound(fd.get(), 4 * mib);
  const Status kept = bound.keep();
  if (!kept && kept.error().code == ErrorCode::unsupported) {
    CHECK(bound.keep().ok());  // said once
    CHECK(read_text(path) == text);
    MESSAGE("skipped: this file system has no holes");
    return;
  }
  REQUIRE(kept.ok());
  CHECK(bytes_on_disk(path) <= 4 * mib + 300 * kib);
  const auto size = static_cast<std::int64_t>(text.size());
  const auto head = read_log_piece(path, mib - 3, mib);
  CHECK(head->bytes == text.substr(mib - 3, 3));  // up to the hole
  CHECK(head->size == size);
  const auto behind = read_log_piece(path, mib, 100);
  CHECK(behind->offset >= size - 3 * mib - 256 * kib);
  CHECK(behind->offset <= size - 3 * mib);
  CHECK(behind->bytes == text.substr(static_cast<std::size_t>(behind->offset), 100));
  CHECK(log_bytes_left_out(mib, behind->offset, size) == behind->offset - mib);
  CHECK(read_log_piece(path, -5 * mib, 10)->offset == behind->offset);
  REQUIRE(::write(fd.get(), "the end\n", 8) == 8);
  CHECK(read_log_piece(path, size, 100)->bytes == "the end\n");
  CHECK(log_tail(path).ends_with("the end\n"));
  // Cut by the stage and filled again: it is bounded again.
  REQUIRE(::truncate(path.c_str(), 0) == 0);
  REQUIRE(bound.keep().ok());
  write_text(path, text);
  REQUIRE(bound.keep().ok());
  CHECK(bytes_on_disk(path) <= 4 * mib + 300 * kib);
}

TEST_CASE(
    "log bound: what is left out is counted, zeros that were written are not a hole") {
  CHECK(log_bytes_left_out(-100, 900, 1000) == 0);
  CHECK(log_bytes_left_out(-900, 900, 1000) == 800);
  CHECK(log_bytes_left_out(INT64_MAX, 1000, 1000) == 0);
  TempFolder folder;
  write_text(folder.path() + "/log", std::string(300'000, '\0'));
  CHECK(read_log_piece(folder.path() + "/log", 0, 1000)->bytes == std::string(1000, '\0'));
}

TEST_CASE(
    "log bound: a stage that floods its log is bounded while it runs, its tail is kept when "
    "it is killed") {
  TempFolder folder;
  FakeCoordinator coordinator(folder.path());
  WorkerProcess worker(folder.path(), coordinator.access_path(), {"--log-limit", "4"});
  coordinator.expect<WorkerHello>();
  coordinator.send(WorkerWelcome{1, 100, 5'000});
  const AttemptRef ref = make_ref(3, "soak", 1);
  AssignAttempt order = make_order(ref);
  order.command = {"sh", "-c",
                   "echo first; head -c 400000000 /dev/zero | tr '\\0' x; echo; echo last words; "
                   "echo $$ > $NIGHTSHIFT_STATE/pid; sleep 60"};
  coordinator.send(order);
  const std::string attempt = folder.path() + "/root/attempts/3/soak/1";
  coordinator.expect<AttemptStarted>();
  REQUIRE(eventually([&] { return pid_in(attempt + "/state/pid") > 0; }));
  const bool bounded = eventually([&] { return bytes_on_disk(attempt + "/log") < 5 * mib; });
  if (read_text(folder.path() + "/worker.log").find("cannot leave out") != std::string::npos) {
    MESSAGE("skipped: this file system has no holes");
    return;
  }
  CHECK(bounded);
  coordinator.send(LogRequest{9, ref, 0, 6});
  CHECK(coordinator.expect<LogChunk>().bytes == "first\n");
  coordinator.send(LogRequest{10, ref, mib, 10});
  const LogChunk behind = coordinator.expect<LogChunk>();
  CHECK(behind.offset > 390'000'000);
  CHECK(behind.bytes == "xxxxxxxxxx");
  coordinator.send(StopAttempt{ref, Outcome::hung, "the watchdog"});
  CHECK(coordinator.expect<AttemptFinished>().log_tail == "last words\n");
}
