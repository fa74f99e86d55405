// Content hashes (XXH3-128, written as 32 hex digits). The only place that knows xxHash.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace nightshift {

class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(ContentHasher&&) noexcept;
  ContentHasher& operator=(ContentHasher&&) noexcept;

  void add(const void* data, std::size_t bytes);
  // Adds the text with its length, so that ("ab","c") and ("a","bc") differ.
  void add_field(std::string_view text);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_bytes(std::string_view bytes);
// Reads the file in pieces; errors name the path.
Result<std::string> hash_file(const std::string& path);
// Over the sorted relative paths, sizes and contents of all regular files below `folder`.
// Names that begin with a dot are left out.
Result<std::string> hash_folder(const std::string& folder);

}  // namespace nightshift
