#include <doctest/doctest.h>

#include <cstdlib>

#include "coordinator/terminal.h"

using namespace nightshift;

TEST_CASE("terminal: widths of wide, combining and coloured text") {
  CHECK(display_width("quantize") == 8);
  CHECK(display_width("量化") == 4);
  CHECK(display_width("ﾃｽﾄ") == 3);            // half-width katakana
  CHECK(display_width("Ｆ") == 2);             // full-width latin
  CHECK(display_width("e\u0301") == 1);        // e and a combining acute
  CHECK(display_width("한국어") == 6);
  CHECK(display_width("🚀 go") == 5);
  CHECK(display_width("\x1b[31mred\x1b[0m") == 3);
  CHECK(display_width("") == 0);
  CHECK(display_width("\xff\xfe") == 2);       // not UTF-8: one column a byte
}

TEST_CASE("terminal: clipping never cuts a character in two") {
  CHECK(clip_to_width("quantize", 8) == "quantize");
  CHECK(clip_to_width("quantize", 5) == "quan…");
  CHECK(clip_to_width("量化模型", 5) == "量化…");
  CHECK(clip_to_width("量化模型", 4) == "量…");   // the third column cannot hold half of one
  CHECK(clip_to_width("量化", 0) == "");
  CHECK(clip_to_width("\x1b[31mlong red\x1b[0m", 5) == "\x1b[31mlong…\x1b[0m");
  for (std::size_t columns = 0; columns < 20; ++columns) {
    CHECK(display_width(clip_to_width("a量b化c模d型 e\u0301 🚀!", columns)) <= columns);
    CHECK(display_width(pad_right("量化", columns)) == (columns == 0 ? 0 : columns));
  }
}

TEST_CASE("terminal: padding counts columns, not bytes") {
  CHECK(pad_right("量化", 6) == "量化  ");
  CHECK(pad_left("量化", 6) == "  量化");
  CHECK(pad_left("1715", 3) == "17…");
}

TEST_CASE("terminal: control characters of others do not reach the terminal") {
  CHECK(printable("a\x1b[2Jb") == "a?[2Jb");
  CHECK(printable("two\nlines\r") == "two?lines?");
  CHECK(printable("tab\there") == "tab here");
  CHECK(printable("c1\xc2\x9b" "2J") == "c1?2J");
  CHECK(printable("量化 é") == "量化 é");
}

TEST_CASE("terminal: numbers for people") {
  CHECK(format_number(1715) == "1715");
  CHECK(format_number(118.34) == "118.3");
  CHECK(format_number(520) == "520");
  CHECK(format_number(20.25) == "20.25");
  CHECK(format_number(0.8421) == "0.8421");
  CHECK(format_number(0) == "0");
  CHECK(format_number(0.000012) == "1.2e-05");
  CHECK(format_number(-3.5) == "-3.5");
  CHECK(format_bytes(640) == "640 B");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(20.2 * 1024 * 1024 * 1024) == "20.2 GiB");
  CHECK(format_bytes(1024.0 * 1024 * 1024 - 1) == "1 GiB");
  CHECK(format_clock(31'000) == "0:31");
  CHECK(format_clock(751'999) == "12:31");
  CHECK(format_clock(3'751'000) == "1:02:31");
  CHECK(format_clock(-5) == "0:00");
  CHECK(format_wall_time(0) == "-");
}

TEST_CASE("terminal: a pipe has no colour, and NO_COLOR is respected") {
  CHECK(coloured("x", Colour::red, false) == "x");
  CHECK(coloured("x", Colour::red, true) == "\x1b[31mx\x1b[0m");
  std::FILE* file = std::tmpfile();
  const TerminalTraits traits = terminal_traits(fileno(file));
  CHECK_FALSE(traits.is_tty);
  CHECK_FALSE(traits.colour);
  ::setenv("COLUMNS", "63", 1);
  CHECK(terminal_traits(fileno(file)).columns == 63);
  ::setenv("COLUMNS", "nonsense", 1);
  CHECK(terminal_traits(fileno(file)).columns == 100);
  ::unsetenv("COLUMNS");
  std::fclose(file);
}

namespace {

std::string read_back(std::FILE* file) {
  std::string text(4096, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

}  // namespace

TEST_CASE("terminal: a live block replaces its own lines, and only when they changed") {
  std::FILE* file = std::tmpfile();
  LiveBlock block(file);
  block.draw({"one", "two"});
  block.draw({"one", "two"});
  block.draw({"one", "2"});
  block.print_above("note");
  block.finish();
  block.draw({"next"});
  CHECK(read_back(file) ==
        "one\ntwo\n"
        "\x1b[2A\r\x1b[Jone\n2\n"
        "\x1b[2A\r\x1b[Jnote\none\n2\n"
        "next\n");
  std::fclose(file);
}
