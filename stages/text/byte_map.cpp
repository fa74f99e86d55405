#include "stages/text/byte_map.h"

#include <array>
#include <cstdint>

#include "stages/text/utf8.h"

namespace nightshift {
namespace {

constexpr std::uint32_t first_shifted = 0x100;
constexpr std::uint32_t alphabet_end = 0x144;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Tables {
  std::array<std::uint16_t, 256> character{};
  std::array<std::int16_t, alphabet_end> byte{};  // -1 outside the alphabet
};

constexpr Tables make_tables() {
  Tables tables;
  for (auto& byte : tables.byte) byte = -1;
  std::uint32_t next = first_shifted;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::uint32_t character = stands_for_itself(byte) ? byte : next++;
    tables.character[byte] = static_cast<std::uint16_t>(character);
    tables.byte[character] = static_cast<std::int16_t>(byte);
  }
  return tables;
}

constexpr Tables tables = make_tables();
static_assert(tables.character[0x20] == 0x120 && tables.character[0xAD] == alphabet_end - 1);

}  // namespace

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, tables.character[static_cast<unsigned char>(c)]);
  return out;
}

std::optional<std::string> alphabet_to_bytes(std::string_view alphabet) {
  std::string out;
  std::size_t at = 0;
  while (at < alphabet.size()) {
    const std::uint32_t character = next_code_point(alphabet, at);
    if (character >= alphabet_end || tables.byte[character] < 0) return std::nullopt;
    out += static_cast<char>(tables.byte[character]);
  }
  return out;
}

}  // namespace nightshift
