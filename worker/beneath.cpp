#include "worker/beneath.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "schema/content_hash.h"
#include "worker/event_log.h"

namespace nightshift {

namespace {

Error corrupt(const char* what, const std::string& where) {
  return Error{ErrorCode::corrupt, what, where, ""};
}

Error open_error(int saved_errno, const std::string& where) {
  if (saved_errno == ELOOP) return corrupt("a link is on the way", where);
  if (saved_errno == ENOTDIR) return corrupt("a part of the path is no folder", where);
  if (saved_errno == EISDIR) return corrupt("is a folder, not a file", where);
  return errno_error(saved_errno, "open", where);
}

Result<std::vector<std::string>> parts_of(std::string_view name, const std::string& where) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string part(name.substr(begin, end - begin));
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string::npos) {
      return corrupt("is not a path inside the folder", where);
    }
    parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

}  // namespace

Result<UniqueFd> open_beneath(const std::string& folder, std::string_view name, int flags) {
  const std::string where = folder + "/" + std::string(name);
  NS_TRY_ASSIGN(const std::vector<std::string> parts, parts_of(name, where));
  constexpr int folder_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd at(::open(folder.c_str(), folder_flags));
  if (!at.is_open()) return open_error(errno, folder);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    const char* part = parts[i].c_str();
    if ((flags & O_CREAT) != 0 && ::mkdirat(at.get(), part, 0777) != 0 && errno != EEXIST) {
      return errno_error(errno, "make the folder " + parts[i] + " for", where);
    }
    const int next = ::openat(at.get(), part, folder_flags);
    if (next < 0) return open_error(errno, where);
    at.reset(next);
  }
  // O_NONBLOCK: a pipe at this place shall not hold the thread.
  UniqueFd file(::openat(at.get(), parts.back().c_str(),
                         flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  if (!file.is_open()) return open_error(errno, where);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return errno_error(errno, "look at", where);
  if (!S_ISREG(info.st_mode)) return corrupt("is not a plain file", where);
  return file;
}

Result<FileStamp> stamp_of(const UniqueFd& file, const std::string& where) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return errno_error(errno, "look at", where);
  FileStamp stamp;
  stamp.bytes = info.st_size;
  for (const std::int64_t part :
       {static_cast<std::int64_t>(info.st_dev), static_cast<std::int64_t>(info.st_ino),
        static_cast<std::int64_t>(info.st_size), static_cast<std::int64_t>(info.st_mtim.tv_sec),
        static_cast<std::int64_t>(info.st_mtim.tv_nsec),
        static_cast<std::int64_t>(info.st_ctim.tv_sec),
        static_cast<std::int64_t>(info.st_ctim.tv_nsec)}) {
    stamp.text += std::to_string(part) + " ";
  }
  return stamp;
}

Result<std::string> hash_open_file(const UniqueFd& file, const std::string& where) {
  ContentHasher hasher;
  std::vector<char> buffer(1 << 20);
  for (std::int64_t offset = 0;;) {
    const ssize_t got = ::pread(file.get(), buffer.data(), buffer.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "read", where);
    if (got == 0) return hasher.hex();
    hasher.add(buffer.data(), static_cast<std::size_t>(got));
    offset += got;
  }
}

Status drop_folder(const std::string& root, const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    return errno_error(errno, "look at", path);
  }
  const std::string place = root + "/dropped";
  NS_TRY(make_folders(place));
  std::string unique = place + "/XXXXXX";
  if (::mkdtemp(unique.data()) == nullptr) return errno_error(errno, "make a folder in", place);
  NS_TRY(rename_durable(path, unique + "/gone"));
  return remove_tree(unique);
}

void empty_dropped(const std::string& root) {
  if (const Status removed = remove_tree(root + "/dropped"); !removed) {
    log_event("dropped_not_removed", {{"error", removed.error().line()}});
  }
}

}  // namespace nightshift
