// The class behind open_sqlite_store. Only sqlite_store*.cpp includes it.
#pragma once

#include <string>
#include <vector>

#include "coordinator/sqlite_store.h"
#include "coordinator/sqlite_store_db.h"

namespace nightshift {

class SqliteStore final : public Store {
 public:
  SqliteStore(SqliteDb db, SqliteOptions options) : db_(std::move(db)), options_(options) {}
  Status prepare();

  Result<ServerEpoch> next_epoch() override;
  Result<StoredState> load() override;
  Status apply(const std::vector<Change>& changes) override;
  Status rest() override;

 private:
  Status move_log();
  Status write_all(const std::vector<Change>& changes);
  Status write(const JobAdded& change);
  Status write(const JobMoved& change);
  Status write(const JobSpecReplaced& change);
  Status write(const StageMoved& change);
  Status write(const AttemptAdded& change);
  Status write(const AttemptRan& change);
  Status write(const AttemptEnded& change);
  Status write(const CheckpointMoved& change);
  Status write(const StagePinned& change);
  Status write(const EventAdded& change);
  Status write(const WorkerSeen& change);
  Status write(const OutboxAdded& change);
  Status write(const OutboxTried& change);
  Status insert_stage(const StageRow& row);
  Status insert_measured(const AttemptRow& row);

  Status load_jobs(StoredState& state);
  Status load_stages(StoredState& state);
  Status load_attempts(StoredState& state);
  Status load_measured(StoredState& state);
  Status load_events(StoredState& state);
  Status load_workers(StoredState& state);
  Status load_outbox(StoredState& state);

  SqliteDb db_;
  SqliteOptions options_;
  std::size_t changes_in_log_ = 0;    // since the write-ahead log was last moved into the file
  SqliteStatement begin_, commit_;
  SqliteStatement insert_job_, move_job_, replace_spec_;
  SqliteStatement insert_stage_, move_stage_;
  SqliteStatement insert_attempt_, run_attempt_, end_attempt_, move_checkpoint_, pin_stage_;
  SqliteStatement insert_metric_, insert_red_line_, insert_note_;
  SqliteStatement insert_event_, upsert_worker_, insert_outbox_, try_outbox_;
};

}  // namespace nightshift
