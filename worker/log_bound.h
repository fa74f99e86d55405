// Keeps the log of one attempt within a limit: its head and its tail stay, the middle is given back
// to the disk. Knows files; must not know attempts or the loop.
//
// The stage writes into the file itself, so the worker cannot hold it back; it punches a hole
// behind it. Offsets and the file's size stay as they are, hence appending and following go on.
// Rejected: a pipe through the worker (its end would end the stage's output), rotation (the stage
// keeps its descriptor), FALLOC_FL_COLLAPSE_RANGE (moves offsets, few file systems know it).
#pragma once

#include <cstdint>

#include "schema/result.h"
#include "worker/files.h"

namespace nightshift {

inline constexpr std::int64_t log_limit_bytes_default = 256LL << 20;

struct LogHole {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;  // 0: none is needed
};

// A quarter of the limit stays in front, the rest of it at the end; both edges lie on whole blocks
// of any file system (a block that is cut would come as zeros, not as a hole).
LogHole log_hole(std::int64_t size, std::int64_t limit_bytes);

// Its calls may take as long as the disk does; one thread at a time.
class LogBound {
 public:
  // The descriptor is duplicated: a log that the stage has deleted still fills the disk.
  LogBound(int log_fd, std::int64_t limit_bytes);
  // `unsupported`: the file system cannot punch holes, and the log stays as it is. That is said by
  // the first call alone; other errors by each call that meets them.
  Status keep();

 private:
  UniqueFd fd_;
  std::int64_t limit_bytes_;
  std::int64_t size_seen_ = 0;
  bool is_supported_ = true;
};

}  // namespace nightshift
