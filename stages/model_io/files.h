// Whole files in, complete files out. Knows POSIX files; must not know what is in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace nightshift {

// The bytes of a regular file. More than `bytes_max` is refused before anything is read, with both
// numbers in the message.
Result<std::string> read_file(const std::string& path, std::uint64_t bytes_max);

bool file_exists(const std::string& path);
std::string join_path(const std::string& folder, std::string_view name);

// Writes a file that either appears whole under its final name or not at all: a temporary beside
// it, fsync, rename, fsync of the folder. After any error, and when destroyed without commit(), the
// temporary is removed and a file of the final name is as it was.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  // Nothing may be written after it. When only the last step fails, bringing the folder to disk,
  // the file is there and whole, but may be gone after a power cut.
  Status commit();
  std::uint64_t bytes_written() const { return bytes_; }

 private:
  AtomicFile(std::string path, std::string temporary, int fd);
  Status fail(int saved_errno, const char* doing);
  Status flush();
  void abandon();

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  std::uint64_t bytes_ = 0;
  std::vector<std::byte> buffer_;
};

// create + write + commit.
Status write_file(const std::string& path, std::string_view text);

}  // namespace nightshift
