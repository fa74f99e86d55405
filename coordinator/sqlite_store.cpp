#include "coordinator/sqlite_store.h"

#include <fmt/format.h>

#include "coordinator/sqlite_store_impl.h"
#include "schema/migrations.h"

namespace nightshift {

namespace {

Status set_pragmas(SqliteDb& db, const SqliteOptions& options) {
  // Exclusive: a second coordinator on this file is refused, and no shared memory file is needed.
  NS_TRY(db.set_pragma("locking_mode", "EXCLUSIVE", "exclusive"));
  NS_TRY(db.set_pragma("journal_mode", "WAL", "wal"));
  NS_TRY(options.synchronous_off ? db.set_pragma("synchronous", "OFF", "0")
                                 : db.set_pragma("synchronous", "FULL", "2"));
  // SQLite would move the log inside of whichever commit fills it: rest() does it between commits.
  NS_TRY(db.set_pragma("wal_autocheckpoint", "0", "0"));
  NS_TRY(db.set_pragma("foreign_keys", "ON", "1"));
  NS_TRY(db.set_pragma("busy_timeout", std::to_string(options.busy_timeout_ms),
                       std::to_string(options.busy_timeout_ms)));
  return {};
}

Status migrate_step(SqliteDb& db, const Migration& step) {
  const std::string doing = fmt::format("bring the store to version {} ({})", step.version,
                                        step.name);
  NS_TRY(db.execute("BEGIN IMMEDIATE", doing));
  Status done = db.execute(step.sql, doing);
  if (done.ok()) {
    done = db.execute(fmt::format("PRAGMA user_version = {}", step.version).c_str(), doing);
  }
  if (done.ok()) done = db.execute("COMMIT", doing);
  if (!done.ok() && db.in_transaction()) {
    // The first error is the one to tell.
    const Status rolled_back = db.execute("ROLLBACK", "roll back the migration");
  }
  return done;
}

Status migrate(SqliteDb& db, const std::string& path) {
  NS_TRY_ASSIGN(const std::string text,
                db.query_text("PRAGMA user_version", "read the store's version"));
  const int version = std::atoi(text.c_str());
  const int newest = migrations().back().version;
  if (version > newest) {
    return Error{ErrorCode::unsupported,
                 fmt::format("the store has version {}, this program knows up to {}", version,
                             newest),
                 path, "use the newer nightshift that wrote it, or another folder"};
  }
  for (const Migration& step : migrations()) {
    if (step.version > version) NS_TRY(migrate_step(db, step));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& path, SqliteOptions options) {
  NS_TRY_ASSIGN(SqliteDb db, SqliteDb::open(path, options.busy_timeout_ms));
  NS_TRY(set_pragmas(db, options));
  NS_TRY(migrate(db, path));
  auto store = std::make_unique<SqliteStore>(std::move(db), options);
  NS_TRY(store->prepare());
  return std::unique_ptr<Store>(std::move(store));
}

Status SqliteStore::prepare() {
  const std::pair<SqliteStatement*, const char*> statements[] = {
      {&begin_, "BEGIN IMMEDIATE"},
      {&commit_, "COMMIT"},
      {&insert_job_, "INSERT INTO jobs VALUES (?,?,?,?,?,?,?,?,?)"},
      {&move_job_, "UPDATE jobs SET state=?, ended_ms=? WHERE id=? AND state=?"},
      {&replace_spec_, "UPDATE jobs SET spec_json=?, source_text=? WHERE id=?"},
      {&insert_stage_, "INSERT INTO stages VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
      {&move_stage_,
       "UPDATE stages SET state=?, attempt=?, base_attempt=?, worker=?, key=?, retry_reason=?, "
       "reuse_reason=?, no_reuse=?, not_before_ms=?, result_job=?, result_stage=?, "
       "result_attempt=? WHERE job=? AND name=? AND state=? AND attempt=?"},
      {&insert_attempt_,
       "INSERT INTO attempts (job, stage, attempt, worker, device_class, assigned_ms, "
       "gpu_devices) VALUES (?,?,?,?,?,?,?)"},
      {&run_attempt_,
       "UPDATE attempts SET log_path=?, started_ms=? "
       "WHERE job=? AND stage=? AND attempt=? AND outcome=''"},
      {&end_attempt_,
       "UPDATE attempts SET ended_ms=?, elapsed_ms=?, peak_memory_bytes=?, progress_done=?, "
       "outcome=?, reason=?, log_tail=?, checkpoint_path=?, checkpoint_digest=?, "
       "checkpoint_bytes=?, excused=? WHERE job=? AND stage=? AND attempt=? AND outcome=''"},
      {&move_checkpoint_,
       "UPDATE attempts SET checkpoint_state=? "
       "WHERE job=? AND stage=? AND attempt=? AND checkpoint_state=?"},
      {&pin_stage_, "UPDATE stages SET pinned=? WHERE job=? AND name=?"},
      {&insert_metric_, "INSERT INTO metrics VALUES (?,?,?,?,?,?,?,?,?)"},
      {&insert_red_line_, "INSERT INTO red_lines VALUES (?,?,?,?,?,?,?,?,?,?,?)"},
      {&insert_note_, "INSERT INTO notes VALUES (?,?,?,?,?)"},
      {&insert_event_, "INSERT INTO events (job, at_ms, text) VALUES (?,?,?)"},
      {&upsert_worker_,
       "INSERT INTO workers VALUES (?,?,?,?,?,?) ON CONFLICT (name) DO UPDATE SET "
       "session=excluded.session, host=excluded.host, pid=excluded.pid, "
       "software=excluded.software, seen_ms=excluded.seen_ms"},
      {&insert_outbox_, "INSERT INTO outbox VALUES (?,?,?,?,?,?,?,?,?,?)"},
      {&try_outbox_,
       "UPDATE outbox SET tries=?, next_try_ms=?, state=?, last_error=? "
       "WHERE id=? AND state='pending'"},
  };
  for (const auto& [statement, sql] : statements) NS_TRY(statement->prepare(db_, sql));
  return {};
}

Result<ServerEpoch> SqliteStore::next_epoch() {
  NS_TRY(db_.execute("UPDATE meta SET value = value + 1 WHERE name = 'server_epoch'",
                     "begin a server epoch"));
  NS_TRY_ASSIGN(const std::string text,
                db_.query_text("SELECT value FROM meta WHERE name = 'server_epoch'",
                               "read the server epoch"));
  return ServerEpoch{std::strtoll(text.c_str(), nullptr, 10)};
}

}  // namespace nightshift
