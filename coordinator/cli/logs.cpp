// logs: an attempt's log, once or followed.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/follow.h"
#include "coordinator/cli/progress.h"
#include "coordinator/cli/questions.h"
#include "coordinator/cli/session.h"
#include "coordinator/terminal.h"
#include "schema/json.h"

namespace nightshift::cli {

namespace {

constexpr std::int64_t piece_bytes = 64 * 1024;
constexpr std::int64_t poll_ms = 400;
constexpr std::int64_t settle_polls = 2;   // once more after the end: last lines come late

// Escape sequences of a log must not rule the terminal; a pipe gets what was written.
std::string shown(const std::string& text, bool is_tty) {
  if (!is_tty) return text;
  std::string clean;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_control = (byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7F;
    clean += is_control ? '?' : c;
  }
  return clean;
}

}  // namespace

int do_logs(const Place& place, const LogsArguments& arguments) {
  Result<Questions> questions = Questions::open(place);
  if (!questions.ok()) return fail(questions.error());
  if (arguments.follow) catch_interrupts();
  const bool is_tty = terminal_traits(STDOUT_FILENO).is_tty;
  Json question = {{"job", arguments.job},         {"stage", arguments.stage},
                   {"attempt", arguments.attempt}, {"bytes_max", piece_bytes},
                   {"offset", arguments.tail_bytes >= 0 ? -arguments.tail_bytes : 0}};
  // No bytes before the end: only what comes from now on.
  if (arguments.tail_bytes == 0) question["offset"] = INT64_MAX;
  std::int64_t quiet_polls = 0;
  bool at_line_begin = true;
  while (!is_interrupted()) {
    const Result<Json> answer = questions->ask("logs", question);
    if (!answer.ok() && is_interrupted()) break;
    if (!answer.ok()) return fail(answer.error());
    const JsonReader piece(*answer, "reply to logs");
    const auto text = piece.string("text");
    const auto next = piece.integer("next");
    const auto size = piece.integer("size");
    const auto attempt = piece.integer("attempt");
    const auto is_open = piece.boolean("open");
    if (!text.ok() || !next.ok() || !size.ok() || !attempt.ok() || !is_open.ok()) {
      return fail(Error{ErrorCode::corrupt, "the answer makes no sense", "reply to logs", ""});
    }
    const std::int64_t left_out = answer->value("left_out", std::int64_t{0});
    if (left_out > 0) {
      fmt::print("{}{}\n", at_line_begin ? "" : "\n", log_left_out_line(left_out));
      at_line_begin = true;
    }
    const std::string out = shown(*text, is_tty);
    if (!out.empty()) at_line_begin = out.back() == '\n';
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
    if (*attempt > 0) {
      question["stage"] = answer->value("stage", arguments.stage);
      question["attempt"] = *attempt;   // not the next one, which may have begun meanwhile
      question["offset"] = *next;
    }
    if (*next < *size && !text->empty()) continue;
    if (!arguments.follow || questions->is_offline()) break;
    if (!*is_open && ++quiet_polls >= settle_polls) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(poll_ms));
  }
  return exit_ok;
}

}  // namespace nightshift::cli
