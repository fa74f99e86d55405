#include "schema/text.h"

namespace nightshift {
namespace {

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Length of the valid character at the front of `text`, 0 when there is none.
std::size_t character_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(at(i))) return 0;
  }
  if (lead == 0xE0 && at(1) < 0xA0) return 0;   // overlong
  if (lead == 0xED && at(1) >= 0xA0) return 0;  // surrogate
  if (lead == 0xF0 && at(1) < 0x90) return 0;   // overlong
  if (lead == 0xF4 && at(1) >= 0x90) return 0;  // above U+10FFFF
  return bytes;
}

}  // namespace

std::size_t first_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = character_bytes(text.substr(i));
    if (bytes == 0) return i;
    i += bytes;
  }
  return std::string_view::npos;
}

bool is_utf8(std::string_view text) {
  return first_invalid_utf8(text) == std::string_view::npos;
}

std::string to_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) {
      valid += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    } else {
      valid += text.substr(0, bytes);
      text.remove_prefix(bytes);
    }
  }
  return valid;
}

std::string clip_utf8(std::string_view text, std::size_t bytes_max) {
  std::string valid = to_utf8(text.substr(0, bytes_max + 4));
  if (valid.size() <= bytes_max) return valid;
  std::size_t end = bytes_max;
  while (end > 0 && is_continuation(static_cast<unsigned char>(valid[end]))) --end;
  valid.resize(end);
  return valid;
}

bool is_name(std::string_view text, std::size_t bytes_max) {
  if (text.empty() || text.size() > bytes_max || !is_utf8(text)) return false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) return false;
  }
  return true;
}

bool is_stage_name(std::string_view text) {
  if (text.empty() || text.size() > stage_name_bytes_max) return false;
  for (const char c : text) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!fine) return false;
  }
  return true;
}

}  // namespace nightshift
