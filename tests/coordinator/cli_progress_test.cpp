#include <doctest/doctest.h>

#include "coordinator/cli/follow.h"
#include "coordinator/cli/progress.h"
#include "coordinator/cli/stage_groups.h"
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

namespace {

// 1000 stages of one matrix between two others: 30 run, 12 failed, the rest waits.
JobView sweep() {
  JobView view;
  view.job = {7};
  view.name = "sweep";
  view.stages.push_back(stage("baseline", StageState::done, 1));
  for (int i = 0; i < 1000; ++i) {
    const StageState state = i < 30   ? StageState::running
                             : i < 42 ? StageState::failed
                                      : StageState::ready;
    view.stages.push_back(stage("seed-" + std::to_string(i), state, i < 42 ? 1 : 0));
    view.stages.back().group = "seed";
  }
  view.stages.push_back(stage("evaluate", StageState::waiting));
  return view;
}

}  // namespace

TEST_CASE("progress: a large matrix is one line of counts, and the stages that tell most") {
  const auto lines = render_job(sweep(), 0, {100, 0, false});
  REQUIRE(lines.size() == 1 + 1 + 1 + 8 + 1);
  CHECK(lines[2] == "  ⋮ seed     1000 stages: 12 failed, 30 running, 958 ready");
  CHECK(lines[3].find("seed-0 ") != std::string::npos);
  CHECK(lines[10].find("seed-7 ") != std::string::npos);
  CHECK(lines[11].find("evaluate") != std::string::npos);
  CHECK(render_job(sweep(), 0, {100, 0, false, true}).size() == 1 + 1002);
}

TEST_CASE("progress: what failed in a large matrix is named where little runs") {
  JobView view = sweep();
  for (std::size_t i = 3; i <= 30; ++i) view.stages[i].state = StageState::done;
  const auto lines = render_job(view, 0, {100, 0, false});
  REQUIRE(lines.size() == 12);
  CHECK(lines[2] == "  ⋮ seed     1000 stages: 12 failed, 2 running, 958 ready, 28 done");
  CHECK(lines[4].find("▶ seed-1 ") != std::string::npos);
  CHECK(lines[5].find("✗ seed-30 ") != std::string::npos);
}

TEST_CASE("progress: a low terminal keeps a large matrix's counts") {
  const auto lines = render_job(sweep(), 0, {100, 5, false});
  REQUIRE(lines.size() == 5);
  CHECK(lines[1].find("⋮ seed ") != std::string::npos);
  CHECK(lines[4] == "  … 2 more");   // baseline and evaluate; the group's line counts its own
}

TEST_CASE("progress: a matrix of eight stages is eight lines, of nine one") {
  JobView view;
  for (int i = 0; i < 8; ++i) {
    view.stages.push_back(stage("s-" + std::to_string(i), StageState::ready));
    view.stages.back().group = "s";
  }
  CHECK(render_job(view, 0, {100, 0, false}).size() == 9);
  view.stages.push_back(view.stages.back());
  CHECK(render_job(view, 0, {100, 0, false}).size() == 2);
}

TEST_CASE("progress: check names a large matrix once") {
  JobSpec spec;
  spec.stages.resize(10);
  spec.stages[0].name = "baseline";
  for (std::size_t i = 1; i < spec.stages.size(); ++i) {
    spec.stages[i].name = "q-" + std::to_string(i - 1);
    spec.stages[i].group = "q";
  }
  CHECK(stage_list_text(spec, false) == "baseline, q (9 stages)");
  CHECK(stage_list_text(spec, true) ==
        "baseline, q-0, q-1, q-2, q-3, q-4, q-5, q-6, q-7, q-8");
}

TEST_CASE("progress: looking takes at most a twentieth of the time") {
  CHECK(pause_ms_after(3, 250) == 250);
  CHECK(pause_ms_after(100, 250) == 1'900);
  CHECK(pause_ms_after(5'000, 250) == 10'000);   // and something is seen now and then
}

TEST_CASE("progress: what was left out of a log is said in one line") {
  CHECK(log_left_out_line(3'435'973'837) == "[… 3.2 GiB left out: --log-limit …]");
  CHECK(log_left_out_line(12) == "[… 12 B left out: --log-limit …]");
}
