#include "worker/log_bound.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace nightshift {

namespace {

constexpr std::int64_t edge_bytes = 256 << 10;

std::int64_t whole_edges(std::int64_t bytes) {
  return bytes / edge_bytes * edge_bytes;
}

}  // namespace

LogHole log_hole(std::int64_t size, std::int64_t limit_bytes) {
  const std::int64_t head = std::max(edge_bytes, whole_edges(limit_bytes / 4));
  const std::int64_t end = whole_edges(std::max<std::int64_t>(0, size - (limit_bytes - head)));
  return {head, std::max<std::int64_t>(0, end - head)};
}

LogBound::LogBound(int log_fd, std::int64_t limit_bytes)
    : fd_(::fcntl(log_fd, F_DUPFD_CLOEXEC, 3)), limit_bytes_(limit_bytes) {}

Status LogBound::keep() {
  struct stat info {};
  if (!is_supported_ || !fd_.is_open() || ::fstat(fd_.get(), &info) != 0) return {};
  const LogHole hole = log_hole(info.st_size, limit_bytes_);
  // Always the whole hole: the stage may have cut its log and filled it again.
  const bool was_cut = info.st_size < size_seen_;
  const bool is_new = was_cut || hole.bytes != log_hole(size_seen_, limit_bytes_).bytes;
  if (hole.bytes == 0) size_seen_ = info.st_size;
  if (hole.bytes == 0 || !is_new) return {};
  constexpr int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (::fallocate(fd_.get(), mode, hole.offset, hole.bytes) == 0) {
    size_seen_ = info.st_size;
    return {};
  }
  if (errno == EINTR) return {};
  if (errno != EOPNOTSUPP && errno != ENOSYS) {
    return errno_error(errno, "leave out the middle of a log", "");
  }
  is_supported_ = false;
  return Error{ErrorCode::unsupported, "this file system cannot leave out the middle of a log",
               "--log-limit", "logs of any length stay whole here"};
}

}  // namespace nightshift
