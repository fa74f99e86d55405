// UTF-8 checked and repaired. Knows the encoding; must not know tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace nightshift {

// Offset of the first byte that is not part of well-formed UTF-8 (surrogates and overlong forms are
// not well-formed), or nothing.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// An Error with the byte offset when `text` is not UTF-8.
Status check_utf8(std::string_view text, const std::string& where);

// The code point that starts at `at` in well-formed text; `at` moves behind it.
std::uint32_t next_code_point(std::string_view text, std::size_t& at);
void append_utf8(std::string& out, std::uint32_t code_point);

// Turns a stream of bytes into text without ever splitting a character: an incomplete character
// waits for its rest; bytes that can be part of none become U+FFFD, one for each maximal part.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  // What still waits, as U+FFFD.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace nightshift
