#include "schema/log_piece.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace nightshift {

namespace {

constexpr int reads_max = 8;

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

std::int64_t place_of(std::int64_t asked, std::int64_t size) {
  if (asked >= 0) return std::min(asked, size);
  return asked <= -size ? 0 : size + asked;
}

// Where the next bytes lie that were written; `size` when none follow. A file system that knows no
// holes calls everything data.
std::int64_t data_from(int fd, std::int64_t offset, std::int64_t size) {
  const off_t data = ::lseek(fd, offset, SEEK_DATA);
  if (data < 0) return errno == ENXIO ? size : offset;
  return std::min<std::int64_t>(data, size);
}

std::int64_t hole_from(int fd, std::int64_t offset, std::int64_t size) {
  const off_t hole = ::lseek(fd, offset, SEEK_HOLE);
  return hole < 0 ? size : std::min<std::int64_t>(hole, size);
}

Result<std::string> read_at(int fd, std::int64_t offset, std::int64_t length,
                            const std::string& path) {
  std::string bytes(static_cast<std::size_t>(length), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::pread(fd, bytes.data() + done, bytes.size() - done,
                                offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "read the log", path);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

Result<LogPiece> read_log_piece(const std::string& path, std::int64_t offset,
                                std::int64_t bytes_max) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return errno_error(errno, "open the log", path);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return errno_error(errno, "look at the log", path);
  LogPiece piece;
  piece.size = info.st_size;
  piece.offset = place_of(offset, piece.size);
  // The hole grows while this reads: what it has swallowed meanwhile came as zeros.
  for (int round = 0; round < reads_max; ++round) {
    piece.offset = data_from(file.fd, piece.offset, piece.size);
    const std::int64_t hole = hole_from(file.fd, piece.offset, piece.size);
    const std::int64_t length =
        std::clamp<std::int64_t>(bytes_max, 0, std::max<std::int64_t>(0, hole - piece.offset));
    NS_TRY_ASSIGN(piece.bytes, read_at(file.fd, piece.offset, length, path));
    if (hole_from(file.fd, piece.offset, piece.size) >= piece.offset + length) return piece;
  }
  piece.bytes.clear();
  return piece;
}

std::int64_t log_bytes_left_out(std::int64_t asked, std::int64_t offset, std::int64_t size) {
  return std::max<std::int64_t>(0, offset - place_of(asked, size));
}

}  // namespace nightshift
