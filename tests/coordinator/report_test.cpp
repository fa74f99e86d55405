#include <doctest/doctest.h>

#include <cmath>

#include "coordinator/report.h"
#include "coordinator/report_table.h"
#include "coordinator/terminal.h"
#include "schema/json.h"

using namespace nightshift;

namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

StageView done_stage(const std::string& name, const std::string& model) {
  StageView stage;
  stage.name = name;
  stage.kind = name;
  stage.state = StageState::done;
  stage.attempt = 1;
  stage.checkpoint_path = "/home/u/checkpoints/3/" + name + ".1";
  AttemptView attempt;
  attempt.attempt = 1;
  attempt.worker = "box1";
  attempt.outcome = Outcome::ok;
  attempt.elapsed_ms = 60'000;
  stage.attempts = {attempt};
  stage.metrics = {{"model", 1, "", "", model}};
  return stage;
}

RedLineResult line(const std::string& name, const std::string& limit, double value, double measured,
                   bool at_least) {
  const bool pass = at_least ? measured >= value : measured <= value;
  return {name, limit, value, measured, at_least, pass, "evaluate against baseline"};
}

// The numbers of the published night: 520 -> 1715 tok/s, 380 -> 118 ms, 24 -> 20.2 GiB, and what
// evaluate measured of all three models.
JobView night() {
  JobView view;
  view.job = {3};
  view.name = "k3-overnight";
  view.user = "u";
  view.state = JobState::done;
  view.submitted_ms = 1'000;
  view.ended_ms = 9'000'000;

  StageView baseline = done_stage("baseline", "m16");
  auto add = [](StageView& stage, const char* name, double value, const char* unit,
                const char* model, const char* group = "") {
    stage.metrics.push_back({name, value, unit, group, model});
  };
  add(baseline, "throughput_tok_s", 520, "tok/s", "m16");
  add(baseline, "ttft_ms", 380, "ms", "m16");
  add(baseline, "peak_memory_bytes", 24 * gib, "bytes", "m16");
  add(baseline, "token_match", 1, "", "m16");
  add(baseline, "ops", 132, "", "m16");
  add(baseline, "share", 0.67, "", "m16", "experts");
  add(baseline, "share", 0.18, "", "m16", "attention");

  StageView calibrate = done_stage("calibrate", "m16");   // the same model: measures nothing itself

  StageView quantize = done_stage("quantize", "m8");
  add(quantize, "throughput_tok_s", 820, "tok/s", "m8");
  add(quantize, "ttft_ms", 350, "ms", "m8");
  add(quantize, "peak_memory_bytes", 16.5 * gib, "bytes", "m8");
  add(quantize, "token_match", 0.98, "", "m8");
  add(quantize, "ops", 132, "", "m8");
  quantize.notes = {"layer 5 attention put back to 16 bits: deviation 0.07 > 0.05"};

  StageView fuse = done_stage("fuse", "m8f");
  add(fuse, "throughput_tok_s", 1715, "tok/s", "m8f");
  add(fuse, "ttft_ms", 118, "ms", "m8f");
  add(fuse, "peak_memory_bytes", 20.2 * gib, "bytes", "m8f");
  add(fuse, "token_match", 0.991, "", "m8f");
  add(fuse, "ops", 61, "", "m8f");

  StageView evaluate = done_stage("evaluate", "m8f");
  add(evaluate, "accuracy", 0.5, "", "m16", "code");
  add(evaluate, "accuracy", 0.6, "", "m16");
  add(evaluate, "accuracy", 0.49, "", "m8", "code");
  add(evaluate, "accuracy", 0.594, "", "m8");
  add(evaluate, "accuracy", 0.4894, "", "m8f", "code");
  add(evaluate, "accuracy", 0.591, "", "m8f");
  add(evaluate, "perplexity", 8, "", "m16");
  add(evaluate, "perplexity", 8.2, "", "m8");
  add(evaluate, "perplexity", 8.24, "", "m8f");
  evaluate.red_lines = {line("throughput_tok_s", ">= 3.0x", 1560, 1715, true),
                        line("ttft_ms", "<= 120 ms", 120, 118, false)};
  view.stages = {baseline, calibrate, quantize, fuse, evaluate};
  return view;
}

const ReportRow& row_of(const JobReport& report, const std::string& stage) {
  for (const ReportRow& row : report.rows) {
    if (row.stage == stage) return row;
  }
  FAIL("no row ", stage);
  return report.rows.front();
}

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& one : lines) text += one + "\n";
  return text;
}

}  // namespace

TEST_CASE("report: rows of one model share its numbers, whoever measured them") {
  const JobReport report = make_report(night());
  REQUIRE(report.rows.size() == 5);
  REQUIRE(report.baseline);
  CHECK(*report.baseline == 0);
  const ReportRow& calibrate = row_of(report, "calibrate");
  CHECK(calibrate.model == "m16");
  CHECK(calibrate.numbers.throughput_tok_s == 520.0);
  CHECK(calibrate.numbers.accuracy.at("code") == 0.5);
  CHECK(row_of(report, "quantize").numbers.accuracy.at("all") == 0.594);
  CHECK(row_of(report, "evaluate").numbers.ttft_ms == 118.0);
  CHECK(row_of(report, "evaluate").numbers.ops == 61.0);
  for (const ReportRow& row : report.rows) {
    for (const ReportColumn& column : report_columns(report)) {
      CAPTURE(row.stage);
      CAPTURE(column.key);
      CHECK(column_value(row, column.key).has_value());
    }
  }
}

TEST_CASE("report: ratios are against the baseline") {
  const JobReport report = make_report(night());
  const ReportRow& fuse = row_of(report, "fuse");
  CHECK(*column_ratio(report, fuse, "throughput_tok_s") == doctest::Approx(1715.0 / 520));
  CHECK(*column_ratio(report, fuse, "ttft_ms") == doctest::Approx(118.0 / 380));
  CHECK(*column_ratio(report, fuse, "accuracy.code") == doctest::Approx(0.9788));
  CHECK(*column_ratio(report, report.rows[0], "ops") == 1.0);
  CHECK_FALSE(column_ratio(report, fuse, "launches"));
  CHECK_FALSE(column_ratio(report, fuse, "accuracy.unknown"));
}

TEST_CASE("report: the table, verdict first, in a hundred columns") {
  const auto lines = render_report(make_report(night()), {100, false});
  CHECK(text_of(lines) ==
        R"(k3-overnight (job 3): all 2 red lines hold
checkpoint of evaluate: /home/u/checkpoints/3/evaluate.1

checkpoint      P tok/s   D (TTFT) ms      peak memory      acc code       acc all      ppl all
baseline      520           380           24 GiB         50.0%         60.0%            8
calibrate     520 1.00x     380 1.00x     24 GiB 1.00x   50.0% +0.0%   60.0% +0.0%      8 1.00x
quantize      820 1.58x     350 0.92x   16.5 GiB 0.69x   49.0% -2.0%   59.4% -1.0%    8.2 1.02x
fuse         1715 3.30x     118 0.31x   20.2 GiB 0.84x   48.9% -2.1%   59.1% -1.5%   8.24 1.03x
evaluate     1715 3.30x     118 0.31x   20.2 GiB 0.84x   48.9% -2.1%   59.1% -1.5%   8.24 1.03x

checkpoint   token match         ops
baseline          100.0%   132
calibrate         100.0%   132 1.00x
quantize           98.0%   132 1.00x
fuse               99.1%    61 0.46x
evaluate           99.1%    61 0.46x

red lines
  pass   throughput_tok_s  1715 tok/s >= 1560 tok/s (>= 3.0x the baseline), evaluate
  pass   ttft_ms           118 ms <= 120 ms, evaluate

stages
  baseline   done          1:00
  calibrate  done          1:00
  quantize   done          1:00
  fuse       done          1:00
  evaluate   done          1:00

further measurements
  baseline share  experts 67.0%  attention 18.0%

notes
  quantize: layer 5 attention put back to 16 bits: deviation 0.07 > 0.05
)");
  for (const std::string& one : lines) CHECK(display_width(one) <= 100);
}

TEST_CASE("report: narrow terminals get more tables, never a wider line") {
  for (std::size_t columns : {40u, 60u, 80u}) {
    const auto lines = render_report(make_report(night()), {columns, false});
    std::size_t heads = 0;
    for (const std::string& one : lines) {
      if (one.starts_with("checkpoint  ")) ++heads;
      if (one.starts_with("checkpoint of") || one.starts_with("  quantize: ")) continue;   // a path
      CAPTURE(one);
      CHECK(display_width(one) <= std::max<std::size_t>(columns, 44));
    }
    CHECK(heads >= 2);
  }
}

TEST_CASE("report: a crossed red line") {
  JobView view = night();
  view.state = JobState::failed;
  StageView& evaluate = view.stages.back();
  evaluate.state = StageState::failed;
  evaluate.attempts.back().outcome = Outcome::red_line;
  evaluate.attempts.back().reason = "ttft_ms";
  evaluate.red_lines[1] = line("ttft_ms", "<= 110 ms", 110, 118, false);
  const JobReport report = make_report(view);
  CHECK(report.verdict == Verdict::red_line);
  CHECK(exit_code_of(report.verdict) == 3);
  CHECK(report.verdict_text == "1 of 2 red lines crossed: ttft_ms");
  CHECK(report.rows.size() == 4);   // evaluate left no checkpoint
  CHECK(row_of(report, "fuse").numbers.accuracy.at("all") == 0.591);
  const std::string text = text_of(render_report(report, {100, false}));
  CHECK(text.find("BREACH ttft_ms           118 ms <= 110 ms, evaluate: evaluate against "
                  "baseline") != std::string::npos);
  CHECK(text.find("pass   throughput_tok_s  1715 tok/s >= 1560 tok/s (>= 3.0x the baseline), "
                  "evaluate") != std::string::npos);
}

TEST_CASE("report: verdicts and exit codes of jobs that did not end well") {
  JobView view = night();
  view.stages[2].state = StageState::failed;
  view.stages[2].attempts.back().outcome = Outcome::oom;
  view.stages[2].attempts.back().reason = "over 24 GiB";
  view.state = JobState::failed;
  CHECK(make_report(view).verdict == Verdict::failed);
  CHECK(make_report(view).verdict_text == "stage quantize failed (oom: over 24 GiB)");
  CHECK(exit_code_of(Verdict::failed) == 1);

  view = night();
  view.state = JobState::cancelled;
  CHECK(make_report(view).verdict == Verdict::cancelled);

  view = night();
  view.state = JobState::active;
  view.stages[4].state = StageState::running;
  CHECK(make_report(view).verdict == Verdict::unfinished);
  CHECK(make_report(view).verdict_text == "the job is not finished: 4 of 5 stages");

  view = night();
  view.stages[4].red_lines.clear();
  CHECK(make_report(view).verdict == Verdict::pass);
  CHECK(make_report(view).verdict_text == "done; the job has no red lines");
}

TEST_CASE("report: numbers without a model belong to their stage alone") {
  JobView view;
  StageView one = done_stage("one", "");
  one.metrics = {{"ttft_ms", 5, "ms", "", ""}};
  StageView two = done_stage("two", "");
  two.metrics.clear();
  view.stages = {one, two};
  const JobReport report = make_report(view);
  CHECK(report.rows[0].numbers.ttft_ms == 5.0);
  CHECK_FALSE(report.rows[1].numbers.ttft_ms);
  CHECK_FALSE(report.baseline);
}

TEST_CASE("report: JSON has a version, every checkpoint, and null where nothing was measured") {
  JobView view = night();
  view.stages[1].state = StageState::reused;
  view.stages[1].reuse_reason = "job 2, attempt 1";
  const Json json = to_json(make_report(view));
  CHECK(json.at("version") == 1);
  CHECK(json.at("verdict") == "pass");
  CHECK(json.at("baseline") == "baseline");
  CHECK(json.at("result").at("path") == "/home/u/checkpoints/3/evaluate.1");
  const Json& fuse = json.at("checkpoints").at(3);
  CHECK(fuse.at("stage") == "fuse");
  CHECK(fuse.at("throughput_tok_s") == 1715.0);
  CHECK(fuse.at("accuracy").at("code") == 0.4894);
  CHECK(fuse.at("perplexity").at("all") == 8.24);
  CHECK(fuse.at("launches").is_null());
  CHECK(fuse.at("checkpoint") == "/home/u/checkpoints/3/fuse.1");
  CHECK(fuse.at("ratio").at("ttft_ms").get<double>() == doctest::Approx(118.0 / 380));
  CHECK(json.at("checkpoints").at(1).at("reused") == true);
  CHECK(json.at("red_lines").at(1).at("limit") == "<= 120 ms");
  CHECK(json.at("red_lines").at(1).at("pass") == true);
  CHECK(json.at("stages").at(2).at("attempts").at(0).at("outcome") == "ok");
  CHECK(json.at("stages").at(2).at("elapsed_ms") == 60'000);
  CHECK(json.at("notes").at(0).at("stage") == "quantize");
  CHECK(json.at("metrics").at(0).at("group") == "experts");
}

TEST_CASE("report: CSV quotes what needs it") {
  JobView view = night();
  view.stages[0].checkpoint_path = "/a, \"b\"";
  const std::string csv = to_csv(make_report(view));
  CHECK(csv.starts_with(
      "job,stage,kind,attempt,reused,model,checkpoint,throughput_tok_s,ttft_ms,peak_memory_bytes,"
      "accuracy.code,accuracy.all,perplexity.all,token_match,ops\r\n"
      "3,baseline,baseline,1,false,m16,\"/a, \"\"b\"\"\",520,380,25769803776,0.5,0.6,8,1,132\r\n"));
}

TEST_CASE("report: further measurements, the worst deviations first") {
  JobView view = night();
  for (int i = 0; i < 20; ++i) {
    view.stages[2].metrics.push_back(
        {"deviation", 0.001 * i, "", "layers." + std::to_string(i), "m8"});
  }
  const std::string text = text_of(render_report(make_report(view), {100, false}));
  CHECK(text.find("  baseline share  experts 67.0%  attention 18.0%") != std::string::npos);
  CHECK(text.find("  quantize deviation  layers.19 0.019  layers.18 0.018") != std::string::npos);
  CHECK(text.find("(largest 8 of 20)") != std::string::npos);
}

TEST_CASE("report: notes that are many of one kind are counted, the others shown") {
  JobView view = night();
  for (int i = 0; i < 25; ++i) view.stages[2].notes.push_back("plan: layer " + std::to_string(i));
  const std::string text = text_of(render_report(make_report(view), {100, false}));
  CHECK(text.find("  quantize: layer 5 attention put back") != std::string::npos);
  CHECK(text.find("  quantize: plan: 25 notes, see report.json\n") != std::string::npos);
  CHECK(text.find("plan: layer 3") == std::string::npos);
  CHECK(to_json(make_report(view)).at("notes").size() == 26);
}
