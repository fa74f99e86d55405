#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "coordinator/sqlite_store_impl.h"

namespace nightshift {

namespace {

// Calls `take(statement)` for every row.
template <typename Take>
Status each_row(SqliteDb& db, const char* sql, std::string_view doing, const Take& take) {
  SqliteStatement statement;
  NS_TRY(statement.prepare(db, sql));
  while (true) {
    NS_TRY_ASSIGN(const bool found, statement.step(doing));
    if (!found) return {};
    take(statement);
  }
}

std::int32_t small(const SqliteStatement& row, int column) {
  return static_cast<std::int32_t>(row.integer(column));
}

// "0,3"; what is no number is left out.
std::vector<int> devices_of(const std::string& text) {
  std::vector<int> devices;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int device = 0;
    const auto [next, failed] = std::from_chars(at, end, device);
    if (failed == std::errc() && device >= 0 && device < 1024) devices.push_back(device);
    at = std::find(next, end, ',');
    if (at != end) ++at;
  }
  return devices;
}

// So that a large vector is not made again and again while it grows.
std::size_t row_count(SqliteDb& db, const char* sql) {
  const Result<std::string> count = db.query_text(sql, "count rows");
  return count.ok() ? std::strtoull(count->c_str(), nullptr, 10) : 0;
}

AttemptRef ref_at(const SqliteStatement& row, int column) {
  return {{row.integer(column)}, row.text(column + 1), {small(row, column + 2)}};
}

}  // namespace

Result<StoredState> SqliteStore::load() {
  StoredState state;
  NS_TRY(load_jobs(state));
  NS_TRY(load_stages(state));
  NS_TRY(load_attempts(state));
  NS_TRY(load_measured(state));
  NS_TRY(load_events(state));
  NS_TRY(load_workers(state));
  NS_TRY(load_outbox(state));
  return state;
}

Status SqliteStore::load_jobs(StoredState& state) {
  return each_row(db_,
                  "SELECT id, name, user, request, state, spec_json, source_text, submitted_ms, "
                  "ended_ms FROM jobs ORDER BY id",
                  "load jobs", [&](const SqliteStatement& row) {
                    state.jobs.push_back({{row.integer(0)}, row.text(1), row.text(2), row.text(3),
                                          row.text(4), row.text(5), row.text(6), row.integer(7),
                                          row.integer(8)});
                    state.last_job = state.jobs.back().job;
                  });
}

Status SqliteStore::load_stages(StoredState& state) {
  state.stages.reserve(row_count(db_, "SELECT count(*) FROM stages"));
  return each_row(db_,
                  "SELECT job, name, state, attempt, base_attempt, worker, key, retry_reason, "
                  "reuse_reason, no_reuse, not_before_ms, result_job, result_stage, "
                  "result_attempt, pinned FROM stages ORDER BY job, name",
                  "load stages", [&](const SqliteStatement& row) {
                    StageRow stage;
                    stage.stage = {{row.integer(0)}, row.text(1)};
                    stage.state = row.text(2);
                    stage.attempt = {small(row, 3)};
                    stage.base_attempt = {small(row, 4)};
                    stage.worker = row.text(5);
                    stage.key = row.text(6);
                    stage.retry_reason = row.text(7);
                    stage.reuse_reason = row.text(8);
                    stage.no_reuse = row.integer(9) != 0;
                    stage.not_before_ms = row.integer(10);
                    if (!row.is_null(11)) stage.result = ref_at(row, 11);
                    stage.pinned = row.integer(14) != 0;
                    state.stages.push_back(std::move(stage));
                  });
}

Status SqliteStore::load_attempts(StoredState& state) {
  state.attempts.reserve(row_count(db_, "SELECT count(*) FROM attempts"));
  return each_row(db_,
                  "SELECT job, stage, attempt, worker, device_class, assigned_ms, started_ms, "
                  "ended_ms, elapsed_ms, peak_memory_bytes, progress_done, outcome, reason, "
                  "log_path, log_tail, checkpoint_path, checkpoint_digest, checkpoint_bytes, "
                  "gpu_devices, checkpoint_state, excused "
                  "FROM attempts ORDER BY job, stage, attempt",
                  "load attempts", [&](const SqliteStatement& row) {
                    AttemptRow attempt;
                    attempt.ref = ref_at(row, 0);
                    attempt.worker = row.text(3);
                    attempt.device_class = row.text(4);
                    attempt.assigned_ms = row.integer(5);
                    attempt.started_ms = row.integer(6);
                    attempt.ended_ms = row.integer(7);
                    attempt.elapsed_ms = row.integer(8);
                    attempt.peak_memory_bytes = row.integer(9);
                    attempt.progress_done = row.integer(10);
                    attempt.outcome = row.text(11);
                    attempt.reason = row.text(12);
                    attempt.log_path = row.text(13);
                    attempt.log_tail = row.text(14);
                    if (!row.is_null(15)) {
                      attempt.checkpoint = {row.text(15), row.text(16), row.integer(17)};
                    }
                    attempt.gpu_devices = devices_of(row.text(18));
                    attempt.checkpoint_state = row.text(19);
                    attempt.excused = row.integer(20) != 0;
                    state.attempts.push_back(std::move(attempt));
                  });
}

Status SqliteStore::load_measured(StoredState& state) {
  // Attempts and what they measured come in the same order: one walk for each table.
  auto attempt_at = state.attempts.begin();
  const auto owner = [&](const SqliteStatement& row) -> AttemptRow* {
    const AttemptRef ref = ref_at(row, 0);
    while (attempt_at != state.attempts.end() && attempt_at->ref < ref) ++attempt_at;
    const bool found = attempt_at != state.attempts.end() && attempt_at->ref == ref;
    return found ? &*attempt_at : nullptr;
  };
  NS_TRY(each_row(db_,
                  "SELECT job, stage, attempt, name, value, unit, task_group, model FROM metrics "
                  "ORDER BY job, stage, attempt, position",
                  "load metrics", [&](const SqliteStatement& row) {
                    AttemptRow* attempt = owner(row);
                    if (attempt == nullptr) return;
                    attempt->metrics.push_back(
                        {row.text(3), row.number(4), row.text(5), row.text(6), row.text(7)});
                  }));
  attempt_at = state.attempts.begin();
  NS_TRY(each_row(db_,
                  "SELECT job, stage, attempt, name, limit_text, limit_value, measured, at_least, "
                  "pass, detail FROM red_lines ORDER BY job, stage, attempt, position",
                  "load red lines", [&](const SqliteStatement& row) {
                    AttemptRow* attempt = owner(row);
                    if (attempt == nullptr) return;
                    attempt->red_lines.push_back({row.text(3), row.text(4), row.number(5),
                                                  row.number(6), row.integer(7) != 0,
                                                  row.integer(8) != 0, row.text(9)});
                  }));
  attempt_at = state.attempts.begin();
  return each_row(db_,
                  "SELECT job, stage, attempt, text FROM notes "
                  "ORDER BY job, stage, attempt, position",
                  "load notes", [&](const SqliteStatement& row) {
                    AttemptRow* attempt = owner(row);
                    if (attempt != nullptr) attempt->notes.push_back(row.text(3));
                  });
}

// The last ones of each job by its index: a walk over all of them would cost as much as the rest.
Status SqliteStore::load_events(StoredState& state) {
  SqliteStatement statement;
  NS_TRY(statement.prepare(db_,
                           "SELECT job, at_ms, text FROM (SELECT id, job, at_ms, text FROM events "
                           "WHERE job = ? ORDER BY id DESC LIMIT ?) ORDER BY id"));
  for (const JobRow& job : state.jobs) {
    statement.bind(job.job.value, options_.events_per_job_max);
    while (true) {
      NS_TRY_ASSIGN(const bool found, statement.step("load events"));
      if (!found) break;
      state.events.push_back({{statement.integer(0)}, statement.integer(1), statement.text(2)});
    }
  }
  return {};
}

Status SqliteStore::load_workers(StoredState& state) {
  return each_row(db_, "SELECT name, session, host, pid, software, seen_ms FROM workers",
                  "load workers", [&](const SqliteStatement& row) {
                    state.workers.push_back({{row.text(0)}, row.text(1), row.text(2),
                                             row.integer(3), row.text(4), row.integer(5)});
                  });
}

Status SqliteStore::load_outbox(StoredState& state) {
  return each_row(db_,
                  "SELECT id, job, event, channel, text, created_ms, tries, next_try_ms, state, "
                  "last_error FROM outbox WHERE state = 'pending' ORDER BY created_ms, id",
                  "load notifications", [&](const SqliteStatement& row) {
                    OutboxRow outbox;
                    outbox.id = row.text(0);
                    outbox.job = {row.integer(1)};
                    outbox.event = row.text(2);
                    outbox.channel = small(row, 3);
                    outbox.text = row.text(4);
                    outbox.created_ms = row.integer(5);
                    outbox.tries = small(row, 6);
                    outbox.next_try_ms = row.integer(7);
                    outbox.state = row.text(8);
                    outbox.last_error = row.text(9);
                    state.outbox.push_back(std::move(outbox));
                  });
}

}  // namespace nightshift
