#include "schema/outcome.h"

namespace nightshift {

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok: return "ok";
    case Outcome::red_line: return "red_line";
    case Outcome::error: return "error";
    case Outcome::crash: return "crash";
    case Outcome::oom: return "oom";
    case Outcome::disk: return "disk";
    case Outcome::hung: return "hung";
    case Outcome::timeout: return "timeout";
    case Outcome::lost: return "lost";
    case Outcome::cancelled: return "cancelled";
    case Outcome::no_progress: return "no_progress";
  }
  return "error";
}

std::optional<Outcome> outcome_from(std::string_view text) {
  for (Outcome outcome : all_outcomes) {
    if (text == to_string(outcome)) return outcome;
  }
  return std::nullopt;
}

bool is_retryable(Outcome outcome) {
  switch (outcome) {
    case Outcome::crash:
    case Outcome::oom:
    case Outcome::disk:
    case Outcome::hung:
    case Outcome::timeout:
    case Outcome::lost: return true;
    default: return false;
  }
}

Outcome outcome_of_exit(int code) {
  switch (code) {
    case exit_code::ok: return Outcome::ok;
    case exit_code::red_line: return Outcome::red_line;
    case exit_code::error: return Outcome::error;
    case exit_code::out_of_memory: return Outcome::oom;
    case exit_code::out_of_disk: return Outcome::disk;
    default: return Outcome::crash;
  }
}

Outcome outcome_of_signal(int, bool oom_killed) {
  return oom_killed ? Outcome::oom : Outcome::crash;
}

}  // namespace nightshift
