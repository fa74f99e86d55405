// The byte alphabet of byte-level BPE: each byte written as one printable character. Knows the map;
// must not know vocabularies.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nightshift {

// 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves; the other 68 bytes are U+0100 + n in
// order (space is U+0120). All characters of the alphabet are below U+0144.
std::string bytes_to_alphabet(std::string_view bytes);

// The inverse; nothing when a character is outside the alphabet. `alphabet` must be UTF-8.
std::optional<std::string> alphabet_to_bytes(std::string_view alphabet);

}  // namespace nightshift
