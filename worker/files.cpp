#include "worker/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace nightshift {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Status make_folders(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed) return errno_error(failed.value(), "make the folder", path);
  return {};
}

Status make_new_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return {};
  if (errno == EEXIST) {
    return Error{ErrorCode::conflict, "the folder is there already", path, ""};
  }
  return errno_error(errno, "make the folder", path);
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return errno_error(errno, "read the folder", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  const int failed = errno;
  ::closedir(folder);
  if (failed != 0) return errno_error(failed, "read the folder", path);
  std::sort(names.begin(), names.end());
  return names;
}

Status remove_tree(const std::string& path) {
  std::error_code failed;
  std::filesystem::remove_all(path, failed);
  if (failed) return errno_error(failed.value(), "remove", path);
  return {};
}

Status fsync_path(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return errno_error(errno, "open", path);
  if (::fsync(fd.get()) != 0) return errno_error(errno, "fsync", path);
  return {};
}

std::string parent_folder(const std::string& path) {
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

namespace {
Status write_and_sync(const std::string& path, std::string_view text) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.is_open()) return errno_error(errno, "create", path);
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd.get(), text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno_error(errno, "write", path);
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  if (::fsync(fd.get()) != 0) return errno_error(errno, "fsync", path);
  // Network file systems report a full disk only here.
  if (::close(fd.release()) != 0) return errno_error(errno, "close", path);
  return {};
}
}  // namespace

Status write_file_durable(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  if (Status wrote = write_and_sync(temporary, text); !wrote) {
    ::unlink(temporary.c_str());
    return wrote;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int failed = errno;
    ::unlink(temporary.c_str());
    return errno_error(failed, "rename into place", path);
  }
  return fsync_path(parent_folder(path));
}

Result<std::string> read_file(const std::string& path, std::int64_t bytes_max) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return errno_error(errno, "open", path);
  std::string text;
  char buffer[64 * 1024];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "read", path);
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (static_cast<std::int64_t>(text.size()) > bytes_max) {
      return Error{ErrorCode::corrupt, "is longer than " + std::to_string(bytes_max) + " bytes",
                   path, ""};
    }
  }
}

Status rename_durable(const std::string& from, const std::string& to) {
  struct stat info {};
  if (::lstat(to.c_str(), &info) == 0) {
    return Error{ErrorCode::conflict, "cannot rename " + from + ": the target is there already", to,
                 ""};
  }
  if (::rename(from.c_str(), to.c_str()) != 0) {
    Error error = errno_error(errno, "rename " + from, to);
    if (error.hint.empty()) {
      error.hint = "attempts/ and checkpoints/ must lie on one file system and be writable";
    }
    return error;
  }
  NS_TRY(fsync_path(parent_folder(to)));
  return fsync_path(parent_folder(from));
}

}  // namespace nightshift
