// A whole night on a virtual clock: coordinator, store and workers with a network that loses,
// doubles, delays and reorders; workers that die, pause and return; a coordinator that restarts;
// a store that fails before or after it wrote. Everything follows from the seed.
//
// What must hold is judged from outside, by what the workers really did:
//   - no attempt is ever run twice, nor by two workers
//   - a stage starts only when its inputs are really there
//   - the checkpoint of a done stage is the one that this very attempt made and committed
//   - what was done, and what was cancelled, stays so
//   - in the end every job that nobody cancelled is done, each stage once
#pragma once

#include <functional>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/coordinator/simulated_things.h"

namespace nightshift::testing {

class SimulatedNight {
 public:
  // `store`: empty and kept by the caller; without it the night is stored in memory.
  explicit SimulatedNight(NightOptions options, Store* store = nullptr)
      : options_(options), random_(options.seed), store_(store == nullptr ? fake_ : *store) {
    reactor_options_.lease_ms = 10'000;
    start_engine();
    for (int i = 0; i < options_.workers; ++i) {
      Machine machine;
      machine.name = {"box" + std::to_string(i)};
      machine.slots = 1 + static_cast<int>(random_() % 2);
      machines_.push_back(machine);
    }
  }

  // Empty: all went as it must.
  std::vector<std::string> run() {
    const std::int64_t begin = now_.mono_ms;
    for (std::int64_t second = 0; violations_.empty(); ++second) {
      calm_ = now_.mono_ms - begin > options_.faults_ms;
      people(second);
      for (Machine& machine : machines_) live(machine);
      tick_coordinator();
      deliver_until(now_.mono_ms + 1000);
      if (calm_ && all_done()) {
        commit();
        break;
      }
      if (now_.mono_ms - begin > options_.night_ms) {
        broken("the night is over and not all is done: " + where_it_stands());
      }
    }
    if (violations_.empty()) judge_end();
    return violations_;
  }

  int attempts_run() const { return static_cast<int>(run_by_.size()); }
  int restarts() const { return restarts_; }

 private:
  using Process = SimProcess;
  using Machine = SimMachine;
  using Parcel = SimParcel;

  bool chance(double probability) {
    return static_cast<double>(random_() >> 11) * 0x1.0p-53 < probability;
  }
  bool fault(double probability) { return !calm_ && chance(probability); }
  std::int64_t up_to(std::int64_t ms) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(ms + 1));
  }
  void broken(const std::string& what) {
    violations_.push_back(fmt::format("seed {}: {} ms: {}", options_.seed, now_.mono_ms, what));
  }
  std::string session_of(const Machine& machine) const {
    return machine.name.value + "-" + std::to_string(machine.session);
  }

  // ---- network -------------------------------------------------------------------------------
  void post(bool to_coordinator, const WorkerId& worker, const std::string& session,
            const Message& message) {
    const int copies = fault(options_.lose) ? 0 : fault(options_.twice) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const std::int64_t delay = fault(0.05) ? up_to(20'000) : 1 + up_to(40);
      parcels_.push({now_.mono_ms + delay, ++order_, to_coordinator, worker, session, message});
    }
  }
  void say(const Machine& machine, const Message& message) {
    post(true, machine.name, session_of(machine), message);
  }
  void deliver_until(std::int64_t end_mono_ms) {
    while (!parcels_.empty() && parcels_.top().at_mono_ms <= end_mono_ms && violations_.empty()) {
      const Parcel parcel = parcels_.top();
      parcels_.pop();
      advance_to(std::max(parcel.at_mono_ms, now_.mono_ms));
      if (parcel.to_coordinator) {
        receive(parcel);
      } else {
        for (Machine& machine : machines_) {
          if (machine.name == parcel.worker) hear(machine, parcel);
        }
      }
    }
    advance_to(end_mono_ms);
  }
  void advance_to(std::int64_t mono_ms) {
    now_.wall_ms += mono_ms - now_.mono_ms;
    now_.mono_ms = mono_ms;
  }

  // ---- coordinator ---------------------------------------------------------------------------
  void start_engine() {
    engine_ = std::make_unique<Engine>(store_, reactor_options_);
    if (Status opened = engine_->open(now_); !opened.ok()) broken(opened.error().line());
    if (!engine_->warnings().empty()) broken("recovery: " + engine_->warnings().front());
    waiting_replies_.clear();
    check();
  }
  void check() {
    for (const std::string& what : check_invariants(engine_->core())) broken(what);
  }
  template <typename Handler>
  void handle(const Handler& handler) {
    engine_->run(now_, handler);
    check();
    if (chance(0.7)) commit();   // else the next one shares the commit
  }
  void commit() {
    if (fault(options_.store_fails)) {
      store_.next = chance(0.5) ? FailingStore::Fault::before_writing
                                : FailingStore::Fault::after_writing;
    }
    Result<std::vector<Send>> sends = engine_->flush(now_);
    store_.next = FailingStore::Fault::none;
    check();
    if (!sends.ok()) {
      if (sends.error().code == ErrorCode::conflict) broken(sends.error().line());
      waiting_replies_.clear();
      return;
    }
    for (const auto& reply : waiting_replies_) reply();
    waiting_replies_.clear();
    for (const Send& send : *sends) post(false, send.worker, send.session, send.message);
    judge_progress();
  }
  void tick_coordinator() {
    if (fault(options_.restart)) {
      restarts_ += 1;
      start_engine();
    }
    engine_->run(now_, [](Turn& turn) { on_tick(turn); });
    check();
    commit();
  }
  // The planted bug: as if nobody compared attempt numbers.
  void forget_guard(AttemptRef& ref, Sender& sender) {
    const auto at = find_stage(engine_->core(), ref.stage_ref());
    if (!options_.forget_attempt_guard || !at) return;
    const auto live = engine_->core().live.find(*at);
    if (live == engine_->core().live.end()) return;
    ref = live->second.ref;
    sender.worker = live->second.worker;
    sender.session = engine_->core().workers.at(sender.worker).session;
  }
  void receive(const Parcel& parcel) {
    Sender sender{parcel.worker, parcel.session};
    const Worker* known = find_worker(engine_->core(), parcel.worker);
    if (const auto* hello = std::get_if<WorkerHello>(&parcel.message)) {
      handle([&](Turn& turn) { on_worker_hello(turn, *hello); });
    } else if (const auto* heartbeat = std::get_if<Heartbeat>(&parcel.message)) {
      handle([&](Turn& turn) { on_heartbeat(turn, *heartbeat); });
    } else if (known == nullptr || !known->greeted) {
      // The shell knows no sender before its hello.
    } else if (const auto* started = std::get_if<AttemptStarted>(&parcel.message)) {
      AttemptStarted report = *started;
      forget_guard(report.ref, sender);
      handle([&](Turn& turn) { on_attempt_started(turn, sender, report); });
    } else if (const auto* finished = std::get_if<AttemptFinished>(&parcel.message)) {
      AttemptFinished report = *finished;
      forget_guard(report.ref, sender);
      handle([&](Turn& turn) { on_attempt_finished(turn, sender, report); });
    } else if (const auto* committed = std::get_if<CheckpointCommitted>(&parcel.message)) {
      CheckpointCommitted report = *committed;
      forget_guard(report.ref, sender);
      handle([&](Turn& turn) { on_checkpoint_committed(turn, sender, report); });
    } else if (const auto* refused = std::get_if<AssignRefused>(&parcel.message)) {
      handle([&](Turn& turn) { on_assign_refused(turn, sender, *refused); });
    }
  }

  // ---- workers -------------------------------------------------------------------------------
  void live(Machine& machine) {
    if (machine.alive && fault(options_.die)) die(machine);
    if (!machine.alive) {
      if (now_.mono_ms < machine.back_mono_ms) return;
      machine.alive = true;
      machine.session += 1;
      machine.epoch = 0;
      machine.heard_mono_ms = now_.mono_ms;
    }
    if (fault(options_.pause)) machine.paused_until_mono_ms = now_.mono_ms + up_to(30'000);
    for (auto& [ref, process] : machine.held) {
      if (!process.finished && !process.hangs && process.ends_mono_ms <= now_.mono_ms) {
        process.finished = true;
      }
    }
    if (machine.paused_until_mono_ms > now_.mono_ms) return;
    if (now_.mono_ms - machine.heard_mono_ms > reactor_options_.lease_ms) fence(machine);
    if (machine.epoch == 0) {
      say_hello(machine);
      return;
    }
    Heartbeat heartbeat{machine.name, session_of(machine), machine.epoch, -1, -1, {}};
    for (auto& [ref, process] : machine.held) {
      if (process.finished) {
        report_end(machine, ref, process);
      } else {
        AttemptPulse pulse;
        pulse.ref = ref;
        pulse.elapsed_ms = now_.mono_ms - process.began_mono_ms;
        if (process.hangs) pulse.progress_age_ms = pulse.log_age_ms = pulse.elapsed_ms;
        heartbeat.attempts.push_back(pulse);
      }
    }
    say(machine, heartbeat);
  }
  void die(Machine& machine) {
    machine.alive = false;
    machine.back_mono_ms = now_.mono_ms + up_to(20'000);
    // What ran is gone; what had finished may or may not have reached its disk.
    const bool keeps = chance(0.5);
    std::erase_if(machine.held, [&](const auto& held) { return !held.second.finished || !keeps; });
  }
  // Nobody heard of for a lease: end what runs, keep what has finished.
  void fence(Machine& machine) {
    machine.epoch = 0;
    for (auto& [ref, process] : machine.held) {
      if (process.finished) continue;
      process.finished = true;
      process.outcome = Outcome::cancelled;
    }
  }
  void say_hello(Machine& machine) {
    WorkerHello hello;
    hello.worker = machine.name;
    hello.session = session_of(machine);
    hello.resources.slots = machine.slots;
    for (const auto& [ref, process] : machine.held) hello.held.push_back({ref, process.finished});
    say(machine, hello);
  }
  void report_end(Machine& machine, const AttemptRef& ref, Process& process) {
    if (now_.mono_ms - process.said_mono_ms < 3'000) return;
    process.said_mono_ms = now_.mono_ms;
    AttemptFinished report;
    report.ref = ref;
    report.outcome = process.outcome;
    report.elapsed_ms = now_.mono_ms - process.began_mono_ms;
    report.committed = process.committed;
    if (process.outcome == Outcome::ok) {
      report.checkpoint = CheckpointInfo{path_of(ref), "made by " + to_string(ref), 1};
    }
    say(machine, report);
  }
  static std::string path_of(const AttemptRef& ref) { return "/checkpoints/" + to_string(ref); }

  void hear(Machine& machine, const Parcel& parcel) {
    if (!machine.alive || parcel.session != session_of(machine)) return;
    if (machine.paused_until_mono_ms > now_.mono_ms) {
      Parcel later = parcel;
      later.at_mono_ms = machine.paused_until_mono_ms;
      parcels_.push(later);
      return;
    }
    machine.heard_mono_ms = now_.mono_ms;
    if (const auto* welcome = std::get_if<WorkerWelcome>(&parcel.message)) {
      const bool another = machine.epoch != 0 && machine.epoch != welcome->server_epoch;
      machine.epoch = another ? 0 : welcome->server_epoch;
      if (another) say_hello(machine);
    } else if (std::holds_alternative<ErrorReply>(parcel.message)) {
      machine.epoch = 0;
    } else if (const auto* assign = std::get_if<AssignAttempt>(&parcel.message)) {
      begin(machine, *assign);
    } else if (const auto* stop = std::get_if<StopAttempt>(&parcel.message)) {
      const auto held = machine.held.find(stop->ref);
      if (held == machine.held.end() || held->second.finished) return;
      held->second.finished = true;
      held->second.outcome = stop->outcome;
      report_end(machine, held->first, held->second);
    } else if (const auto* commit = std::get_if<CommitCheckpoint>(&parcel.message)) {
      const auto held = machine.held.find(commit->ref);
      if (held == machine.held.end() || held->second.outcome != Outcome::ok) return;
      held->second.committed = true;
      on_disk_.insert(path_of(commit->ref));
      say(machine, CheckpointCommitted{commit->ref, true, ""});
    } else if (const auto* acknowledged = std::get_if<AttemptAcknowledged>(&parcel.message)) {
      machine.held.erase(acknowledged->ref);
    }
  }
  void begin(Machine& machine, const AssignAttempt& assign) {
    const auto held = machine.held.find(assign.ref);
    if (held != machine.held.end()) {
      if (!held->second.finished) say(machine, AttemptStarted{assign.ref, 1, "/log"});
      return;
    }
    int running = 0;
    bool same_stage = false;
    for (const auto& [ref, process] : machine.held) {
      running += process.finished ? 0 : 1;
      same_stage = same_stage || (!process.finished && ref.stage_ref() == assign.ref.stage_ref());
    }
    if (machine.folders.contains(assign.ref) || running >= machine.slots || same_stage) {
      say(machine, AssignRefused{assign.ref, running >= machine.slots ? "full" : "ran already"});
      return;
    }
    for (const auto& [stage, path] : assign.order.inputs) {
      if (!on_disk_.contains(path)) {
        broken(fmt::format("{} starts without {}", to_string(assign.ref), path));
      }
    }
    if (!run_by_.emplace(assign.ref, machine.name).second) {
      broken(fmt::format("{} is run a second time", to_string(assign.ref)));
    }
    machine.folders.insert(assign.ref);
    Process process;
    process.began_mono_ms = now_.mono_ms;
    process.ends_mono_ms = now_.mono_ms + 200 + up_to(8'000);
    if (fault(0.15)) process.outcome = chance(0.7) ? Outcome::crash : Outcome::error;
    process.hangs = fault(0.03);
    machine.held.emplace(assign.ref, process);
    say(machine, AttemptStarted{assign.ref, 1, "/log"});
  }

  // ---- people --------------------------------------------------------------------------------
  void people(std::int64_t second) {
    if (static_cast<int>(acknowledged_.size()) < options_.jobs) submit_one();
    if (fault(0.02)) cancel_something();
    if (second % 5 == 0) resume_what_failed();
  }
  // The same request is sent until it is answered.
  void submit_one() {
    const std::string request = "request-" + std::to_string(acknowledged_.size());
    if (!specs_.contains(request)) specs_[request] = random_job(random_);
    Submission submission{specs_[request], "text", chance(0.5) ? "ann" : "ben", request};
    const Result<JobId> job =
        engine_->run(now_, [&](Turn& turn) { return on_submit(turn, submission); });
    check();
    if (!job.ok()) return broken(job.error().line());
    waiting_replies_.push_back([this, id = *job] { acknowledged_.insert(id); });
    commit();
  }
  void cancel_something() {
    if (acknowledged_.empty() || chance(0.5)) return;
    auto job = acknowledged_.begin();
    std::advance(job, static_cast<long>(random_() % acknowledged_.size()));
    const JobId id = *job;
    const Status cancelled =
        engine_->run(now_, [&](Turn& turn) { return on_cancel(turn, id, "", "ann"); });
    check();
    if (cancelled.ok()) waiting_replies_.push_back([this, id] { cancelled_.insert(id); });
    commit();
  }
  void resume_what_failed() {
    for (const auto& [id, job] : engine_->core().jobs) {
      if (job.state != JobState::failed || cancelled_.contains(id)) continue;
      const JobId failed = id;
      const auto steps =
          engine_->run(now_, [&](Turn& turn) { return on_resume(turn, {failed, {}, "", ""}); });
      if (!steps.ok()) broken(steps.error().line());
      check();
      commit();
      return;
    }
  }

  // ---- judge ---------------------------------------------------------------------------------
  // After a commit: what was once done or cancelled is still so.
  void judge_progress() {
    for (const auto& [id, job] : engine_->core().jobs) {
      if (cancelled_.contains(id) && job.state != JobState::cancelled &&
          job.state != JobState::failed) {
        broken(fmt::format("job {} was cancelled and is {}", id.value, to_string(job.state)));
      }
      for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
        const Stage& stage = job.stages[i];
        const StageRef ref{id, job.spec.stages[i].name};
        if (stage.state == StageState::done) {
          if (done_.emplace(ref, stage.attempt).first->second != stage.attempt) {
            broken(to_string(ref) + " was done and was run again");
          }
          judge_result(ref, stage);
        } else if (done_.contains(ref)) {
          broken(to_string(ref) + " was done and is " + to_string(stage.state));
        }
      }
    }
    for (JobId id : acknowledged_) {
      if (!engine_->core().jobs.contains(id)) broken("an acknowledged job is gone");
    }
  }
  void judge_result(const StageRef& ref, const Stage& stage) {
    const AttemptRef attempt{ref.job, ref.stage, stage.attempt};
    const CheckpointInfo& info = stage.result->checkpoint->info;
    if (info.digest != "made by " + to_string(attempt)) {
      broken(fmt::format("{} is done with a checkpoint {}", to_string(attempt), info.digest));
    }
    if (!on_disk_.contains(info.path)) broken(info.path + " was never committed");
    if (!run_by_.contains(attempt)) broken(to_string(attempt) + " is done and never ran");
  }
  bool all_done() const {
    if (static_cast<int>(acknowledged_.size()) < options_.jobs) return false;
    for (const auto& [id, job] : engine_->core().jobs) {
      if (job.state == JobState::active) return false;
      if (job.state == JobState::failed && !cancelled_.contains(id)) return false;
    }
    return true;
  }
  void judge_end() {
    std::map<StageRef, int> successes;
    const Result<StoredState> stored = store_.load();
    if (!stored.ok()) return broken(stored.error().line());
    for (const AttemptRow& row : stored->attempts) {
      if (row.outcome == "ok") successes[row.ref.stage_ref()] += 1;
    }
    for (const auto& [id, job] : engine_->core().jobs) {
      for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
        const StageRef ref{id, job.spec.stages[i].name};
        const int expected = job.stages[i].state == StageState::done ? 1 : 0;
        if (successes[ref] != expected) {
          broken(fmt::format("{} is {} with {} successes", to_string(ref),
                             to_string(job.stages[i].state), successes[ref]));
        }
      }
      const bool cancelled = cancelled_.contains(id) || job.state == JobState::cancelled;
      if (!cancelled && job.state != JobState::done) broken("a job is not done");
    }
  }
  std::string where_it_stands() const {
    std::string text;
    for (const auto& [id, job] : engine_->core().jobs) {
      for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
        text += fmt::format("{} {}#{} ", to_string(StageRef{id, job.spec.stages[i].name}),
                            to_string(job.stages[i].state), job.stages[i].attempt.value);
      }
    }
    for (const auto& [at, live] : engine_->core().live) {
      text += fmt::format("; {} on {}{}, heard {} ms ago", to_string(live.ref), live.worker.value,
                          live.suspected ? ", suspected" : "",
                          now_.mono_ms - engine_->core().workers.at(live.worker).last_word_mono_ms);
    }
    for (const Machine& machine : machines_) {
      text += fmt::format("; {} holds {} in epoch {}, paused for {}", session_of(machine),
                          machine.held.size(), machine.epoch,
                          machine.paused_until_mono_ms - now_.mono_ms);
    }
    return text;
  }

  NightOptions options_;
  std::mt19937_64 random_;
  ReactorOptions reactor_options_;
  FakeStore fake_;
  FailingStore store_;
  std::unique_ptr<Engine> engine_;
  Now now_{1'000'000, 1'700'000'000'000};
  bool calm_ = false;
  std::vector<Machine> machines_;
  std::priority_queue<Parcel, std::vector<Parcel>, std::greater<>> parcels_;
  std::uint64_t order_ = 0;
  int restarts_ = 0;
  std::map<std::string, JobSpec> specs_;
  std::vector<std::function<void()>> waiting_replies_;
  std::set<JobId> acknowledged_;
  std::set<JobId> cancelled_;
  std::set<std::string> on_disk_;                  // committed checkpoints
  std::map<AttemptRef, WorkerId> run_by_;
  std::map<StageRef, AttemptNumber> done_;
  std::vector<std::string> violations_;
};

}  // namespace nightshift::testing
