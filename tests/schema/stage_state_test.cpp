// The transition table against an expectation written by hand, and the words of states and
// outcomes.
#include "schema/stage_state.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "schema/outcome.h"

using namespace nightshift;

namespace {

// Rows: from. Columns in the order of all_stage_events:
// unblock assign start finish retry fail cancel block reuse reset. "." is refused.
const std::map<std::string, std::string> expected = {
    {"waiting",   "ready . . . . . cancelled blocked reused ."},
    {"ready",     ". assigned . . . . cancelled . reused ."},
    {"assigned",  ". . running done ready failed cancelled . . ."},
    {"running",   ". . . done ready failed cancelled . . ."},
    {"done",      ". . . . . . . . . waiting"},
    {"failed",    ". . . . . . . . . waiting"},
    {"cancelled", ". . . . . . . . . waiting"},
    {"blocked",   ". . . . . . cancelled . . waiting"},
    {"reused",    ". . . . . . . . . waiting"},
};

}  // namespace

TEST_CASE("stage state: every state and event") {
  REQUIRE(expected.size() == all_stage_states.size());
  for (const StageState from : all_stage_states) {
    std::string row;
    for (const StageEvent event : all_stage_events) {
      const auto to = next_state(from, event);
      row += (row.empty() ? "" : " ") + std::string(to ? to_string(*to) : ".");
    }
    CHECK_MESSAGE(row == expected.at(to_string(from)), to_string(from));
  }
}

TEST_CASE("stage state: the table holds no pair twice") {
  std::map<std::pair<StageState, StageEvent>, int> seen;
  for (const StageTransition& t : stage_transitions) CHECK(++seen[{t.from, t.event}] == 1);
}

TEST_CASE("stage state: final, active and with a result") {
  const std::map<std::string, std::string> kinds = {
      {"waiting", ""},     {"ready", ""},      {"assigned", "active"},
      {"running", "active"}, {"done", "final result"}, {"failed", "final"},
      {"cancelled", "final"}, {"blocked", "final"}, {"reused", "final result"}};
  for (const StageState state : all_stage_states) {
    std::string kind;
    if (is_final(state)) kind += "final";
    if (has_result(state)) kind += " result";
    if (is_active(state)) kind += "active";
    CHECK_MESSAGE(kind == kinds.at(to_string(state)), to_string(state));
  }
}

TEST_CASE("stage state: words are read back, others are not") {
  for (const StageState state : all_stage_states) {
    CHECK(stage_state_from(to_string(state)) == state);
  }
  for (const char* word : {"", "NEW", "Done", "done "}) CHECK_FALSE(stage_state_from(word));
  for (const JobState state :
       {JobState::active, JobState::done, JobState::failed, JobState::cancelled}) {
    CHECK(job_state_from(to_string(state)) == state);
  }
  CHECK_FALSE(job_state_from("running"));
}

TEST_CASE("outcome: words, and which class may be tried again") {
  const std::map<std::string, bool> retryable = {
      {"ok", false},   {"red_line", false}, {"error", false},     {"crash", true},
      {"oom", true},   {"disk", true},      {"hung", true},       {"timeout", true},
      {"lost", true},  {"cancelled", false}, {"no_progress", false}};
  REQUIRE(retryable.size() == all_outcomes.size());
  for (const Outcome outcome : all_outcomes) {
    CHECK(outcome_from(to_string(outcome)) == outcome);
    CHECK_MESSAGE(is_retryable(outcome) == retryable.at(to_string(outcome)), to_string(outcome));
  }
  CHECK_FALSE(outcome_from("fine"));
}

TEST_CASE("outcome: exit codes and signals have their class") {
  const std::map<int, Outcome> by_code = {
      {0, Outcome::ok},    {1, Outcome::crash}, {2, Outcome::crash},  {3, Outcome::red_line},
      {4, Outcome::error}, {5, Outcome::oom},   {6, Outcome::disk},   {127, Outcome::crash},
      {-1, Outcome::crash}, {255, Outcome::crash}};
  for (const auto& [code, outcome] : by_code) CHECK(outcome_of_exit(code) == outcome);
  CHECK(outcome_of_signal(9, false) == Outcome::crash);
  CHECK(outcome_of_signal(9, true) == Outcome::oom);
  CHECK(outcome_of_signal(11, false) == Outcome::crash);
}
