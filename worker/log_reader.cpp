#include "worker/log_reader.h"

#include <vector>

#include "schema/log_piece.h"
#include "schema/text.h"

namespace nightshift {

namespace {

// What a terminal would still show of a line.
std::string_view last_segment(std::string_view line) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const auto at = line.rfind('\r');
  return at == line.npos ? line : line.substr(at + 1);
}

// The end of `text`, not beginning inside a character.
std::string_view clip_front(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  text.remove_prefix(text.size() - bytes_max);
  while (!text.empty() && (static_cast<unsigned char>(text.front()) & 0xC0) == 0x80) {
    text.remove_prefix(1);
  }
  return text;
}

}  // namespace

std::string last_lines(std::string_view text, std::size_t bytes_max) {
  std::vector<std::string> lines;  // the last one first
  std::size_t total = 0;
  if (text.empty()) return "";
  if (text.back() == '\n') text.remove_suffix(1);
  for (;;) {
    const auto newline = text.rfind('\n');
    const std::string_view line = newline == text.npos ? text : text.substr(newline + 1);
    std::string shown = to_utf8(last_segment(line));
    if (total + shown.size() + 1 > bytes_max) {
      if (lines.empty()) lines.emplace_back(clip_front(shown, bytes_max - 1));
      break;
    }
    total += shown.size() + 1;
    lines.push_back(std::move(shown));
    if (newline == text.npos) break;
    text = text.substr(0, newline);
  }
  std::string tail;
  for (auto it = lines.rbegin(); it != lines.rend(); ++it) tail += *it + "\n";
  return tail;
}

std::string log_tail(const std::string& path) {
  // More than the bound: what '\r' redrew is left out.
  const auto piece = read_log_piece(path, -static_cast<std::int64_t>(16 * log_tail_bytes_max),
                                    16 * log_tail_bytes_max);
  if (!piece) return "";
  std::string_view text = piece->bytes;
  if (piece->offset > 0) {
    // The first line is cut; a log that is one long line is better than none.
    const auto newline = text.find('\n');
    if (newline != text.npos && newline + 1 < text.size()) text.remove_prefix(newline + 1);
  }
  return last_lines(text);
}

std::string last_line(std::string_view tail, std::size_t bytes_max) {
  while (!tail.empty()) {
    const auto newline = tail.rfind('\n');
    const std::string_view line = newline == tail.npos ? tail : tail.substr(newline + 1);
    if (line.find_first_not_of(" \t\r") != line.npos) return clip_utf8(line, bytes_max);
    tail = newline == tail.npos ? std::string_view() : tail.substr(0, newline);
  }
  return "";
}

}  // namespace nightshift
