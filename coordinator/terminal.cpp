#include "coordinator/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>

namespace nightshift {

namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Unicode 15: East_Asian_Width W and F, and emoji with wide presentation. Own table because
// wcwidth() follows the locale of the process, and a terminal of UTF-8 is all that is wanted.
constexpr std::array wide = {
    Range{0x1100, 0x115F},   Range{0x231A, 0x231B},   Range{0x2329, 0x232A},
    Range{0x23E9, 0x23EC},   Range{0x23F0, 0x23F0},   Range{0x23F3, 0x23F3},
    Range{0x25FD, 0x25FE},   Range{0x2614, 0x2615},   Range{0x2648, 0x2653},
    Range{0x267F, 0x267F},   Range{0x2693, 0x2693},   Range{0x26A1, 0x26A1},
    Range{0x26AA, 0x26AB},   Range{0x26BD, 0x26BE},   Range{0x26C4, 0x26C5},
    Range{0x26CE, 0x26CE},   Range{0x26D4, 0x26D4},   Range{0x26EA, 0x26EA},
    Range{0x26F2, 0x26F3},   Range{0x26F5, 0x26F5},   Range{0x26FA, 0x26FA},
    Range{0x26FD, 0x26FD},   Range{0x2705, 0x2705},   Range{0x270A, 0x270B},
    Range{0x2728, 0x2728},   Range{0x274C, 0x274C},   Range{0x274E, 0x274E},
    Range{0x2753, 0x2755},   Range{0x2757, 0x2757},   Range{0x2795, 0x2797},
    Range{0x27B0, 0x27B0},   Range{0x27BF, 0x27BF},   Range{0x2B1B, 0x2B1C},
    Range{0x2B50, 0x2B50},   Range{0x2B55, 0x2B55},   Range{0x2E80, 0x303E},
    Range{0x3041, 0x33FF},   Range{0x3400, 0x4DBF},   Range{0x4E00, 0xA4CF},
    Range{0xA960, 0xA97F},   Range{0xAC00, 0xD7A3},   Range{0xF900, 0xFAFF},
    Range{0xFE10, 0xFE19},   Range{0xFE30, 0xFE6F},   Range{0xFF00, 0xFF60},
    Range{0xFFE0, 0xFFE6},   Range{0x16FE0, 0x18AFF}, Range{0x1AFF0, 0x1B2FF},
    Range{0x1F004, 0x1F004}, Range{0x1F0CF, 0x1F0CF}, Range{0x1F18E, 0x1F18E},
    Range{0x1F191, 0x1F19A}, Range{0x1F200, 0x1F320}, Range{0x1F32D, 0x1F335},
    Range{0x1F337, 0x1F37C}, Range{0x1F37E, 0x1F393}, Range{0x1F3A0, 0x1F3CA},
    Range{0x1F3CF, 0x1F3D3}, Range{0x1F3E0, 0x1F3F0}, Range{0x1F3F4, 0x1F3F4},
    Range{0x1F3F8, 0x1F43E}, Range{0x1F440, 0x1F440}, Range{0x1F442, 0x1F4FC},
    Range{0x1F4FF, 0x1F53D}, Range{0x1F54B, 0x1F567}, Range{0x1F57A, 0x1F57A},
    Range{0x1F595, 0x1F596}, Range{0x1F5A4, 0x1F5A4}, Range{0x1F5FB, 0x1F64F},
    Range{0x1F680, 0x1F6C5}, Range{0x1F6CC, 0x1F6CC}, Range{0x1F6D0, 0x1F6D2},
    Range{0x1F6D5, 0x1F6D7}, Range{0x1F6DC, 0x1F6DF}, Range{0x1F6EB, 0x1F6EC},
    Range{0x1F6F4, 0x1F6FC}, Range{0x1F7E0, 0x1F7EB}, Range{0x1F7F0, 0x1F7F0},
    Range{0x1F90C, 0x1F93A}, Range{0x1F93C, 0x1F945}, Range{0x1F947, 0x1F9FF},
    Range{0x1FA70, 0x1FAFF}, Range{0x20000, 0x2FFFD}, Range{0x30000, 0x3FFFD}};

// Combining marks of the scripts that job names are written in, joiners, variation selectors.
constexpr std::array narrowless = {
    Range{0x0000, 0x001F}, Range{0x007F, 0x009F}, Range{0x00AD, 0x00AD},
    Range{0x0300, 0x036F}, Range{0x0483, 0x0489}, Range{0x0591, 0x05BD},
    Range{0x05BF, 0x05BF}, Range{0x05C1, 0x05C2}, Range{0x05C4, 0x05C5},
    Range{0x0610, 0x061A}, Range{0x064B, 0x065F}, Range{0x0670, 0x0670},
    Range{0x06D6, 0x06DC}, Range{0x06DF, 0x06E4}, Range{0x06E7, 0x06E8},
    Range{0x06EA, 0x06ED}, Range{0x0900, 0x0902}, Range{0x093A, 0x093A},
    Range{0x093C, 0x093C}, Range{0x0941, 0x0948}, Range{0x094D, 0x094D},
    Range{0x0951, 0x0957}, Range{0x0E31, 0x0E31}, Range{0x0E34, 0x0E3A},
    Range{0x0E47, 0x0E4E}, Range{0x1160, 0x11FF}, Range{0x1AB0, 0x1AFF},
    Range{0x1DC0, 0x1DFF}, Range{0x200B, 0x200F}, Range{0x202A, 0x202E},
    Range{0x2060, 0x2064}, Range{0x20D0, 0x20F0}, Range{0x302A, 0x302D},
    Range{0x3099, 0x309A}, Range{0xFE00, 0xFE0F}, Range{0xFE20, 0xFE2F},
    Range{0xFEFF, 0xFEFF}, Range{0xE0100, 0xE01EF}};

template <std::size_t N>
bool is_in(const std::array<Range, N>& ranges, char32_t c) {
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), c,
                                   [](char32_t value, const Range& r) { return value < r.first; });
  return it != ranges.begin() && c <= std::prev(it)->last;
}

std::size_t width_of(char32_t c) {
  if (is_in(narrowless, c)) return 0;
  return is_in(wide, c) ? 2 : 1;
}

// One thing on the screen: a character, or a colour sequence of no width.
struct Glyph {
  std::size_t bytes = 1;
  std::size_t columns = 1;
  bool is_escape = false;
};

Glyph next_glyph(std::string_view text) {
  if (text.size() >= 2 && text[0] == '\x1b' && text[1] == '[') {
    const std::size_t end = text.find_first_not_of("0123456789;", 2);
    if (end != std::string_view::npos && text[end] == 'm') return {end + 1, 0, true};
  }
  const auto lead = static_cast<unsigned char>(text[0]);
  std::size_t bytes = 1;
  char32_t c = lead;
  if (lead >= 0xC2 && lead < 0xE0) { bytes = 2; c = lead & 0x1F; }
  else if (lead >= 0xE0 && lead < 0xF0) { bytes = 3; c = lead & 0x0F; }
  else if (lead >= 0xF0 && lead < 0xF5) { bytes = 4; c = lead & 0x07; }
  else if (lead >= 0x80) return {1, 1, false};
  if (bytes > text.size()) return {1, 1, false};
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return {1, 1, false};
    c = (c << 6) | (next & 0x3F);
  }
  return {bytes, width_of(c), false};
}

const char* sequence_of(Colour colour) {
  switch (colour) {
    case Colour::red: return "\x1b[31m";
    case Colour::green: return "\x1b[32m";
    case Colour::yellow: return "\x1b[33m";
    case Colour::blue: return "\x1b[34m";
    case Colour::dim: return "\x1b[2m";
    case Colour::bold: return "\x1b[1m";
    case Colour::none: break;
  }
  return "";
}

std::string without_final_zeros(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Glyph glyph = next_glyph(text);
    columns += glyph.columns;
    text.remove_prefix(glyph.bytes);
  }
  return columns;
}

std::string clip_to_width(std::string_view text, std::size_t columns) {
  if (display_width(text) <= columns) return std::string(text);
  if (columns == 0) return {};
  std::string clipped;
  std::size_t used = 0;
  bool has_escape = false;
  while (!text.empty()) {
    const Glyph glyph = next_glyph(text);
    if (used + glyph.columns > columns - 1) break;
    has_escape = has_escape || glyph.is_escape;
    clipped.append(text.substr(0, glyph.bytes));
    used += glyph.columns;
    text.remove_prefix(glyph.bytes);
  }
  clipped += "…";
  if (has_escape) clipped += "\x1b[0m";
  return clipped;
}

std::string pad_right(std::string_view text, std::size_t columns) {
  std::string padded = clip_to_width(text, columns);
  const std::size_t used = display_width(padded);
  padded.append(columns - std::min(columns, used), ' ');
  return padded;
}

std::string pad_left(std::string_view text, std::size_t columns) {
  std::string padded = clip_to_width(text, columns);
  const std::size_t used = display_width(padded);
  padded.insert(0, columns - std::min(columns, used), ' ');
  return padded;
}

std::string printable(std::string_view text) {
  std::string clean(text);
  for (std::size_t i = 0; i < clean.size(); ++i) {
    const auto byte = static_cast<unsigned char>(clean[i]);
    if (byte == '\t') clean[i] = ' ';
    else if (byte < 0x20 || byte == 0x7F) clean[i] = '?';
    // C1 controls, which some terminals obey, are C2 80 .. C2 9F in UTF-8.
    else if (byte == 0xC2 && i + 1 < clean.size() &&
             static_cast<unsigned char>(clean[i + 1]) < 0xA0) {
      clean.replace(i, 2, "?");
    }
  }
  return clean;
}

std::string coloured(std::string_view text, Colour colour, bool enabled) {
  if (!enabled || colour == Colour::none || text.empty()) return std::string(text);
  return fmt::format("{}{}\x1b[0m", sequence_of(colour), text);
}

std::string format_bytes(double bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1023.95 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  return without_final_zeros(fmt::format("{:.1f}", bytes)) + " " + units[unit];
}

std::string format_clock(std::int64_t ms) {
  const std::int64_t seconds = std::max<std::int64_t>(ms, 0) / 1000;
  if (seconds < 3600) return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string format_number(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value)) return "-";
  if (size == 0) return "0";
  if (size >= 1e9 || size < 1e-3) return fmt::format("{:.3g}", value);
  const int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4;
  return without_final_zeros(fmt::format("{:.{}f}", value, decimals));
}

std::string format_wall_time(std::int64_t ms) {
  if (ms <= 0) return "-";
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm parts{};
  char text[32] = {};
  if (!::localtime_r(&seconds, &parts)) return "-";
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

TerminalTraits terminal_traits(int fd) {
  TerminalTraits traits;
  traits.is_tty = ::isatty(fd) == 1;
  const char* term = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  const bool dumb = term && std::string_view(term) == "dumb";
  traits.colour = traits.is_tty && !dumb && !(no_colour && *no_colour);
  winsize size{};
  if (traits.is_tty && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    traits.columns = size.ws_col;
    traits.rows = size.ws_row;
  }
  if (const char* columns = std::getenv("COLUMNS")) {
    const long asked = std::strtol(columns, nullptr, 10);
    if (asked >= 20 && asked <= 1000) traits.columns = static_cast<std::size_t>(asked);
  }
  return traits;
}

std::string LiveBlock::erase() const {
  return shown_.empty() ? std::string() : fmt::format("\x1b[{}A\r\x1b[J", shown_.size());
}

void LiveBlock::draw(const std::vector<std::string>& lines) {
  if (lines == shown_) return;
  std::string text = erase();
  for (const std::string& line : lines) text += line + "\n";
  shown_ = lines;
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

void LiveBlock::print_above(std::string_view line) {
  std::string text = erase();
  text.append(line).append("\n");
  for (const std::string& shown : shown_) text += shown + "\n";
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

void LiveBlock::finish() { shown_.clear(); }

}  // namespace nightshift
