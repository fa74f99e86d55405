// Unicode's normal forms and the character classes that tokenizers ask for. Knows the Unicode
// tables (utf8proc, in its source); must not know tokens. Texts must be UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace nightshift {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// O(n log n), also for long runs of combining marks.
Result<std::string> normalize(std::string_view text, NormalForm form);

bool is_ascii(std::string_view text);

// True when a quick look proves that the text is in NFC; false proves nothing.
bool is_plain_in_nfc(std::string_view text);

// A character that \w of a Unicode regular expression matches: a letter, mark, digit or joiner.
bool is_word_character(std::uint32_t code_point);
// The property White_Space.
bool is_white_space(std::uint32_t code_point);

}  // namespace nightshift
