#include <fmt/format.h>

#include "coordinator/sqlite_store_impl.h"

namespace nightshift {

namespace {

constexpr std::size_t changes_worth_moving = 1'000;
constexpr std::size_t changes_in_log_max = 40'000;   // bounds the log, some 100 MB

// A guarded change of one row must have changed one row.
Status expect_one(const Result<int>& changed, const std::string& what, const std::string& where) {
  if (!changed.ok()) return changed.error();
  if (*changed == 1) return {};
  return Error{ErrorCode::conflict, fmt::format("{}: the row is not as expected", what), where, ""};
}

std::string devices_text(const std::vector<int>& devices) {
  return fmt::format("{}", fmt::join(devices, ","));
}

Status done(const Result<int>& changed) {
  if (!changed.ok()) return changed.error();
  return {};
}

}  // namespace

Status SqliteStore::apply(const std::vector<Change>& changes) {
  if (changes.empty()) return {};
  NS_TRY(done(begin_.run("begin a transaction")));
  Status written = write_all(changes);
  if (written.ok()) written = done(commit_.run("commit"));
  if (!written.ok() && db_.in_transaction()) {
    const Status rolled_back = db_.execute("ROLLBACK", "roll back");
    if (!rolled_back.ok()) return rolled_back;
  }
  if (!written.ok()) return written;
  changes_in_log_ += changes.size();
  // Written is written: that the log could not be moved now is no failure of this commit.
  if (changes_in_log_ >= changes_in_log_max) [[maybe_unused]] const Status moved = move_log();
  return {};
}

Status SqliteStore::rest() {
  return changes_in_log_ >= changes_worth_moving ? move_log() : Status();
}

Status SqliteStore::move_log() {
  changes_in_log_ = 0;
  return db_.execute("PRAGMA wal_checkpoint(PASSIVE)", "move the write-ahead log into the store");
}

Status SqliteStore::write_all(const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    NS_TRY(std::visit([this](const auto& one) { return write(one); }, change));
  }
  return {};
}

Status SqliteStore::write(const JobAdded& change) {
  const JobRow& row = change.row;
  NS_TRY(done(insert_job_
                  .bind(row.job.value, row.name, row.user, row.request, row.state, row.spec_json,
                        row.source_text, row.submitted_ms, row.ended_ms)
                  .run("store a job")));
  for (const StageRow& stage : change.stages) NS_TRY(insert_stage(stage));
  return {};
}

Status SqliteStore::write(const JobMoved& change) {
  return expect_one(move_job_
                        .bind(to_string(change.state), change.ended_ms, change.job.value,
                              to_string(change.expected))
                        .run("store a job's state"),
                    fmt::format("{} -> {}", to_string(change.expected), to_string(change.state)),
                    fmt::format("job {}", change.job.value));
}

Status SqliteStore::write(const JobSpecReplaced& change) {
  NS_TRY(expect_one(replace_spec_.bind(change.spec_json, change.source_text, change.job.value)
                        .run("store a changed job file"),
                    "change the job file", fmt::format("job {}", change.job.value)));
  for (const StageRow& stage : change.added) NS_TRY(insert_stage(stage));
  return {};
}

Status SqliteStore::insert_stage(const StageRow& row) {
  insert_stage_.bind(row.stage.job.value, row.stage.stage, row.state, row.attempt.value,
                     row.base_attempt.value, row.worker, row.key, row.retry_reason,
                     row.reuse_reason, row.no_reuse, row.not_before_ms, nullptr, nullptr, nullptr,
                     row.pinned);
  return done(insert_stage_.run("store a stage"));
}

Status SqliteStore::write(const StageMoved& change) {
  const StageRow& row = change.row;
  const char* expected = to_string(change.expected);
  const std::int32_t expected_attempt = change.expected_attempt.value;
  if (row.result) {
    move_stage_.bind(row.state, row.attempt.value, row.base_attempt.value, row.worker, row.key,
                     row.retry_reason, row.reuse_reason, row.no_reuse, row.not_before_ms,
                     row.result->job.value, row.result->stage, row.result->attempt.value,
                     row.stage.job.value, row.stage.stage, expected, expected_attempt);
  } else {
    move_stage_.bind(row.state, row.attempt.value, row.base_attempt.value, row.worker, row.key,
                     row.retry_reason, row.reuse_reason, row.no_reuse, row.not_before_ms, nullptr,
                     nullptr, nullptr, row.stage.job.value, row.stage.stage, expected,
                     expected_attempt);
  }
  return expect_one(move_stage_.run("store a stage's state"),
                    fmt::format("{} -> {} (attempt {})", expected, row.state, expected_attempt),
                    to_string(row.stage));
}

Status SqliteStore::write(const AttemptAdded& change) {
  return done(insert_attempt_
                  .bind(change.ref.job.value, change.ref.stage, change.ref.attempt.value,
                        change.worker, change.device_class, change.assigned_ms,
                        devices_text(change.gpu_devices))
                  .run("store an attempt"));
}

Status SqliteStore::write(const AttemptRan& change) {
  return expect_one(run_attempt_
                        .bind(change.log_path, change.started_ms, change.ref.job.value,
                              change.ref.stage, change.ref.attempt.value)
                        .run("store the start of an attempt"),
                    "start", to_string(change.ref));
}

Status SqliteStore::write(const AttemptEnded& change) {
  const AttemptRow& row = change.row;
  const AttemptRef& ref = row.ref;
  if (row.checkpoint) {
    end_attempt_.bind(row.ended_ms, row.elapsed_ms, row.peak_memory_bytes, row.progress_done,
                      row.outcome, row.reason, row.log_tail, row.checkpoint->path,
                      row.checkpoint->digest, row.checkpoint->bytes, row.excused, ref.job.value,
                      ref.stage, ref.attempt.value);
  } else {
    end_attempt_.bind(row.ended_ms, row.elapsed_ms, row.peak_memory_bytes, row.progress_done,
                      row.outcome, row.reason, row.log_tail, nullptr, nullptr, nullptr, row.excused,
                      ref.job.value, ref.stage, ref.attempt.value);
  }
  NS_TRY(expect_one(end_attempt_.run("store the end of an attempt"), "end as " + row.outcome,
                    to_string(ref)));
  return insert_measured(row);
}

Status SqliteStore::insert_measured(const AttemptRow& row) {
  const std::int64_t job = row.ref.job.value;
  const std::string& stage = row.ref.stage;
  const std::int32_t attempt = row.ref.attempt.value;
  std::int32_t position = 0;
  for (const MetricReport& metric : row.metrics) {
    NS_TRY(done(insert_metric_
                    .bind(job, stage, attempt, position++, metric.name, metric.value, metric.unit,
                          metric.group, metric.model)
                    .run("store a metric")));
  }
  position = 0;
  for (const RedLineResult& line : row.red_lines) {
    NS_TRY(done(insert_red_line_
                    .bind(job, stage, attempt, position++, line.name, line.limit, line.limit_value,
                          line.measured, line.at_least, line.pass, line.detail)
                    .run("store a red line")));
  }
  position = 0;
  for (const std::string& note : row.notes) {
    NS_TRY(done(insert_note_.bind(job, stage, attempt, position++, note).run("store a note")));
  }
  return {};
}

Status SqliteStore::write(const CheckpointMoved& change) {
  const AttemptRef& ref = change.ref;
  return expect_one(move_checkpoint_
                        .bind(change.state, ref.job.value, ref.stage, ref.attempt.value,
                              change.expected)
                        .run("store what became of a checkpoint"),
                    "checkpoint " + change.state, to_string(ref));
}

Status SqliteStore::write(const StagePinned& change) {
  return expect_one(
      pin_stage_.bind(change.pinned, change.stage.job.value, change.stage.stage).run("store a pin"),
      "pin", to_string(change.stage));
}

Status SqliteStore::write(const EventAdded& change) {
  return done(insert_event_.bind(change.row.job.value, change.row.at_ms, change.row.text)
                  .run("store an event"));
}

Status SqliteStore::write(const WorkerSeen& change) {
  const WorkerRow& row = change.row;
  return done(upsert_worker_
                  .bind(row.worker.value, row.session, row.host, row.pid, row.software, row.seen_ms)
                  .run("store a worker"));
}

Status SqliteStore::write(const OutboxAdded& change) {
  const OutboxRow& row = change.row;
  return done(insert_outbox_
                  .bind(row.id, row.job.value, row.event, row.channel, row.text, row.created_ms,
                        row.tries, row.next_try_ms, row.state, row.last_error)
                  .run("store a notification"));
}

Status SqliteStore::write(const OutboxTried& change) {
  const OutboxRow& row = change.row;
  return expect_one(
      try_outbox_.bind(row.tries, row.next_try_ms, row.state, row.last_error, row.id)
          .run("store a delivery"),
      "deliver", "notification " + row.id);
}

}  // namespace nightshift
