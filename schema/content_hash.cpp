#include "schema/content_hash.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace nightshift {

struct ContentHasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() { XXH3_128bits_reset(xxh); }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {}
ContentHasher::~ContentHasher() = default;
ContentHasher::ContentHasher(ContentHasher&&) noexcept = default;
ContentHasher& ContentHasher::operator=(ContentHasher&&) noexcept = default;

void ContentHasher::add(const void* data, std::size_t bytes) {
  XXH3_128bits_update(state_->xxh, data, bytes);
}

void ContentHasher::add_field(std::string_view text) {
  const std::uint64_t size = text.size();
  add(&size, sizeof size);
  add(text.data(), text.size());
}

std::string ContentHasher::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh));
  static const char* digits = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : canonical.digest) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string hash_bytes(std::string_view bytes) {
  ContentHasher hasher;
  hasher.add(bytes.data(), bytes.size());
  return hasher.hex();
}

Result<std::string> hash_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_error(errno, "open", path);
  ContentHasher hasher;
  std::vector<char> buffer(1 << 20);
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int saved = errno;
      ::close(fd);
      return errno_error(saved, "read", path);
    }
    if (got == 0) break;
    hasher.add(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(fd);
  return hasher.hex();
}

Result<std::string> hash_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code failed;
  std::vector<std::string> names;
  for (fs::recursive_directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    if (it->path().filename().string().starts_with('.')) {
      if (it->is_directory(failed)) it.disable_recursion_pending();
      continue;
    }
    if (it->is_regular_file(failed)) names.push_back(fs::relative(it->path(), folder).string());
  }
  if (failed) return errno_error(failed.value(), "read folder", folder);
  std::sort(names.begin(), names.end());
  ContentHasher hasher;
  for (const std::string& name : names) {
    NS_TRY_ASSIGN(const std::string hash, hash_file(folder + "/" + name));
    hasher.add_field(name);
    hasher.add_field(hash);
  }
  return hasher.hex();
}

}  // namespace nightshift
