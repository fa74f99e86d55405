#include "stages/model_io/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace nightshift {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  ~OwnedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// 0, or errno.
int write_all(int fd, const std::byte* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(fd, data, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    data += written;
    size -= static_cast<std::size_t>(written);
  }
  return 0;
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::uint64_t bytes_max) {
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return errno_error(errno, "open the file", path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return errno_error(errno, "read the file's size", path);
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::invalid_argument, "is not a regular file", path, ""};
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > bytes_max) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the file has {} bytes, and at most {} are read", size, bytes_max),
                 path, ""};
  }
  std::string content(size, '\0');
  std::size_t have = 0;
  while (have < content.size()) {
    const ssize_t got = ::read(fd.get(), content.data() + have, content.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "read the file", path);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  content.resize(have);
  return content;
}

bool file_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::string join_path(const std::string& folder, std::string_view name) {
  if (folder.empty()) return std::string(name);
  return folder.back() == '/' ? folder + std::string(name) : folder + "/" + std::string(name);
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {
  buffer_.reserve(buffer_bytes);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      buffer_(std::move(other.buffer_)) {
  other.temporary_.clear();
}

AtomicFile::~AtomicFile() {
  abandon();
}

void AtomicFile::abandon() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

Status AtomicFile::fail(int saved_errno, const char* doing) {
  abandon();
  return errno_error(saved_errno, doing, path_);
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  std::string temporary = path + ".tmp-XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return errno_error(errno, "create the file", path);
  AtomicFile file(path, std::move(temporary), fd);
  // mkstemp makes files that only their owner can read; a checkpoint is read by others too.
  if (::fchmod(fd, 0644) != 0) return file.fail(errno, "set the mode of the file").error();
  return file;
}

Status AtomicFile::flush() {
  const int failure = write_all(fd_, buffer_.data(), buffer_.size());
  buffer_.clear();
  return failure == 0 ? Status() : fail(failure, "write the file");
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  if (fd_ < 0) {
    return Error{ErrorCode::internal, "written to after it was closed or had failed", path_, ""};
  }
  bytes_ += bytes.size();
  if (buffer_.size() + bytes.size() > buffer_bytes) NS_TRY(flush());
  if (bytes.size() > buffer_bytes) {
    const int failure = write_all(fd_, bytes.data(), bytes.size());
    return failure == 0 ? Status() : fail(failure, "write the file");
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return {};
}

Status AtomicFile::write(std::string_view text) {
  return write(std::as_bytes(std::span(text.data(), text.size())));
}

Status AtomicFile::commit() {
  if (fd_ < 0) {
    return Error{ErrorCode::internal, "committed after it was closed or had failed", path_, ""};
  }
  NS_TRY(flush());
  if (::fsync(fd_) != 0) return fail(errno, "bring the file to disk");
  // Network file systems report a full disk only here.
  if (::close(std::exchange(fd_, -1)) != 0) return fail(errno, "close the file");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return fail(errno, "name the file");
  temporary_.clear();
  const OwnedFd folder(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || ::fsync(folder.get()) != 0) {
    return errno_error(errno, "bring the folder to disk", path_);
  }
  return {};
}

Status write_file(const std::string& path, std::string_view text) {
  NS_TRY_ASSIGN(auto file, AtomicFile::create(path));
  NS_TRY(file.write(text));
  return file.commit();
}

}  // namespace nightshift
