#include "schema/migrations.h"

namespace nightshift {

namespace {

constexpr const char* first_tables = R"sql(
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO meta (name, value) VALUES ('server_epoch', 0);

CREATE TABLE jobs (
  id           INTEGER PRIMARY KEY,
  name         TEXT NOT NULL,
  user         TEXT NOT NULL,
  request      TEXT NOT NULL,
  state        TEXT NOT NULL,
  spec_json    TEXT NOT NULL,
  source_text  TEXT NOT NULL,
  submitted_ms INTEGER NOT NULL,
  ended_ms     INTEGER NOT NULL
);
CREATE UNIQUE INDEX jobs_request ON jobs (request) WHERE request <> '';

CREATE TABLE stages (
  job            INTEGER NOT NULL REFERENCES jobs (id),
  name           TEXT NOT NULL,
  state          TEXT NOT NULL,
  attempt        INTEGER NOT NULL,
  base_attempt   INTEGER NOT NULL,
  worker         TEXT NOT NULL,
  key            TEXT NOT NULL,
  retry_reason   TEXT NOT NULL,
  reuse_reason   TEXT NOT NULL,
  no_reuse       INTEGER NOT NULL,
  not_before_ms  INTEGER NOT NULL,
  result_job     INTEGER,
  result_stage   TEXT,
  result_attempt INTEGER,
  PRIMARY KEY (job, name)
) WITHOUT ROWID;

CREATE TABLE attempts (
  job               INTEGER NOT NULL,
  stage             TEXT NOT NULL,
  attempt           INTEGER NOT NULL,
  worker            TEXT NOT NULL,
  device_class      TEXT NOT NULL,
  assigned_ms       INTEGER NOT NULL,
  started_ms        INTEGER NOT NULL DEFAULT 0,
  ended_ms          INTEGER NOT NULL DEFAULT 0,
  elapsed_ms        INTEGER NOT NULL DEFAULT 0,
  peak_memory_bytes INTEGER NOT NULL DEFAULT 0,
  progress_done     INTEGER NOT NULL DEFAULT -1,
  outcome           TEXT NOT NULL DEFAULT '',
  reason            TEXT NOT NULL DEFAULT '',
  log_path          TEXT NOT NULL DEFAULT '',
  log_tail          TEXT NOT NULL DEFAULT '',
  checkpoint_path   TEXT,
  checkpoint_digest TEXT,
  checkpoint_bytes  INTEGER,
  PRIMARY KEY (job, stage, attempt),
  FOREIGN KEY (job, stage) REFERENCES stages (job, name)
);

CREATE TABLE metrics (
  job      INTEGER NOT NULL,
  stage    TEXT NOT NULL,
  attempt  INTEGER NOT NULL,
  position INTEGER NOT NULL,
  name     TEXT NOT NULL,
  value    REAL NOT NULL,
  unit     TEXT NOT NULL,
  task_group TEXT NOT NULL,
  model    TEXT NOT NULL,
  PRIMARY KEY (job, stage, attempt, position),
  FOREIGN KEY (job, stage, attempt) REFERENCES attempts (job, stage, attempt)
) WITHOUT ROWID;

CREATE TABLE red_lines (
  job         INTEGER NOT NULL,
  stage       TEXT NOT NULL,
  attempt     INTEGER NOT NULL,
  position    INTEGER NOT NULL,
  name        TEXT NOT NULL,
  limit_text  TEXT NOT NULL,
  limit_value REAL NOT NULL,
  measured    REAL NOT NULL,
  at_least    INTEGER NOT NULL,
  pass        INTEGER NOT NULL,
  detail      TEXT NOT NULL,
  PRIMARY KEY (job, stage, attempt, position),
  FOREIGN KEY (job, stage, attempt) REFERENCES attempts (job, stage, attempt)
) WITHOUT ROWID;

CREATE TABLE notes (
  job      INTEGER NOT NULL,
  stage    TEXT NOT NULL,
  attempt  INTEGER NOT NULL,
  position INTEGER NOT NULL,
  text     TEXT NOT NULL,
  PRIMARY KEY (job, stage, attempt, position),
  FOREIGN KEY (job, stage, attempt) REFERENCES attempts (job, stage, attempt)
) WITHOUT ROWID;

CREATE TABLE events (
  id    INTEGER PRIMARY KEY,
  job   INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  text  TEXT NOT NULL
);
CREATE INDEX events_job ON events (job, id);

CREATE TABLE workers (
  name     TEXT PRIMARY KEY,
  session  TEXT NOT NULL,
  host     TEXT NOT NULL,
  pid      INTEGER NOT NULL,
  software TEXT NOT NULL,
  seen_ms  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE outbox (
  id          TEXT PRIMARY KEY,
  job         INTEGER NOT NULL REFERENCES jobs (id),
  event       TEXT NOT NULL,
  channel     INTEGER NOT NULL,
  text        TEXT NOT NULL,
  created_ms  INTEGER NOT NULL,
  tries       INTEGER NOT NULL,
  next_try_ms INTEGER NOT NULL,
  state       TEXT NOT NULL,
  last_error  TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX outbox_state ON outbox (state, created_ms);
)sql";

// Which devices an attempt had, what the disk quota took, what somebody wants to keep.
constexpr const char* many_machines = R"sql(
ALTER TABLE stages ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN gpu_devices TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN checkpoint_state TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN excused INTEGER NOT NULL DEFAULT 0;
)sql";

}  // namespace

const std::vector<Migration>& migrations() {
  static const std::vector<Migration> steps = {
      {1, "first tables", first_tables},
      {2, "many machines", many_machines},
  };
  return steps;
}

}  // namespace nightshift
