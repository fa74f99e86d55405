// The identities of things. Knows only the standard library. Distinct types, no bare ints.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace nightshift {

// A submitted job; given by the store, only grows.
struct JobId {
  std::int64_t value = 0;
  auto operator<=>(const JobId&) const = default;
};

// Counts the runs of one stage: 1, 2, ... and only grows, through resume and restart.
struct AttemptNumber {
  std::int32_t value = 0;
  auto operator<=>(const AttemptNumber&) const = default;
};

// A worker's name, unique per coordinator ("box1", "night-3").
struct WorkerId {
  std::string value;
  auto operator<=>(const WorkerId&) const = default;
};

// Grows by one at each start of a coordinator on one store; messages of an older one are refused.
struct ServerEpoch {
  std::int64_t value = 0;
  auto operator<=>(const ServerEpoch&) const = default;
};

// A stage of a job, by its name in the job file.
struct StageRef {
  JobId job;
  std::string stage;
  auto operator<=>(const StageRef&) const = default;
};

// One run of a stage. Every message about a run carries all three parts.
struct AttemptRef {
  JobId job;
  std::string stage;
  AttemptNumber attempt;
  auto operator<=>(const AttemptRef&) const = default;

  StageRef stage_ref() const { return {job, stage}; }
};

// "3/quantize" and "3/quantize#2": for logs and messages.
std::string to_string(const StageRef& ref);
std::string to_string(const AttemptRef& ref);

}  // namespace nightshift
