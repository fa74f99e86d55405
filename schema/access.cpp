#include "schema/access.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "schema/codec.h"

namespace nightshift {

template <class A>
void fields(A& a, codec::Ref<A, Access> m) {
  a.text("endpoint", m.endpoint, codec::path_bytes_max);
  a.text("server_public", m.server_public);
  a.text("client_public", m.client_public);
  a.text("client_secret", m.client_secret);
}

namespace {

constexpr std::size_t access_bytes_max = 64 * 1024;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  // False when the system could not write everything after all.
  bool close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

// Z85 (rfc.zeromq.org/spec/32): 32 bytes are 40 characters.
bool is_key(std::string_view text) {
  constexpr std::string_view alphabet =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
  return text.size() == 40 && text.find_first_not_of(alphabet) == std::string_view::npos;
}

Status check_access(const Access& access, const std::string& where) {
  // The keys themselves never go into a message: messages end up in logs.
  const auto bad = [&](const std::string& what) {
    return Error{ErrorCode::invalid_argument, what, where,
                 "copy the access file again from the machine of the coordinator"};
  };
  if (access.endpoint.find("://") == std::string::npos) {
    return bad("endpoint: `" + access.endpoint + "` is not like tcp://HOST:PORT or ipc://PATH");
  }
  if (!is_key(access.server_public)) return bad("server_public is not a key of 40 characters");
  if (!is_key(access.client_public)) return bad("client_public is not a key of 40 characters");
  if (!is_key(access.client_secret)) return bad("client_secret is not a key of 40 characters");
  return {};
}

Status write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno_error(errno, "write", path);
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Status sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || ::fsync(fd.get()) != 0) return errno_error(errno, "sync folder", folder);
  return {};
}

Status write_private(const std::string& path, const std::string& text) {
  Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0) return errno_error(errno, "create", path);
  // The mode of open() goes through the umask; this one does not.
  if (::fchmod(fd.get(), 0600) != 0) return errno_error(errno, "set the mode of", path);
  NS_TRY(write_all(fd.get(), text, path));
  if (::fsync(fd.get()) != 0) return errno_error(errno, "sync", path);
  if (!fd.close()) return errno_error(errno, "close", path);
  return {};
}

}  // namespace

Result<Access> read_access(const std::string& path) {
  // Not blocking: a pipe at this path must not hang whoever starts.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    Error error = errno_error(errno, "open the access file", path);
    error.hint = "start the coordinator, or copy its access file here";
    return error;
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return errno_error(errno, "look at", path);
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::invalid_argument, "the access file is not a regular file", path, ""};
  }
  if ((status.st_mode & 077) != 0 || (status.st_uid != ::geteuid() && ::geteuid() != 0)) {
    return Error{ErrorCode::invalid_argument, "others may read or change the access file", path,
                 "it admits whoever reads it: chmod 600 " + path};
  }
  std::string text(access_bytes_max + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "read", path);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > access_bytes_max) {
    return Error{ErrorCode::invalid_argument,
                 "the access file is larger than " + std::to_string(access_bytes_max) + " bytes",
                 path, ""};
  }
  text.resize(size);
  NS_TRY_ASSIGN(const Json json, parse_json(text, path));
  NS_TRY_ASSIGN(Access access, codec::read_object<Access>(json, path));
  NS_TRY(check_access(access, path));
  return access;
}

Status write_access(const std::string& path, const Access& access) {
  NS_TRY(check_access(access, path));
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  // Left behind by a process of the same number that was killed.
  ::unlink(temporary.c_str());
  Status written = write_private(temporary, dump_json_pretty(codec::write_object(access)));
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) {
    written = errno_error(errno, "rename to", path);
  }
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_folder_of(path);
}

}  // namespace nightshift
