// How an attempt ended, as a class that decides what happens next. Knows only the standard library.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace nightshift {

// The enumerators are equal to the stored and logged text. Each class has its own retry budget.
enum class Outcome {
  ok,           // finished, checkpoint complete
  red_line,     // measured, and a red line is crossed
  error,        // the stage said what is wrong (bad data, wrong model): never retried
  crash,        // ended by a signal or an unknown exit code
  oom,          // killed or stopped for memory
  disk,         // no space left
  hung,         // the watchdog saw neither progress nor log
  timeout,      // over its wall limit
  lost,         // its worker is gone
  cancelled,    // somebody asked
  no_progress,  // restarted too often without newer partial state
};

inline constexpr std::array all_outcomes = {
    Outcome::ok,      Outcome::red_line, Outcome::error, Outcome::crash,     Outcome::oom,
    Outcome::disk,    Outcome::hung,     Outcome::timeout, Outcome::lost,    Outcome::cancelled,
    Outcome::no_progress};

const char* to_string(Outcome outcome);
std::optional<Outcome> outcome_from(std::string_view text);

// Whether a new attempt, unchanged, may end differently. ok, red_line, error, cancelled and
// no_progress are final.
bool is_retryable(Outcome outcome);

// Exit codes of a stage process (see stage_contract.h).
namespace exit_code {
inline constexpr int ok = 0;
inline constexpr int red_line = 3;
inline constexpr int error = 4;        // do not retry
inline constexpr int out_of_memory = 5;
inline constexpr int out_of_disk = 6;
}  // namespace exit_code

// The class of a process that ended by itself with `code`.
Outcome outcome_of_exit(int code);
// The class of a process that was ended by `signal`: SIGKILL by nobody we know is `crash`, unless
// the kernel counted an OOM kill.
Outcome outcome_of_signal(int signal, bool oom_killed);

}  // namespace nightshift
