#include "coordinator/home.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace nightshift {

namespace {

// A descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  explicit Descriptor(int value) : fd(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

std::string user_folder() {
  if (const char* home = std::getenv("HOME"); home && *home) return home;
  if (const passwd* entry = ::getpwuid(::getuid()); entry && entry->pw_dir) return entry->pw_dir;
  return {};
}

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

pid_t pid_in(int fd) {
  char text[32] = {};
  const ssize_t bytes = ::pread(fd, text, sizeof text - 1, 0);
  return bytes > 0 ? static_cast<pid_t>(std::strtol(text, nullptr, 10)) : 0;
}

Status sync_folder(const std::string& path) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.fd < 0) return errno_error(errno, "open the folder", path);
  // Some file systems cannot sync a folder and say EINVAL: the rename is as durable as they can.
  if (::fsync(folder.fd) != 0 && errno != EINVAL) return errno_error(errno, "sync", path);
  return {};
}

Status write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno_error(errno, "write", path);
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return {};
}

}  // namespace

Result<Home> Home::locate(const std::string& flag) {
  std::string path = flag;
  if (path.empty()) {
    if (const char* from_environment = std::getenv("NIGHTSHIFT_HOME")) path = from_environment;
  }
  if (path.empty()) {
    const std::string user = user_folder();
    if (user.empty()) {
      return Error{ErrorCode::invalid_argument, "there is no home folder to keep the state in", "",
                   "give one with --home DIR or NIGHTSHIFT_HOME"};
    }
    path = user + "/.nightshift";
  }
  std::error_code failed;
  const std::filesystem::path absolute = std::filesystem::absolute(path, failed);
  if (failed) return errno_error(failed.value(), "resolve the state folder", path);
  std::string root = absolute.lexically_normal().string();
  while (root.size() > 1 && root.back() == '/') root.pop_back();
  return Home(std::move(root));
}

Status Home::create() const {
  NS_TRY(make_folders(root_, 0700));
  struct stat info {};
  if (::stat(root_.c_str(), &info) != 0) return errno_error(errno, "look at", root_);
  if (info.st_uid != ::geteuid()) {
    return Error{ErrorCode::invalid_argument, "the state folder belongs to another user", root_,
                 "choose one of your own with --home DIR"};
  }
  if ((info.st_mode & 022) != 0) {
    return Error{ErrorCode::invalid_argument, "others may write into the state folder", root_,
                 "chmod 700 " + root_};
  }
  NS_TRY(make_folders(keys_folder(), 0700));
  return make_folders(logs_folder(), 0700);
}

std::string Home::report_folder(JobId job) const {
  return fmt::format("{}/reports/{}", root_, job.value);
}

std::string Home::attempt_log(const AttemptRef& ref) const {
  return fmt::format("{}/attempts/{}/{}/{}/log", root_, ref.job.value, ref.stage,
                     ref.attempt.value);
}

std::string Home::default_endpoint() const {
  const std::string socket = root_ + "/coordinator.sock";
  return socket.size() <= ipc_path_bytes_max ? "ipc://" + socket : "tcp://127.0.0.1:*";
}

// Locks of the open file description: they end with the process, are not shared with children that
// close the descriptor, and (unlike flock) can be looked at without being taken.
namespace {

// False with errno when somebody else still has it after `wait_ms`, or it cannot be locked at all.
bool lock_within(int fd, std::int64_t wait_ms) {
  constexpr std::int64_t pause_ms = 20;
  for (std::int64_t waited = 0;; waited += pause_ms) {
    struct flock whole = whole_file(F_WRLCK);
    if (::fcntl(fd, F_OFD_SETLK, &whole) == 0) return true;
    if ((errno != EAGAIN && errno != EACCES) || waited >= wait_ms) return false;
    ::usleep(pause_ms * 1000);
  }
}

}  // namespace

Result<HomeLock> HomeLock::take(const Home& home, std::int64_t wait_ms) {
  const std::string path = home.lock_file();
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return errno_error(errno, "open the lock", path);
  HomeLock lock(fd);
  if (!lock_within(fd, wait_ms)) {
    if (errno != EAGAIN && errno != EACCES) return errno_error(errno, "lock", path);
    const pid_t holder = pid_in(fd);
    return Error{ErrorCode::conflict,
                 fmt::format("a coordinator (pid {}) already runs on {}",
                             holder > 0 ? std::to_string(holder) : "unknown", home.root()),
                 "", "use it, stop it, or choose another folder with --home DIR"};
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(fd, 0) != 0) return errno_error(errno, "write the pid into", path);
  if (::pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return errno_error(errno, "write the pid into", path);
  }
  return lock;
}

HomeLock& HomeLock::operator=(HomeLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

HomeLock::~HomeLock() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<pid_t> coordinator_pid(const Home& home) {
  Descriptor file(::open(home.lock_file().c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return std::nullopt;
  struct flock whole = whole_file(F_RDLCK);
  if (::fcntl(file.fd, F_OFD_GETLK, &whole) != 0 || whole.l_type == F_UNLCK) return std::nullopt;
  return pid_in(file.fd);
}

Status write_file(const std::string& path, std::string_view text, mode_t mode) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  {
    Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
    if (file.fd < 0) return errno_error(errno, "create", temporary);
    Status wrote = write_all(file.fd, text, temporary);
    if (wrote.ok() && ::fchmod(file.fd, mode) != 0) wrote = errno_error(errno, "chmod", temporary);
    if (wrote.ok() && ::fsync(file.fd) != 0) wrote = errno_error(errno, "sync", temporary);
    if (!wrote.ok()) {
      ::unlink(temporary.c_str());
      return wrote;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const Error failed = errno_error(errno, "rename into place", path);
    ::unlink(temporary.c_str());
    return failed;
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return sync_folder(parent.empty() ? "." : parent);
}

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return errno_error(errno, "open", path);
  std::string text;
  char piece[16 * 1024];
  while (true) {
    const ssize_t got = ::read(file.fd, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "read", path);
    if (got == 0) return text;
    text.append(piece, static_cast<std::size_t>(got));
    if (text.size() > bytes_max) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("the file is larger than {} bytes", bytes_max), path, ""};
    }
  }
}

Status make_folders(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) == 0) return {};
  if (errno == ENOENT) {
    const std::string parent = std::filesystem::path(path).parent_path().string();
    if (!parent.empty() && parent != path) {
      NS_TRY(make_folders(parent, mode));
      if (::mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return {};
    }
  }
  if (errno != EEXIST) return errno_error(errno, "make the folder", path);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno_error(errno, "look at", path);
  if (!S_ISDIR(info.st_mode)) return errno_error(ENOTDIR, "make the folder", path);
  return {};
}

}  // namespace nightshift
