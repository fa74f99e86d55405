// Durable file operations on POSIX: what is written here survives a power cut, or says why not.
// Knows the operating system; must not know attempts or checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schema/result.h"

namespace nightshift {

// Owns a descriptor; -1 is none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// The folder and its missing parents.
Status make_folders(const std::string& path);
// Exactly one new folder; `conflict` when it is there already.
Status make_new_folder(const std::string& path);
bool is_folder(const std::string& path);
bool is_file(const std::string& path);
// Names in a folder without "." and "..", sorted; an absent folder is `not_found`.
Result<std::vector<std::string>> list_folder(const std::string& path);
// Everything below and the folder itself, links are not followed; absent is fine.
Status remove_tree(const std::string& path);

Status fsync_path(const std::string& path);  // a file or a folder
// Temporary file beside it, fsync, rename, fsync of the folder: the old or the new text, never
// half.
Status write_file_durable(const std::string& path, std::string_view text);
// Refuses a file longer than `bytes_max`.
Result<std::string> read_file(const std::string& path, std::int64_t bytes_max);
// Both parent folders are fsynced; never replaces an existing `to` (conflict).
Status rename_durable(const std::string& from, const std::string& to);
std::string parent_folder(const std::string& path);

}  // namespace nightshift
