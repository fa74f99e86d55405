// The store on SQLite: one file, one connection, one writer. The only header of the coordinator
// behind which SQLite is known.
//
// WAL with synchronous=FULL: what apply() said ok to survives a power cut. (WAL with NORMAL may
// roll back committed transactions.) Pragmas are read back after being set; a file system that
// cannot do WAL is an error with that reason, not a silent downgrade.
#pragma once

#include <memory>
#include <string>

#include "coordinator/store.h"
#include "schema/result.h"

namespace nightshift {

struct SqliteOptions {
  std::int64_t busy_timeout_ms = 5'000;
  std::int64_t events_per_job_max = 200;   // given back by load()
  bool synchronous_off = false;            // tests and benches that do not measure the disk
};

// Opens or creates. Refuses: a database of a newer version, a file that is no database, a folder
// that cannot be written, a second coordinator on the same file.
Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& path,
                                                 SqliteOptions options = {});

}  // namespace nightshift
