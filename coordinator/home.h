// The state folder of a coordinator: where its files lie, and the lock that keeps a second
// coordinator out. Knows files only; must not know sockets or SQLite.
//
//   HOME/nightshift.db        the store
//   HOME/access.json          how local workers and the CLI find and convince it (0600)
//   HOME/access-remote.json   the same for other machines, when it listens on TCP
//   HOME/keys/                CURVE keys and the list of admitted ones (0700)
//   HOME/coordinator.lock     held while a coordinator runs; holds its pid
//   HOME/coordinator.sock     the default endpoint
//   HOME/logs/                what `run` lets its coordinator and worker write
//   HOME/attempts, checkpoints   of the local worker
//   HOME/reports/JOB/         report.json, report.csv
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schema/ids.h"
#include "schema/result.h"

namespace nightshift {

class Home {
 public:
  // `flag` (--home) before $NIGHTSHIFT_HOME before ~/.nightshift. Makes nothing yet.
  static Result<Home> locate(const std::string& flag);

  // Makes the folder and those below it, mode 0700. Refuses a folder that others may write.
  Status create() const;

  const std::string& root() const { return root_; }
  std::string database() const { return root_ + "/nightshift.db"; }
  std::string access_file() const { return root_ + "/access.json"; }
  std::string remote_access_file() const { return root_ + "/access-remote.json"; }
  std::string keys_folder() const { return root_ + "/keys"; }
  std::string lock_file() const { return root_ + "/coordinator.lock"; }
  std::string logs_folder() const { return root_ + "/logs"; }
  std::string report_folder(JobId job) const;
  // Where the worker with this folder as its root keeps the log of an attempt.
  std::string attempt_log(const AttemptRef& ref) const;
  // The socket below the home; where its path is too long for one (107 bytes), TCP on the loopback
  // with a port that the system chooses.
  std::string default_endpoint() const;

 private:
  explicit Home(std::string root) : root_(std::move(root)) {}
  std::string root_;
};

inline constexpr std::size_t ipc_path_bytes_max = 107;   // sun_path without its final zero

// Held as long as the object lives; the kernel lets it go when the process ends, however it ends.
class HomeLock {
 public:
  // conflict: another coordinator has it; the error names its pid. Commands that look into the
  // store hold the lock for a moment, so a starting coordinator is patient for `wait_ms`.
  static Result<HomeLock> take(const Home& home, std::int64_t wait_ms = 2000);

  HomeLock(HomeLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  HomeLock& operator=(HomeLock&& other) noexcept;
  ~HomeLock();

 private:
  explicit HomeLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// The pid of the coordinator that holds the lock (0 when it has not written it yet); nullopt when
// none runs. Only looks: taking the lock to find out could keep a starting coordinator out.
std::optional<pid_t> coordinator_pid(const Home& home);

// Temporary file beside it, fsync, rename, fsync of the folder.
Status write_file(const std::string& path, std::string_view text, mode_t mode);
// At most bytes_max; a longer file is an error.
Result<std::string> read_file(const std::string& path, std::size_t bytes_max);
// mkdir -p; what it makes gets `mode`.
Status make_folders(const std::string& path, mode_t mode);

}  // namespace nightshift
