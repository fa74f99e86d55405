// What a text may look like when a peer, a file or a user sent it. Knows only the standard library.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nightshift {

inline constexpr std::size_t stage_name_bytes_max = 64;

// Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);
// Byte position of the first byte that is not UTF-8; npos when all of it is.
std::size_t first_invalid_utf8(std::string_view text);
// Every invalid byte becomes U+FFFD.
std::string to_utf8(std::string_view text);
// At most bytes_max bytes of valid UTF-8; the front is kept, no character is cut in two.
std::string clip_utf8(std::string_view text, std::size_t bytes_max);

// A name for people: UTF-8, 1..bytes_max bytes, no control characters (it is written into logs).
bool is_name(std::string_view text, std::size_t bytes_max);
// A stage name is also a folder name and part of an environment variable: [a-z0-9_-]{1,64}.
bool is_stage_name(std::string_view text);

}  // namespace nightshift
