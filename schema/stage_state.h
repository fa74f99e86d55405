// The states of a stage and what moves it between them. Knows only the standard library.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace nightshift {

// A stage (a node of a job's DAG) goes
//
//   waiting -> ready -> assigned -> running -> done
//                ^                     |  \--> failed --------> (resume) waiting
//                '---- retry ----------'       cancelled -----> (resume) waiting
//
// waiting    some stage that it needs is not done
// ready      all that it needs is done; waits for a worker (or for its back-off to pass)
// assigned   a worker has been told; it has not yet said that the process runs
// running    the worker reported the process
// done       its checkpoint is committed
// failed     its last attempt ended badly and no retry is left
// cancelled  somebody asked, before it was done
// blocked    a stage that it needs has failed, was cancelled or is itself blocked
// reused     an earlier run with the same content key left its checkpoint: nothing ran
enum class StageState {
  waiting,
  ready,
  assigned,
  running,
  done,
  failed,
  cancelled,
  blocked,
  reused
};

enum class StageEvent {
  unblock,   // all that it needs is done or reused
  assign,    // the scheduler chose a worker
  start,     // the worker reports the process
  finish,    // attempt ended with Outcome::ok and its checkpoint is committed
  retry,     // attempt ended badly (or its worker is gone), another one is allowed
  fail,      // attempt ended badly, no other one is allowed
  cancel,    // somebody asked
  block,     // a stage that it needs cannot be done any more
  reuse,     // an earlier result with the same content key exists
  reset,     // resume: run again, or wait again
};

inline constexpr std::array all_stage_states = {
    StageState::waiting, StageState::ready,     StageState::assigned, StageState::running,
    StageState::done,    StageState::failed,    StageState::cancelled, StageState::blocked,
    StageState::reused};
inline constexpr std::array all_stage_events = {
    StageEvent::unblock, StageEvent::assign, StageEvent::start, StageEvent::finish,
    StageEvent::retry,   StageEvent::fail,   StageEvent::cancel, StageEvent::block,
    StageEvent::reuse,   StageEvent::reset};

struct StageTransition {
  StageState from;
  StageEvent event;
  StageState to;
};

// Everything that may happen; what is not here is refused. `assigned` may finish or fail without
// `start` because the report of the start can be lost while that of the end arrives.
inline constexpr std::array stage_transitions = {
    StageTransition{StageState::waiting, StageEvent::unblock, StageState::ready},
    StageTransition{StageState::waiting, StageEvent::reuse, StageState::reused},
    StageTransition{StageState::waiting, StageEvent::block, StageState::blocked},
    StageTransition{StageState::waiting, StageEvent::cancel, StageState::cancelled},

    StageTransition{StageState::ready, StageEvent::assign, StageState::assigned},
    StageTransition{StageState::ready, StageEvent::reuse, StageState::reused},
    StageTransition{StageState::ready, StageEvent::cancel, StageState::cancelled},

    StageTransition{StageState::assigned, StageEvent::start, StageState::running},
    StageTransition{StageState::assigned, StageEvent::finish, StageState::done},
    StageTransition{StageState::assigned, StageEvent::retry, StageState::ready},
    StageTransition{StageState::assigned, StageEvent::fail, StageState::failed},
    StageTransition{StageState::assigned, StageEvent::cancel, StageState::cancelled},

    StageTransition{StageState::running, StageEvent::finish, StageState::done},
    StageTransition{StageState::running, StageEvent::retry, StageState::ready},
    StageTransition{StageState::running, StageEvent::fail, StageState::failed},
    StageTransition{StageState::running, StageEvent::cancel, StageState::cancelled},

    StageTransition{StageState::blocked, StageEvent::cancel, StageState::cancelled},

    StageTransition{StageState::done, StageEvent::reset, StageState::waiting},
    StageTransition{StageState::reused, StageEvent::reset, StageState::waiting},
    StageTransition{StageState::failed, StageEvent::reset, StageState::waiting},
    StageTransition{StageState::cancelled, StageEvent::reset, StageState::waiting},
    StageTransition{StageState::blocked, StageEvent::reset, StageState::waiting},
};

constexpr std::optional<StageState> next_state(StageState from, StageEvent event) {
  for (const StageTransition& t : stage_transitions) {
    if (t.from == from && t.event == event) return t.to;
  }
  return std::nullopt;
}

// Nothing more happens to it unless somebody resumes.
constexpr bool is_final(StageState state) {
  return state == StageState::done || state == StageState::failed ||
         state == StageState::cancelled || state == StageState::blocked ||
         state == StageState::reused;
}
// Its checkpoint can be the input of another stage.
constexpr bool has_result(StageState state) {
  return state == StageState::done || state == StageState::reused;
}
// A worker has it.
constexpr bool is_active(StageState state) {
  return state == StageState::assigned || state == StageState::running;
}

const char* to_string(StageState state);
const char* to_string(StageEvent event);
std::optional<StageState> stage_state_from(std::string_view text);

// A job follows its stages.
enum class JobState {
  active,     // some stage can still move
  done,       // every stage has a result
  failed,     // ended, some stage failed
  cancelled,  // ended by request
};
const char* to_string(JobState state);
std::optional<JobState> job_state_from(std::string_view text);

}  // namespace nightshift
