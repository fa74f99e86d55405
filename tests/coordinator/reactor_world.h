// A coordinator without sockets for tests: engine, store in memory, a clock that moves when told,
// and the messages that would have been sent. Checks the core's invariants after every step.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "coordinator/reactor_engine.h"
#include "tests/coordinator/fake_store.h"

namespace nightshift::testing {

// Stages in an order in which needs come first, else as they were mentioned.
inline void sort_by_needs(JobSpec& spec) {
  std::vector<StageSpec> sorted;
  std::set<std::string> placed;
  while (!spec.stages.empty()) {
    const auto next = std::find_if(spec.stages.begin(), spec.stages.end(), [&](const auto& stage) {
      return std::all_of(stage.needs.begin(), stage.needs.end(),
                         [&](const std::string& need) { return placed.contains(need); });
    });
    REQUIRE(next != spec.stages.end());
    placed.insert(next->name);
    sorted.push_back(std::move(*next));
    spec.stages.erase(next);
  }
  spec.stages = std::move(sorted);
}

// "a -> b -> d" a line, with as many lines as it takes. Every stage is a `run` stage with a
// command of its own.
inline JobSpec dag(const std::string& text, const std::string& name = "job") {
  JobSpec spec;
  spec.name = name;
  spec.model_path = "/models/m";
  spec.model_digest = "digest-of-m";
  const auto stage_named = [&spec](const std::string& stage) -> StageSpec& {
    for (StageSpec& known : spec.stages) {
      if (known.name == stage) return known;
    }
    StageSpec added;
    added.name = stage;
    added.kind = "run";
    added.command = {"do", stage};
    spec.stages.push_back(added);
    return spec.stages.back();
  };
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string before;
    for (std::string word; words >> word;) {
      if (word == "->") continue;
      StageSpec& stage = stage_named(word);
      auto& needs = stage.needs;
      if (!before.empty() && std::find(needs.begin(), needs.end(), before) == needs.end()) {
        needs.push_back(before);
      }
      before = word;
    }
  }
  sort_by_needs(spec);
  return spec;
}

inline StageSpec& stage_of(JobSpec& spec, const std::string& name) {
  for (StageSpec& stage : spec.stages) {
    if (stage.name == name) return stage;
  }
  FAIL("no stage " << name);
  return spec.stages.front();
}

class World {
 public:
  explicit World(ReactorOptions options = {})
      : store(fake), options_(std::move(options)) {
    engine = std::make_unique<Engine>(store, options_);
    REQUIRE(engine->open(now).ok());
  }

  // The coordinator ends and starts again on the same store.
  void restart() {
    engine = std::make_unique<Engine>(store, options_);
    REQUIRE(engine->open(now).ok());
    flush();
  }

  template <typename Handler>
  auto run(Handler&& handler) {
    if constexpr (std::is_void_v<decltype(engine->run(now, handler))>) {
      engine->run(now, handler);
      flush();
    } else {
      auto result = engine->run(now, handler);
      flush();
      return result;
    }
  }

  void flush() {
    Result<std::vector<Send>> flushed = engine->flush(now);
    last_error = flushed.ok() ? std::optional<Error>() : flushed.error();
    if (flushed.ok()) {
      for (Send& send : *flushed) sent.push_back(std::move(send));
    }
    if (!engine->healthy()) return;
    for (const std::string& broken : check_invariants(engine->core())) FAIL_CHECK(broken);
  }

  void pass(std::int64_t ms) {
    now.mono_ms += ms;
    now.wall_ms += ms;
  }
  void tick(std::int64_t ms = 0) {
    pass(ms);
    run([](Turn& turn) { on_tick(turn); });
  }
  // Time goes by in small steps, with heartbeats of these workers.
  void live_on(std::int64_t ms, const std::vector<std::string>& workers) {
    for (std::int64_t done = 0; done < ms; done += 1000) {
      pass(1000);
      for (const std::string& worker : workers) heartbeat(worker, running_on(worker));
      tick();
    }
  }

  JobId submit(const JobSpec& spec, const std::string& user = "ann",
               const std::string& request = "") {
    auto job = run([&](Turn& turn) { return on_submit(turn, {spec, "text", user, request}); });
    REQUIRE(job.ok());
    return *job;
  }
  void hello(const std::string& worker, int slots = 1, const std::vector<HeldAttempt>& held = {},
             const std::string& session = "s1", WorkerResources resources = {}) {
    WorkerHello hello;
    hello.worker = {worker};
    hello.session = worker + session;
    hello.resources = resources;
    hello.resources.slots = slots;
    hello.held = held;
    sessions[worker] = hello.session;
    run([&](Turn& turn) { on_worker_hello(turn, hello); });
  }
  void heartbeat(const std::string& worker, const std::vector<AttemptPulse>& attempts = {}) {
    Heartbeat heartbeat;
    heartbeat.worker = {worker};
    heartbeat.session = sessions[worker];
    heartbeat.server_epoch = core().epoch.value;
    heartbeat.attempts = attempts;
    run([&](Turn& turn) { on_heartbeat(turn, heartbeat); });
  }
  Sender from(const std::string& worker) { return {{worker}, sessions[worker]}; }
  void started(const std::string& worker, const AttemptRef& ref) {
    run([&](Turn& turn) { on_attempt_started(turn, from(worker), {ref, 7, "/log"}); });
  }
  AttemptFinished report(const AttemptRef& ref, Outcome outcome, const std::string& reason = "") {
    AttemptFinished finished;
    finished.ref = ref;
    finished.outcome = outcome;
    finished.reason = reason;
    finished.elapsed_ms = 5;
    finished.log_tail = "last words of " + to_string(ref);
    if (outcome == Outcome::ok) {
      finished.checkpoint =
          CheckpointInfo{"/checkpoints/" + to_string(ref), "d" + to_string(ref), 9};
      finished.metrics = {{"throughput", 12.5, "tok/s", "", ""}};
    }
    return finished;
  }
  void finished(const std::string& worker, const AttemptFinished& report) {
    run([&](Turn& turn) { on_attempt_finished(turn, from(worker), report); });
  }
  void finished(const std::string& worker, const AttemptRef& ref, Outcome outcome,
                const std::string& reason = "") {
    finished(worker, report(ref, outcome, reason));
  }
  void committed(const std::string& worker, const AttemptRef& ref, bool ok = true) {
    run([&](Turn& turn) {
      on_checkpoint_committed(turn, from(worker), {ref, ok, ok ? "" : "No space left on device"});
    });
  }
  // Start, end and commit.
  void complete(const std::string& worker, const AttemptRef& ref) {
    started(worker, ref);
    finished(worker, ref, Outcome::ok);
    committed(worker, ref);
  }
  Status cancel(JobId job, const std::string& stage = "") {
    return run([&](Turn& turn) { return on_cancel(turn, job, stage, "ann"); });
  }
  Result<std::vector<ResumeStep>> resume(JobId job, const std::string& from_stage = "",
                                         std::optional<JobSpec> spec = std::nullopt) {
    return run([&](Turn& turn) {
      return on_resume(turn, {job, std::move(spec), "new text", from_stage});
    });
  }

  const Core& core() const { return engine->core(); }
  const Stage& stage(JobId job, const std::string& name) const {
    return stage_at(core(), *find_stage(core(), {job, name}));
  }
  // "a done, b running#2"
  std::string states(JobId id) const {
    std::string text;
    const Job& job = core().jobs.at(id);
    for (std::size_t i = 0; i < job.stages.size(); ++i) {
      const Stage& stage = job.stages[i];
      text += fmt::format("{}{} {}", i == 0 ? "" : ", ", job.spec.stages[i].name,
                          to_string(stage.state));
      if (stage.attempt.value > 1) text += fmt::format("#{}", stage.attempt.value);
    }
    return text;
  }
  std::vector<AttemptPulse> running_on(const std::string& worker) const {
    std::vector<AttemptPulse> pulses;
    for (const auto& [at, live] : core().live) {
      if (live.worker.value != worker || live.finished) continue;
      if (stage_at(core(), at).state != StageState::running) continue;
      AttemptPulse pulse;
      pulse.ref = live.ref;
      pulse.elapsed_ms = now.mono_ms - live.started_mono_ms;
      pulses.push_back(pulse);
    }
    return pulses;
  }
  // How many messages of this type were sent since the last clear, about this attempt.
  template <typename Type>
  int count_sent(const AttemptRef& ref) const {
    int count = 0;
    for (const Send& send : sent) {
      const Type* message = std::get_if<Type>(&send.message);
      if (message != nullptr && message->ref == ref) ++count;
    }
    return count;
  }
  template <typename Type>
  const Type* last_sent() const {
    for (auto send = sent.rbegin(); send != sent.rend(); ++send) {
      if (const Type* message = std::get_if<Type>(&send->message)) return message;
    }
    return nullptr;
  }
  int count_events(const std::string& part) {
    int count = 0;
    for (const EventRow& event : fake.events()) {
      if (event.text.find(part) != std::string::npos) ++count;
    }
    return count;
  }

  Now now{1'000'000, 1'700'000'000'000};
  FakeStore fake;
  FailingStore store;
  std::unique_ptr<Engine> engine;
  std::vector<Send> sent;
  std::map<std::string, std::string> sessions;
  std::optional<Error> last_error;

 private:
  ReactorOptions options_;
};

}  // namespace nightshift::testing
