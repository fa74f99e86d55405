#include "worker/log_reader.h"

#include <doctest/doctest.h>

#include "schema/log_piece.h"
#include "schema/text.h"
#include "tests/worker/support.h"
#include "worker/event_log.h"
#include "worker/line_buffer.h"

using namespace nightshift;
using namespace nightshift::test;

TEST_CASE("log: of a progress bar drawn with \\r only its last state is shown") {
  CHECK(last_lines("start\n 1%\r 2%\r 99%\rdone\nend\n") == "start\ndone\nend\n");
  CHECK(last_lines("10%\r20%\r") == "20%\n");
  CHECK(last_lines("windows\r\nlines\r\n") == "windows\nlines\n");
}

TEST_CASE("log: whole last lines within the bound, a longer line keeps its end") {
  CHECK(last_lines("aaaa\nbbbb\ncccc\n", 11) == "bbbb\ncccc\n");
  CHECK(last_lines("0123456789", 5) == "6789\n");
  CHECK(last_lines("") == "");
  CHECK(last_lines("\n\nx") == "\n\nx\n");
  const std::string tail = last_lines(std::string(100'000, 'x'));
  CHECK(tail.size() <= log_tail_bytes_max);
}

TEST_CASE("log: the tail is UTF-8 whatever the stage wrote, also where a line is cut") {
  CHECK(is_utf8(last_lines("caf\xc3\xa9 \xff\xfe\n")));
  std::string line;
  for (int i = 0; i < 5'000; ++i) line += "\xe2\x82\xac";
  for (std::size_t bound = 20; bound < 26; ++bound) CHECK(is_utf8(last_lines(line, bound)));
}

TEST_CASE("log: the tail of a file whose last line has megabytes of \\r") {
  TempFolder folder;
  std::string text = "first\n";
  for (int i = 0; i < 300'000; ++i) text += "\r" + std::to_string(i);
  write_text(folder.path() + "/log", text);
  CHECK(log_tail(folder.path() + "/log") == "299999\n");
  CHECK(log_tail(folder.path() + "/absent") == "");
}

TEST_CASE("log: pieces by offset, from the end, and beyond it") {
  TempFolder folder;
  const std::string path = folder.path() + "/log";
  write_text(path, "0123456789");
  CHECK(read_log_piece(path, 2, 3)->bytes == "234");
  CHECK(read_log_piece(path, -4, 100)->bytes == "6789");
  CHECK(read_log_piece(path, -4, 100)->offset == 6);
  CHECK(read_log_piece(path, -99, 4)->bytes == "0123");
  CHECK(read_log_piece(path, 99, 4)->bytes == "");
  CHECK(read_log_piece(path, INT64_MIN, INT64_MAX)->bytes == "0123456789");
  CHECK(read_log_piece(path, 0, -5)->bytes == "");
  CHECK(read_log_piece(path, 99, 4)->size == 10);
  CHECK_FALSE(read_log_piece(folder.path() + "/absent", 0, 1).ok());
}

TEST_CASE("line buffer: bounded, whatever the pieces are") {
  const std::string stream = "one\n" + std::string(50, 'x') + "\ntwo\r\n\nthree";
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    LineBuffer buffer(10);
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      for (std::string& line : buffer.add(std::string_view(stream).substr(at, step))) {
        lines.push_back(std::move(line));
      }
    }
    for (std::string& line : buffer.finish()) lines.push_back(std::move(line));
    CAPTURE(step);
    CHECK(lines == std::vector<std::string>{"one", "two", "three"});
    CHECK(buffer.dropped() == 1);
  }
}

TEST_CASE("event log: one line, whatever the values hold") {
  CHECK(format_event("stage_done", {{"job", "3"}, {"why", "a \"b\"\nc"}, {"empty", ""}}) ==
        "event=stage_done job=3 why=\"a \\\"b\\\" c\" empty=\"\"");
}
