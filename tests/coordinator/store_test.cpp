// The store on real files, and the one in memory: the same guards in both.
#include "coordinator/sqlite_store.h"

#include <doctest/doctest.h>
#include <sqlite3.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/coordinator/fake_store.h"
#include "schema/migrations.h"

using namespace nightshift;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "nightshift-store-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string file(const std::string& name = "store.db") const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

std::unique_ptr<Store> open_at(const std::string& path) {
  auto opened = open_sqlite_store(path);
  if (!opened.ok()) FAIL(opened.error().line());
  return std::move(*opened);
}

// What a power cut leaves: the files as they are while the store is open.
void copy_as_after_power_cut(const std::string& from, const std::string& to) {
  for (const char* suffix : {"", "-wal"}) {
    if (fs::exists(from + suffix)) fs::copy_file(from + suffix, to + suffix);
  }
}

StageRow waiting(JobId job, const std::string& name) {
  StageRow row;
  row.stage = {job, name};
  row.state = "waiting";
  row.key = "key of " + name;
  return row;
}

JobAdded small_job(JobId job, const std::string& request) {
  JobRow row{job, "k3", "ann", request, "active", "{}", "name: k3\n", 1000, 0};
  return {row, {waiting(job, "a"), waiting(job, "b")}};
}

StageMoved move(const StageRow& before, const std::string& state, int attempt) {
  StageMoved moved;
  moved.expected = *stage_state_from(before.state);
  moved.expected_attempt = before.attempt;
  moved.row = before;
  moved.row.state = state;
  moved.row.attempt = {attempt};
  return moved;
}

// A job of which a is done, with all that can be measured.
std::vector<Change> finished_a(JobId job) {
  const AttemptRef ref{job, "a", {1}};
  StageRow row = waiting(job, "a");
  std::vector<Change> changes;
  StageMoved ready = move(row, "ready", 0);
  StageMoved assigned = move(ready.row, "assigned", 1);
  assigned.row.worker = "box";
  StageMoved done = move(assigned.row, "done", 1);
  done.row.worker.clear();
  done.row.result = ref;
  AttemptRow end;
  end.ref = ref;
  end.ended_ms = 2000;
  end.elapsed_ms = 900;
  end.outcome = "ok";
  end.progress_done = 12;
  end.log_tail = "the end\n";
  end.checkpoint = CheckpointInfo{"/c/a.1", "abc", 77};
  end.metrics = {{"throughput", 12.5, "tok/s", "", "m"}, {"accuracy", 0.5, "", "qa", "m"}};
  end.red_lines = {{"ttft_ms", "<= 120", 120, 99.5, false, true, "median of 9"}};
  end.notes = {"first", "second \"quoted\" and \xC3\xBC"};
  changes.push_back(ready);
  changes.push_back(AttemptAdded{ref, "box", "cpu-avx512", 1100, {}});
  changes.push_back(assigned);
  changes.push_back(AttemptRan{ref, "/log/a.1", 1200});
  changes.push_back(AttemptEnded{end});
  changes.push_back(done);
  changes.push_back(EventAdded{{job, 2000, "event=stage_done stage=a"}});
  changes.push_back(WorkerSeen{{{"box"}, "s1", "host", 42, "0.1.0", 2000}});
  OutboxRow outbox;
  outbox.id = "o1";
  outbox.job = job;
  outbox.event = "retry";
  outbox.channel = 3;
  outbox.text = "text";
  changes.push_back(OutboxAdded{outbox});
  return changes;
}

void check_finished_a(Store& store) {
  const auto state = store.load();
  REQUIRE(state.ok());
  REQUIRE(state->jobs.size() == 1);
  CHECK(state->jobs[0].source_text == "name: k3\n");
  CHECK(state->last_job.value == 1);
  REQUIRE(state->stages.size() == 2);
  CHECK(state->stages[0].state == "done");
  CHECK(state->stages[0].key == "key of a");
  CHECK(state->stages[0].result == AttemptRef{{1}, "a", {1}});
  CHECK(!state->stages[1].result.has_value());
  REQUIRE(state->attempts.size() == 1);
  const AttemptRow& attempt = state->attempts[0];
  CHECK(attempt.checkpoint->bytes == 77);
  CHECK(attempt.device_class == "cpu-avx512");
  CHECK(attempt.progress_done == 12);
  REQUIRE(attempt.metrics.size() == 2);
  CHECK(attempt.metrics[1].group == "qa");
  CHECK(attempt.metrics[0].value == 12.5);
  REQUIRE(attempt.red_lines.size() == 1);
  CHECK(attempt.red_lines[0].pass);
  CHECK(!attempt.red_lines[0].at_least);
  REQUIRE(attempt.notes.size() == 2);
  CHECK(attempt.notes[1] == "second \"quoted\" and \xC3\xBC");
  CHECK(state->events.size() == 1);
  CHECK(state->workers.at(0).pid == 42);
  CHECK(state->outbox.at(0).channel == 3);
}

}  // namespace

TEST_CASE("store: everything comes back after a close and after a power cut") {
  Folder folder;
  {
    auto store = open_at(folder.file());
    CHECK(store->next_epoch()->value == 1);
    REQUIRE(store->apply({small_job({1}, "r1")}).ok());
    const Status applied = store->apply(finished_a({1}));
    if (!applied.ok()) FAIL(applied.error().line());
    copy_as_after_power_cut(folder.file(), folder.file("cut.db"));
    check_finished_a(*store);
  }
  auto closed = open_at(folder.file());
  check_finished_a(*closed);
  CHECK(closed->next_epoch()->value == 2);
  auto cut = open_at(folder.file("cut.db"));
  check_finished_a(*cut);
  CHECK(cut->next_epoch()->value == 2);
}

TEST_CASE("store: guards refuse the whole transaction, on disk and in memory alike") {
  Folder folder;
  testing::FakeStore fake;
  auto disk = open_at(folder.file());
  const StageRow a = waiting({1}, "a");
  StageMoved wrong_state = move(a, "ready", 0);
  wrong_state.expected = StageState::running;
  StageMoved wrong_attempt = move(a, "ready", 0);
  wrong_attempt.expected_attempt = {3};
  StageMoved unknown = move(waiting({1}, "zzz"), "ready", 0);
  AttemptEnded not_open;
  not_open.row.ref = {{1}, "a", {1}};
  not_open.row.outcome = "ok";
  const std::vector<Change> wrong = {
      wrong_state, wrong_attempt, unknown, not_open, AttemptRan{{{1}, "a", {1}}, "", 5},
      JobMoved{{1}, JobState::done, JobState::active, 0}, small_job({1}, "r9"),
      small_job({2}, "r1")};
  for (Store* store : {static_cast<Store*>(&fake), disk.get()}) {
    REQUIRE(store->apply({small_job({1}, "r1")}).ok());
    for (const Change& change : wrong) {
      if (store == &fake && change.index() == 0 &&
          std::get<JobAdded>(change).row.request == "r1") {
        continue;   // requests are unique on disk only
      }
      const Status refused =
          store->apply({EventAdded{{{1}, 1, "must not stay"}}, move(a, "ready", 0), change});
      REQUIRE(!refused.ok());
      CHECK(refused.error().code == ErrorCode::conflict);
      const auto state = store->load();
      CHECK(state->events.empty());
      CHECK(state->stages[0].state == "waiting");
      CHECK(state->jobs.size() == 1);
    }
    CHECK(store->apply({move(a, "ready", 0)}).ok());   // and it still works
  }
}

TEST_CASE("store: an attempt ends once") {
  Folder folder;
  auto store = open_at(folder.file());
  REQUIRE(store->apply({small_job({1}, "")}).ok());
  REQUIRE(store->apply(finished_a({1})).ok());
  AttemptEnded again;
  again.row.ref = {{1}, "a", {1}};
  again.row.outcome = "lost";
  CHECK(store->apply({again}).error().code == ErrorCode::conflict);
  check_finished_a(*store);
}

TEST_CASE("store: a delivered notification does not come back") {
  Folder folder;
  auto store = open_at(folder.file());
  REQUIRE(store->apply({small_job({1}, "")}).ok());
  REQUIRE(store->apply(finished_a({1})).ok());
  OutboxRow row = store->load()->outbox.at(0);
  row.tries = 1;
  row.state = "sent";
  REQUIRE(store->apply({OutboxTried{row}}).ok());
  CHECK(store->load()->outbox.empty());
  CHECK(store->apply({OutboxTried{row}}).error().code == ErrorCode::conflict);
}

TEST_CASE("store: load gives back the last events of each job, oldest first") {
  Folder folder;
  auto opened = open_sqlite_store(folder.file(), {.events_per_job_max = 2});
  REQUIRE(opened.ok());
  REQUIRE((*opened)->apply({small_job({1}, "1"), small_job({2}, "2")}).ok());
  for (int i = 0; i < 5; ++i) {
    REQUIRE((*opened)->apply({EventAdded{{{1}, i, "one " + std::to_string(i)}},
                              EventAdded{{{2}, i, "two " + std::to_string(i)}}}).ok());
  }
  const auto state = (*opened)->load();
  REQUIRE(state->events.size() == 4);
  CHECK(state->events[0].text == "one 3");
  CHECK(state->events[3].text == "two 4");
}

TEST_CASE("store: a second coordinator on the same file is refused with the reason") {
  Folder folder;
  auto first = open_at(folder.file());
  const auto second = open_sqlite_store(folder.file(), {.busy_timeout_ms = 10});
  REQUIRE(!second.ok());
  CHECK(second.error().code == ErrorCode::unavailable);
  CHECK(second.error().line().find("another coordinator") != std::string::npos);
  CHECK(second.error().line().find(folder.file()) != std::string::npos);
}

TEST_CASE("store: a database of a newer version is refused and left as it is") {
  Folder folder;
  open_at(folder.file()).reset();
  sqlite3* raw = nullptr;
  REQUIRE(sqlite3_open(folder.file().c_str(), &raw) == SQLITE_OK);
  REQUIRE(sqlite3_exec(raw, "PRAGMA user_version = 999", nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(raw);
  const auto opened = open_sqlite_store(folder.file());
  REQUIRE(!opened.ok());
  CHECK(opened.error().code == ErrorCode::unsupported);
  CHECK(opened.error().what.find("version 999") != std::string::npos);
}

TEST_CASE("store: what is no database, or damaged, is refused as corrupt") {
  Folder folder;
  std::ofstream(folder.file()) << std::string(8192, 'x');
  const auto opened = open_sqlite_store(folder.file());
  REQUIRE(!opened.ok());
  CHECK(opened.error().code == ErrorCode::corrupt);
  CHECK(!opened.error().hint.empty());
}

TEST_CASE("store: a folder that is missing or read-only is an error with path and hint") {
  Folder folder;
  const auto missing = open_sqlite_store(folder.file("nowhere/store.db"));
  REQUIRE(!missing.ok());
  CHECK(missing.error().code == ErrorCode::io);
  CHECK(missing.error().where.find("nowhere") != std::string::npos);

  open_at(folder.file()).reset();
  fs::permissions(folder.file(), fs::perms::owner_read | fs::perms::others_read |
                                     fs::perms::group_read);
  fs::permissions(fs::path(folder.file()).parent_path(),
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                      fs::perms::others_exec);
  // root may write everywhere: look at it as nobody does.
  const bool root = geteuid() == 0;
  const int before = root ? setfsuid(65534) : 0;
  const auto read_only = open_sqlite_store(folder.file());
  if (root) setfsuid(static_cast<uid_t>(before));
  fs::permissions(fs::path(folder.file()).parent_path(), fs::perms::owner_all);
  REQUIRE(!read_only.ok());
  CHECK(read_only.error().code == ErrorCode::io);
  CHECK(read_only.error().line().find("writable for this user") != std::string::npos);
}

TEST_CASE("store: a disk that takes no more rolls back, says so, and works on afterwards") {
  Folder folder;
  auto store = open_at(folder.file());
  REQUIRE(store->apply({small_job({1}, "")}).ok());
  // A limit on the size of files stands in for the full disk: the write fails in the same place.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit low = before;
  low.rlim_cur = 1 << 20;
  setrlimit(RLIMIT_FSIZE, &low);
  const EventRow large{{1}, 1, std::string(1 << 20, 'x')};
  const Status full = store->apply({EventAdded{large}, EventAdded{large}});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  REQUIRE(!full.ok());
  CHECK(full.error().line().find(folder.file()) != std::string::npos);
  CHECK(!full.error().hint.empty());
  CHECK(store->load()->events.empty());
  CHECK(store->apply({EventAdded{large}}).ok());
  CHECK(store->load()->events.size() == 1);
}

TEST_CASE("store: migrations are numbered one after the other") {
  int expected = 1;
  for (const Migration& step : migrations()) CHECK(step.version == expected++);
}
