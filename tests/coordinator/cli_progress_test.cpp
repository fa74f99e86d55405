#include <doctest/doctest.h>

#include "coordinator/cli/progress.h"
#include "coordinator/terminal.h"

using namespace nightshift;
using namespace nightshift::cli;

namespace {

AttemptView ended(int number, Outcome outcome, const std::string& reason = "") {
  AttemptView attempt;
  attempt.attempt = number;
  attempt.outcome = outcome;
  attempt.reason = reason;
  attempt.elapsed_ms = 31'000;
  return attempt;
}

StageView stage(const std::string& name, StageState state, int attempt = 0) {
  StageView view;
  view.name = name;
  view.kind = name;
  view.state = state;
  view.attempt = attempt;
  return view;
}

StageView running(const std::string& name, std::int64_t done, std::int64_t of) {
  StageView view = stage(name, StageState::running, 1);
  view.worker = "box1";
  view.attempts.push_back({});
  view.attempts.back().attempt = 1;
  AttemptPulse pulse;
  pulse.elapsed_ms = 30'000;
  pulse.memory_bytes = 1288490189;
  pulse.phase = "capture";
  pulse.progress = ProgressReport{done, of, "steps", 1200, "tok/s"};
  view.pulse = pulse;
  view.pulse_age_ms = 1'000;
  return view;
}

JobView night() {
  JobView view;
  view.job = {3};
  view.name = "夜间优化";
  view.submitted_ms = 1'000'000;
  StageView done = stage("baseline", StageState::done, 1);
  done.attempts.push_back(ended(1, Outcome::ok));
  StageView waiting = stage("quantize", StageState::waiting);
  waiting.waiting_reason = "waits for calibrate (running)";
  StageView reused = stage("fuse", StageState::reused);
  reused.reuse_reason = "job 2, attempt 1";
  view.stages = {done, running("calibrate", 64, 128), waiting, reused};
  return view;
}

}  // namespace

TEST_CASE("progress: a headline and one line a stage") {
  const auto lines = render_job(night(), 1'751'000, {100, 0, false});
  REQUIRE(lines.size() == 5);
  CHECK(lines[0] == "job 3 夜间优化  active  2 of 4 stages  12:31");
  CHECK(lines[1] == "  ✓ baseline  #1  done      0:31");
  CHECK(lines[2] ==
        "  ▶ calibrate #1  running   [██████░░░░░░] 64/128 steps 50%  1200 tok/s  capture  0:31  "
        "1.2 GiB");
  CHECK(lines[3] == "  · quantize      waiting   waits for calibrate (running)");
  CHECK(lines[4] == "  = fuse          reused    job 2, attempt 1");
}

TEST_CASE("progress: no line is wider than the terminal, with and without colour") {
  JobView view = night();
  view.stages[2].name = "量化量化量化量化量化量化量化量化";
  view.stages[2].waiting_reason =
      "等待校准完成 because it needs everything that calibrate measures";
  for (std::size_t columns : {20u, 33u, 40u, 79u, 80u, 100u, 200u}) {
    for (bool colour : {false, true}) {
      for (const std::string& line : render_job(view, 1'751'000, {columns, 0, colour})) {
        CAPTURE(line);
        CHECK(display_width(line) <= columns);
      }
    }
  }
}

TEST_CASE("progress: a low terminal shows what runs and what failed first") {
  JobView view = night();
  for (int i = 0; i < 30; ++i) view.stages.push_back(stage("later", StageState::waiting));
  StageView failed = stage("broken", StageState::failed, 2);
  failed.attempts = {ended(1, Outcome::oom, "killed"), ended(2, Outcome::oom, "killed again")};
  view.stages.push_back(failed);
  const auto lines = render_job(view, 1'751'000, {80, 6, false});
  REQUIRE(lines.size() == 6);
  CHECK(lines[1].find("calibrate") != std::string::npos);
  CHECK(lines[4].find("broken    #2  failed    oom: killed again") != std::string::npos);
  CHECK(lines[5] == "  … 31 more");
}

TEST_CASE("progress: text of a stage cannot move the cursor") {
  JobView view = night();
  view.stages[1].pulse->phase = "\x1b[2Jevil\n";
  for (const std::string& line : render_job(view, 0, {200, 0, false})) {
    CHECK(line.find('\x1b') == std::string::npos);
    CHECK(line.find('\n') == std::string::npos);
  }
}

TEST_CASE("progress: plain lines tell changes once and progress now and then") {
  PlainProgress plain(5'000);
  JobView view = night();
  CHECK(plain.lines(view, {0, 1'000'000}).size() == 4);   // done, running, its progress, reused
  CHECK(plain.lines(view, {1'000, 1'001'000}).empty());
  view.stages[1].pulse->progress->done = 65;
  CHECK(plain.lines(view, {2'000, 1'002'000}).empty());   // too soon
  const auto moved = plain.lines(view, {6'000, 1'006'000});
  REQUIRE(moved.size() == 1);
  CHECK(moved[0].ends_with("calibrate #1 65/128 steps 50%  1200 tok/s  capture  0:31  1.2 GiB"));
  CHECK(plain.lines(view, {60'000, 1'060'000}).empty());  // nothing moved

  view.stages[1].state = StageState::ready;               // it failed, and is tried again
  view.stages[1].attempts = {ended(1, Outcome::oom, "over 24 GiB")};
  view.stages[1].pulse.reset();
  const auto retried = plain.lines(view, {61'000, 1'061'000});
  REQUIRE(retried.size() == 1);
  CHECK(retried[0].find("calibrate #1 ended: oom: over 24 GiB") != std::string::npos);

  view.stages[1].state = StageState::done;
  view.stages[1].attempt = 2;
  view.stages[1].attempts.push_back(ended(2, Outcome::ok));
  view.stages[1].notes.push_back("layer 5 put back");
  const auto done = plain.lines(view, {70'000, 1'070'000});
  REQUIRE(done.size() == 2);
  CHECK(done[0].find("calibrate note: layer 5 put back") != std::string::npos);
  CHECK(done[1].find("calibrate #2 done in 0:31") != std::string::npos);
}
