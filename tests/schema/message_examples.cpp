#include "tests/schema/message_examples.h"

namespace nightshift::test {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

RedLineResult example_red_line() {
  return {"ttft_ms", "<= 0.33x", 39.6, 41.25, false, false, "measured 41.25, baseline 120"};
}

MetricReport example_metric() { return {"throughput", 1234.5678901234567, "tok/s", "qa", "d1"}; }

AttemptPulse example_pulse() {
  AttemptPulse pulse;
  pulse.ref = example_ref();
  pulse.log_bytes = 5'000'000'000;
  pulse.memory_bytes = 3 * gib;
  pulse.progress_age_ms = 1500;
  pulse.log_age_ms = 20;
  pulse.elapsed_ms = 60'000;
  pulse.phase = "loading";
  pulse.quiet_left_ms = 4000;
  pulse.progress = ProgressReport{17, 1024, "samples", 12.5, "tok/s"};
  pulse.preparing = true;
  return pulse;
}

WorkerHello example_hello() {
  WorkerHello hello;
  hello.worker = {"box1"};
  hello.session = "7f3a";
  hello.host = "gpu-box";
  hello.pid = 4321;
  hello.software = "0.1.0";
  hello.resources = {2, 1, 16, 128 * gib, {"h200", "nvme"}, "sm_90", 9 * gib};
  hello.held = {{example_ref(), true, false},
                {{JobId{4}, "soak", AttemptNumber{1}}, false, true}};
  return hello;
}

AttemptFinished example_finished() {
  AttemptFinished finished;
  finished.ref = example_ref();
  finished.outcome = Outcome::red_line;
  finished.exit_code = 3;
  finished.signal = 9;
  finished.reason = "TTFT 41.25 ms, the limit is 39.6 ms";
  finished.log_tail = "last line\n";
  finished.elapsed_ms = 123'456;
  finished.peak_memory_bytes = 7 * gib;
  finished.committed = true;
  finished.checkpoint = CheckpointInfo{"/data/checkpoints/3/fuse.2", "00ff", 23'388'192};
  finished.metrics = {example_metric(), {"ttft", 41.25, "ms", "", "d1"}};
  finished.red_lines = {example_red_line()};
  finished.notes = {"层 5 注意力 back to 16 bits", "second"};
  return finished;
}

AssignAttempt example_assign() {
  AssignAttempt assign;
  assign.ref = example_ref();
  assign.server_epoch = 12;
  assign.order = example_order();
  assign.command = {"/bin/sh", "-c", "echo ü"};
  assign.environment = {{"HF_HOME", "/tmp/hf"}, {"LANG", "C.UTF-8"}};
  assign.input_digests = {{"calibrate", "aa"}, {"baseline", "bb"}};
  assign.temp = "/scratch";
  assign.retry_reason = "attempt 1: oom";
  assign.watchdog = {1000, 2000, gib, 9 * gib, WatchdogMode::warn};
  assign.wall_limit_ms = 3'600'000;
  assign.gpu_devices = {0, 3};
  return assign;
}

}  // namespace

AttemptRef example_ref() { return {JobId{3}, "quantize", AttemptNumber{2}}; }

StageOrder example_order() {
  StageOrder order;
  order.job = 3;
  order.job_name = "k3 夜";
  order.stage = "quantize";
  order.kind = "quantize";
  order.attempt = 2;
  order.model_path = "/models/k3-nano";
  order.bench = {8, 64, 32, 6, 7};
  order.red_lines.throughput_tok_s = Limit{Limit::Side::at_least, 3, true, ">= 3.0x"};
  order.red_lines.ttft_ms = Limit{Limit::Side::at_most, 120, false, "<= 120 ms"};
  order.red_lines.tpot_ms = Limit{Limit::Side::at_most, 10, false, "<= 10"};
  order.red_lines.peak_memory_bytes = Limit{Limit::Side::at_most, 2e10, false, "<= 20GB"};
  order.red_lines.token_match = Limit{Limit::Side::at_least, 0.95, false, ">= 95%"};
  order.red_lines.accuracy_drop = {{"general", 0.03}, {"target", 0.02}};
  order.params_json = R"({"keep":["lm_head"],"scheme":"auto","wait_ms":5000})";
  order.inputs = {{"baseline", "/c/baseline.1"}, {"calibrate", "/c/calibrate.1"}};
  return order;
}

JobSpec example_spec() {
  JobSpec spec;
  spec.name = "k3-overnight";
  spec.source_path = "/jobs/k3.yaml";
  spec.model_path = "/models/k3-nano";
  spec.model_digest = "abc";
  spec.bench = {8, 64, 32, 6, 7};
  spec.red_lines = example_order().red_lines;
  spec.night = {"22:00", "07:00", "Asia/Shanghai"};
  spec.watchdog = {1000, 2000, gib, 9 * gib, WatchdogMode::log};
  spec.retry = {4, 1234};
  spec.resources = {1, 0, 24 * gib, 8, true, {"h200"}, "/scratch"};
  spec.notify = {{{"done", "failed"}, "https://example.org/hook", "", "", ""},
                 {{"retry"}, "", "notify-send", "ops@example.org", "smtp://mail"}};
  spec.priority = -3;
  StageSpec baseline;
  baseline.name = baseline.kind = "baseline";
  StageSpec script;
  script.name = "own-toolkit";
  script.kind = "run";
  script.needs = {"baseline"};
  script.params_json = R"({"checkpoint":true,"x":1e-7})";
  script.inputs = {"/data/a.jsonl"};
  script.input_digests = {{"/data/a.jsonl", "d1"}};
  script.command = {"/bin/sh", "-c", "true"};
  script.environment = {{"A", "b"}};
  script.wall_limit_ms = 1;
  script.expected_ms = 2;
  script.resources = {0, 50, gib, 1, false, {"x"}, "/t"};
  script.retry = {0, 0};
  spec.stages = {baseline, script};
  return spec;
}

std::vector<Message> message_examples() {
  return {
      example_hello(),
      WorkerWelcome{12, 500, 9000},
      Heartbeat{{"box1"}, "7f3a", 12, 5 * gib, 6 * gib, {example_pulse(), example_pulse()}},
      example_assign(),
      AttemptStarted{example_ref(), 777, "/data/attempts/3/quantize/2/log"},
      example_finished(),
      CommitCheckpoint{example_ref()},
      CheckpointCommitted{example_ref(), true, "it was there"},
      AttemptAcknowledged{example_ref(), false},
      StopAttempt{example_ref(), Outcome::hung, "no progress for 10 min"},
      AssignRefused{example_ref(), "no free slot", true, "quantize"},
      LogRequest{41, example_ref(), -100, 4096},
      LogChunk{41, example_ref(), 100, 4196, std::string("raw \xff\x00 bytes", 12), "short"},
      WorkerShutdown{"going home"},
      SubmitJob{to_json_text(example_spec()), "name: k3-overnight\n", "ada", "r-1"},
      JobSubmitted{JobId{3}},
      Command{42, "status", R"({"job":3})"},
      CommandReply{42, R"({"jobs":[]})"},
      ErrorReply{42, "not_found", "no job 9", "message command", "nightshift status lists them"},
      InputRead{7, example_ref(), "calibrate", "model.safetensors", 1 << 20, 4096},
      CheckpointRead{8, example_ref(), "manifest.json", 0, 4096},
      CheckpointChunk{7, 1 << 20, 5 << 20, std::string("\x00\xff", 2), "is away", true},
      DropCheckpoint{example_ref()},
      CheckpointDropped{example_ref(), false, "in use"},
  };
}

}  // namespace nightshift::test
