// Text on a terminal: how wide it is, how numbers are written, colours, and a block that is redrawn
// in place. Knows nothing of jobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace nightshift {

// ---- width ----------------------------------------------------------------------------------
// Columns that the text takes: 2 for East Asian wide characters and most emoji, 0 for combining
// marks, joiners and control characters. Colour sequences (ESC [ ... m) take none. A byte that is
// not UTF-8 counts as one column.
std::size_t display_width(std::string_view text);
// At most `columns` wide, with "…" where something was cut; never cuts a character in two. Colour
// sequences are kept, and ended after a cut.
std::string clip_to_width(std::string_view text, std::size_t columns);
// Clipped or filled with spaces to exactly `columns`.
std::string pad_right(std::string_view text, std::size_t columns);
std::string pad_left(std::string_view text, std::size_t columns);
// Control characters (also ESC) replaced by "?": text of peers and files that goes to a terminal.
std::string printable(std::string_view text);

// ---- colour ---------------------------------------------------------------------------------
enum class Colour { none, red, green, yellow, blue, dim, bold };
std::string coloured(std::string_view text, Colour colour, bool enabled);

// ---- numbers --------------------------------------------------------------------------------
std::string format_bytes(double bytes);              // "1.2 GiB", "640 B"
std::string format_clock(std::int64_t ms);           // "0:31", "12:31", "1:02:31"
// About four digits: "1715", "118.3", "0.842", "1.2e-05".
std::string format_number(double value);
std::string format_wall_time(std::int64_t ms);       // local: "2026-03-01 22:01:33"; 0: "-"

// ---- terminal -------------------------------------------------------------------------------
struct TerminalTraits {
  bool is_tty = false;
  bool colour = false;      // a tty, no NO_COLOR, TERM is not dumb
  std::size_t columns = 100;
  std::size_t rows = 0;     // 0: unknown
};
// Of a descriptor. COLUMNS in the environment wins over what the terminal says.
TerminalTraits terminal_traits(int fd);

// Lines that replace themselves. `draw` writes only when something changed, in one write.
class LiveBlock {
 public:
  explicit LiveBlock(std::FILE* out) : out_(out) {}
  // No line may be wider than the terminal.
  void draw(const std::vector<std::string>& lines);
  // A line above the block, which stays.
  void print_above(std::string_view line);
  // Leaves the last state on the screen and forgets it.
  void finish();

 private:
  std::string erase() const;
  std::FILE* out_;
  std::vector<std::string> shown_;
};

}  // namespace nightshift
