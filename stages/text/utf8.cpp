#include "stages/text/utf8.h"

#include <fmt/format.h>

namespace nightshift {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

enum class Sequence { complete, incomplete, invalid };

struct Scan {
  Sequence kind;
  std::size_t bytes;  // of the character, or of the maximal part that can begin one (at least 1)
};

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// The character at `at`, by table 3-7 of the Unicode standard: the second byte's range depends on
// the first, which rules out overlong forms, surrogates and everything above U+10FFFF.
Scan scan_at(std::string_view text, std::size_t at) {
  const unsigned lead = byte_at(text, at);
  if (lead < 0x80) return {Sequence::complete, 1};
  std::size_t length = 0;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Sequence::invalid, 1};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {Sequence::incomplete, i};
    const unsigned next = byte_at(text, at + i);
    if (next < low || next > high) return {Sequence::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Sequence::complete, length};
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Scan scan = scan_at(text, at);
    if (scan.kind != Sequence::complete) return at;
    at += scan.bytes;
  }
  return std::nullopt;
}

Status check_utf8(std::string_view text, const std::string& where) {
  const auto invalid = find_invalid_utf8(text);
  if (!invalid) return {};
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("not UTF-8: byte 0x{:02X} at offset {}", byte_at(text, *invalid), *invalid),
      where, ""};
}

std::uint32_t next_code_point(std::string_view text, std::size_t& at) {
  const unsigned lead = byte_at(text, at);
  const int length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  std::uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
  for (int i = 1; i < length; ++i) code = code << 6 | (byte_at(text, at + i) & 0x3F);
  at += static_cast<std::size_t>(length);
  return code;
}

void append_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      out += static_cast<char>(0xE0 | code >> 12);
    } else {
      out += static_cast<char>(0xF0 | code >> 18);
      out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    }
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
  }
  out += static_cast<char>(0x80 | (code & 0x3F));
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::size_t at = 0;
  while (at < pending_.size()) {
    const Scan scan = scan_at(pending_, at);
    if (scan.kind == Sequence::incomplete) break;
    if (scan.kind == Sequence::complete) {
      out.append(pending_, at, scan.bytes);
    } else {
      out += replacement;
    }
    at += scan.bytes;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  const bool waits = !pending_.empty();
  pending_.clear();
  return waits ? std::string(replacement) : std::string();
}

}  // namespace nightshift
