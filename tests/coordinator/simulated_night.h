// A whole night on a virtual clock: coordinator, store and workers with a network that loses,
// doubles, delays and reorders; workers that die, pause and return; disks that fill up and rot; a
// wall clock that jumps; people who cancel, edit, pin and resume; a coordinator that restarts; a
// store that fails before or after it wrote. Everything follows from the seed.
//
// What must hold is judged from outside, by what the workers really did and people were told:
//   - no attempt is ever run twice, nor by two workers
//   - a stage starts only when its inputs are really there
//   - the checkpoint of a done stage is the one that this very attempt made and committed
//   - what was done, and what was cancelled, stays so until somebody resumes it
//   - what is pinned is not dropped
//   - in the end every job that nobody cancelled is done, each stage once
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/coordinator/simulated_judge.h"

namespace nightshift::testing {

class SimulatedNight {
 public:
  // `store`: empty and kept by the caller; without it the night is stored in memory.
  explicit SimulatedNight(NightOptions options, Store* store = nullptr)
      : fate_(options), store_(store == nullptr ? fake_ : *store) {
    reactor_options_.lease_ms = lease_ms;
    reactor_options_.scheduler.night = short_night;
    machines_.is_current = [this](const AttemptRef& ref) {
      const auto at = find_stage(engine_->core(), ref.stage_ref());
      const auto live = at ? engine_->core().live.find(*at) : engine_->core().live.end();
      return live != engine_->core().live.end() && live->second.ref == ref;
    };
    start_engine();
  }

  // Empty: all went as it must.
  std::vector<std::string> run() {
    const std::int64_t begin = fate_.now.mono_ms;
    const NightOptions& odds = fate_.options;
    for (std::int64_t second = 0; fate_.violations.empty(); ++second) {
      fate_.calm = fate_.now.mono_ms - begin > odds.faults_ms;
      if (fate_.fault(odds.clock_steps)) step_wall_clock();
      people(second);
      machines_.live();
      tick_coordinator();
      deliver_until(fate_.now.mono_ms + 1000);
      if (fate_.calm && judge_.all_done(engine_->core())) {
        commit();
        break;
      }
      if (fate_.now.mono_ms - begin > odds.night_ms) {
        fate_.broken("the night is over and not all is done: " + where_it_stands());
      }
    }
    if (fate_.violations.empty()) judge_.look_at_end(engine_->core(), store_);
    return fate_.violations;
  }

  const SimMachines& machines() const { return machines_; }
  int restarts() const { return restarts_; }
  int resumes() const { return resumes_; }

 private:
  static constexpr std::int64_t lease_ms = 10'000;

  void step_wall_clock() {
    constexpr std::int64_t two_days_ms = 2 * 86'400'000;
    fate_.now.wall_ms += fate_.up_to(2 * two_days_ms) - two_days_ms;
  }
  void deliver_until(std::int64_t end_mono_ms) {
    while (network_.has_one_until(end_mono_ms) && fate_.violations.empty()) {
      const SimParcel parcel = network_.take();
      fate_.advance_to(std::max(parcel.at_mono_ms, fate_.now.mono_ms));
      if (parcel.to_coordinator) {
        receive(parcel);
      } else {
        machines_.hear(parcel);
      }
    }
    fate_.advance_to(end_mono_ms);
  }

  // ---- coordinator ---------------------------------------------------------------------------
  void start_engine() {
    engine_ = std::make_unique<Engine>(store_, reactor_options_);
    if (Status opened = engine_->open(fate_.now); !opened.ok()) {
      fate_.broken(opened.error().line());
    }
    if (!engine_->warnings().empty()) fate_.broken("recovery: " + engine_->warnings().front());
    waiting_replies_.clear();
    check();
  }
  void check() {
    for (const std::string& what : check_invariants(engine_->core())) fate_.broken(what);
  }
  template <typename Handler>
  void handle(const Handler& handler) {
    engine_->run(fate_.now, handler);
    check();
    if (fate_.chance(0.7)) commit();   // else the next one shares the commit
  }
  // A person's request, answered after its commit.
  template <typename Handler>
  auto ask(const Handler& handler) {
    auto answer = engine_->run(fate_.now, handler);
    check();
    return answer;
  }
  void answer(std::function<void()> reply) {
    if (fate_.options.reply_before_commit) {
      reply();
    } else {
      waiting_replies_.push_back(std::move(reply));
    }
    commit();
  }
  void commit() {
    if (fate_.fault(fate_.options.store_fails)) {
      store_.next = fate_.chance(0.5) ? FailingStore::Fault::before_writing
                                      : FailingStore::Fault::after_writing;
    }
    Result<std::vector<Send>> sends = engine_->flush(fate_.now);
    store_.next = FailingStore::Fault::none;
    check();
    if (!sends.ok()) {
      if (sends.error().code == ErrorCode::conflict) fate_.broken(sends.error().line());
      waiting_replies_.clear();
      judge_.look(engine_->core());
      return;
    }
    for (const auto& reply : waiting_replies_) reply();
    waiting_replies_.clear();
    for (const Send& send : *sends) network_.post(false, send.worker, send.session, send.message);
    judge_.look(engine_->core());
  }
  void tick_coordinator() {
    if (fate_.fault(fate_.options.restart)) {
      restarts_ += 1;
      start_engine();
    }
    engine_->run(fate_.now, [](Turn& turn) { on_tick(turn); });
    check();
    commit();
  }
  // The planted bug: as if nobody compared attempt numbers.
  void forget_guard(AttemptRef& ref, Sender& sender) {
    const auto at = find_stage(engine_->core(), ref.stage_ref());
    if (!fate_.options.forget_attempt_guard || !at) return;
    const auto live = engine_->core().live.find(*at);
    if (live == engine_->core().live.end()) return;
    ref = live->second.ref;
    sender.worker = live->second.worker;
    sender.session = engine_->core().workers.at(sender.worker).session;
  }
  template <typename Report>
  bool pass_on(const SimParcel& parcel,
               void (*handler)(Turn&, const Sender&, const Report&)) {
    const auto* given = std::get_if<Report>(&parcel.message);
    if (given == nullptr) return false;
    Report report = *given;
    Sender sender{parcel.worker, parcel.session};
    forget_guard(report.ref, sender);
    handle([&](Turn& turn) { handler(turn, sender, report); });
    return true;
  }
  void receive(const SimParcel& parcel) {
    const Worker* known = find_worker(engine_->core(), parcel.worker);
    if (const auto* hello = std::get_if<WorkerHello>(&parcel.message)) {
      handle([&](Turn& turn) { on_worker_hello(turn, *hello); });
    } else if (const auto* heartbeat = std::get_if<Heartbeat>(&parcel.message)) {
      handle([&](Turn& turn) { on_heartbeat(turn, *heartbeat); });
    } else if (known != nullptr && known->greeted) {   // the shell knows no sender before its hello
      pass_on<AttemptStarted>(parcel, on_attempt_started) ||
          pass_on<AttemptFinished>(parcel, on_attempt_finished) ||
          pass_on<CheckpointCommitted>(parcel, on_checkpoint_committed) ||
          pass_on<AssignRefused>(parcel, on_assign_refused) ||
          pass_on<CheckpointDropped>(parcel, on_checkpoint_dropped);
    }
  }

  // ---- people --------------------------------------------------------------------------------
  void people(std::int64_t second) {
    if (static_cast<int>(judge_.submits()) < fate_.options.jobs) submit_one();
    if (fate_.fault(fate_.options.cancel)) cancel_something();
    if (fate_.fault(fate_.options.meddle)) meddle();
    if (second % 5 == 0) resume_what_failed();
  }
  // The same request is sent until it is answered.
  void submit_one() {
    const std::string request = "request-" + std::to_string(judge_.submits());
    if (!specs_.contains(request)) specs_[request] = random_job(fate_.random);
    Submission submission{specs_[request], "text", fate_.chance(0.5) ? "ann" : "ben", request};
    const Result<JobId> job = ask([&](Turn& turn) { return on_submit(turn, submission); });
    if (!job.ok()) return fate_.broken(job.error().line());
    answer([this, id = *job] { judge_.acknowledge_submit(id); });
  }
  const Job* some_job() {
    const std::set<JobId>& jobs = judge_.submitted();
    if (jobs.empty()) return nullptr;
    auto job = jobs.begin();
    std::advance(job, static_cast<long>(fate_.one_of(jobs.size())));
    return find_job(engine_->core(), *job);
  }
  void cancel_something() {
    const Job* job = some_job();
    if (job == nullptr) return;
    const JobId id = job->id;
    std::string stage;
    if (fate_.chance(0.5)) stage = job->spec.stages[fate_.one_of(job->stages.size())].name;
    if (!ask([&](Turn& turn) { return on_cancel(turn, id, stage, "ann"); }).ok()) return;
    answer([this, id, stage] {
      if (stage.empty()) {
        judge_.acknowledge_cancel(id);
      } else {
        judge_.acknowledge_stop({id, stage});
      }
    });
  }
  void resume_what_failed() {
    for (const auto& [id, job] : engine_->core().jobs) {
      const bool ended = job.state == JobState::failed || job.state == JobState::cancelled;
      if (!ended || judge_.is_cancelled(id)) continue;
      if (!resume({id, {}, "", ""})) fate_.broken("a resume was refused");
      return;
    }
  }
  bool resume(const ResumeRequest& request) {
    const auto steps = ask([&](Turn& turn) { return on_resume(turn, request); });
    if (!steps.ok()) return false;
    resumes_ += 1;
    judge_.allow_again(request.job, *steps);
    answer([] {});
    return true;
  }
  // While a job is active the coordinator may refuse what would pull the rug from under it.
  void meddle() {
    const Job* job = some_job();
    if (job == nullptr || judge_.is_cancelled(job->id)) return;
    const JobId id = job->id;
    const std::uint32_t index = static_cast<std::uint32_t>(fate_.one_of(job->stages.size()));
    const std::string stage = job->spec.stages[index].name;
    switch (fate_.one_of(3)) {
      case 0: resume({id, {}, "", stage}); break;
      case 1: {
        JobSpec changed = job->spec;
        changed.stages[index].params_json = fmt::format(R"({{"samples":{}}})", fate_.one_of(3));
        resume({id, changed, "changed", ""});
        break;
      }
      default: {
        const bool pinned = fate_.chance(0.7);
        if (!ask([&](Turn& turn) { return on_pin(turn, id, stage, pinned); }).ok()) return;
        // An unpin counts from the moment that it may have been written.
        if (!pinned) judge_.acknowledge_pin(engine_->core(), {id, stage}, false);
        answer([this, id, stage, pinned] {
          if (pinned) judge_.acknowledge_pin(engine_->core(), {id, stage}, true);
        });
      }
    }
  }

  std::string where_it_stands() const {
    std::string text;
    const Core& core = engine_->core();
    for (const auto& [id, job] : core.jobs) {
      for (std::uint32_t i = 0; i < job.stages.size(); ++i) {
        text += fmt::format("{} {}#{} ", to_string(StageRef{id, job.spec.stages[i].name}),
                            to_string(job.stages[i].state), job.stages[i].attempt.value);
      }
    }
    for (const auto& [at, live] : core.live) {
      text += fmt::format("; {} on {}{}, heard {} ms ago", to_string(live.ref), live.worker.value,
                          live.suspected ? ", suspected" : "",
                          fate_.now.mono_ms - core.workers.at(live.worker).last_word_mono_ms);
    }
    return text + machines_.where_they_stand();
  }

  SimFate fate_;
  SimNetwork network_{fate_};
  SimMachines machines_{fate_, network_, lease_ms};
  SimJudge judge_{fate_, machines_};
  ReactorOptions reactor_options_;
  FakeStore fake_;
  FailingStore store_;
  std::unique_ptr<Engine> engine_;
  int restarts_ = 0;
  int resumes_ = 0;
  std::map<std::string, JobSpec> specs_;
  std::vector<std::function<void()>> waiting_replies_;
};

}  // namespace nightshift::testing
