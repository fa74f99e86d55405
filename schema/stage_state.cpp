#include "schema/stage_state.h"

namespace nightshift {

const char* to_string(StageState state) {
  switch (state) {
    case StageState::waiting: return "waiting";
    case StageState::ready: return "ready";
    case StageState::assigned: return "assigned";
    case StageState::running: return "running";
    case StageState::done: return "done";
    case StageState::failed: return "failed";
    case StageState::cancelled: return "cancelled";
    case StageState::blocked: return "blocked";
    case StageState::reused: return "reused";
  }
  return "waiting";
}

const char* to_string(StageEvent event) {
  switch (event) {
    case StageEvent::unblock: return "unblock";
    case StageEvent::assign: return "assign";
    case StageEvent::start: return "start";
    case StageEvent::finish: return "finish";
    case StageEvent::retry: return "retry";
    case StageEvent::fail: return "fail";
    case StageEvent::cancel: return "cancel";
    case StageEvent::block: return "block";
    case StageEvent::reuse: return "reuse";
    case StageEvent::reset: return "reset";
  }
  return "reset";
}

std::optional<StageState> stage_state_from(std::string_view text) {
  for (StageState state : all_stage_states) {
    if (text == to_string(state)) return state;
  }
  return std::nullopt;
}

const char* to_string(JobState state) {
  switch (state) {
    case JobState::active: return "active";
    case JobState::done: return "done";
    case JobState::failed: return "failed";
    case JobState::cancelled: return "cancelled";
  }
  return "active";
}

std::optional<JobState> job_state_from(std::string_view text) {
  for (JobState state : {JobState::active, JobState::done, JobState::failed, JobState::cancelled}) {
    if (text == to_string(state)) return state;
  }
  return std::nullopt;
}

}  // namespace nightshift
