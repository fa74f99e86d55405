#include "worker/loop.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "worker/clock.h"
#include "worker/event_log.h"
#include "worker/probes.h"

namespace nightshift {

namespace {

constexpr std::int64_t look_silent_after_ms = 10'000;
constexpr std::int64_t leftovers_wait_ms = 10'000;
// A log is over its limit by at most what a stage writes in this time.
constexpr std::int64_t bound_interval_ms = 250;

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return variables;
}

}  // namespace

Loop::Loop(LoopOptions options)
    : options_(std::move(options)),
      store_(std::make_shared<AttemptStore>(options_.root, options_.temp)),
      family_(options_.supervisor_program),
      socket_(options_.access) {}

Loop::~Loop() = default;

Status Loop::open() {
  NS_TRY(store_->open());
  NS_TRY(end_leftovers());
  sigset_t mask;
  sigemptyset(&mask);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, number);
  ::pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  signals_.reset(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (options_.parent_fd >= 0) {
    if (::fcntl(options_.parent_fd, F_SETFD, FD_CLOEXEC) != 0) {
      return Error{ErrorCode::invalid_argument, "is not an open descriptor",
                   "--parent-fd " + std::to_string(options_.parent_fd), ""};
    }
    ::fcntl(options_.parent_fd, F_SETFL, O_NONBLOCK);
    parent_.reset(options_.parent_fd);
  }
  NS_TRY(family_.warm_up());
  NS_TRY(socket_.open());
  agent_.emplace(options_.agent, store_->recover(), monotonic_ms());
  return {};
}

// A worker and its supervisors can be killed at the same moment; what called setsid then lives on.
// Its state/ is about to be handed to the next attempt, so it ends before anything is reported.
Status Loop::end_leftovers() {
  const std::int64_t until = monotonic_ms() + leftovers_wait_ms;
  for (;;) {
    const auto left = processes_with_environment(contract::env_out, store_->root() + "/attempts/");
    if (left.empty()) return {};
    log_event("leftovers_killed", {{"processes", describe_processes(left)}});
    for (const ProcessInfo& process : left) signal_process(process, SIGKILL);
    if (monotonic_ms() > until) {
      return Error{ErrorCode::conflict,
                   "processes of an earlier worker do not end: " + describe_processes(left),
                   store_->root(), "end them, or restart the machine"};
    }
    ::usleep(50'000);
  }
}

int Loop::run() {
  log_event("worker_started", {{"worker", options_.agent.worker.value},
                               {"root", store_->root()},
                               {"coordinator", options_.access.endpoint}});
  while (!over_) turn();
  socket_.close(1'000);
  log_event("worker_ended");
  return 0;
}

void Loop::turn() {
  wait();
  on_signals();
  on_parent();
  disk_.run_completions();
  seal_.run_completions();
  look_.run_completions();
  punch_.run_completions();
  on_processes();
  on_sockets();
  probe();
  bound_logs();
  agent_->on_tick(monotonic_ms());
  do_actions();
}

void Loop::wait() {
  std::vector<WaitFor> others = {
      {signals_.get()}, {disk_.fd()}, {seal_.fd()}, {look_.fd()}, {punch_.fd()}};
  if (parent_.is_open()) others.push_back({parent_.get()});
  bool orphaned = false;
  for (const auto& [ref, running] : running_) {
    if (running.process->report_fd() >= 0) others.push_back({running.process->report_fd()});
    if (running.process->control_fd() >= 0) others.push_back({running.process->control_fd()});
    orphaned = orphaned || running.process->control_fd() < 0;
  }
  const std::int64_t now = monotonic_ms();
  std::int64_t until = agent_->next_tick_ms(now);
  if (!looking_) until = std::min(until, std::max(next_look_ms_, now));
  if (!running_.empty() && !bounding_) until = std::min(until, std::max(next_bound_ms_, now));
  if (orphaned) until = std::min(until, now + 200);
  socket_.wait(others, static_cast<int>(until - now));
}

void Loop::on_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    // The second one is impatience: the supervisors end their trees when this process is gone.
    if (agent_->is_terminating()) over_ = true;
    agent_->on_terminate("signal " + std::to_string(info.ssi_signo), monotonic_ms());
  }
}

void Loop::on_parent() {
  if (!parent_.is_open()) return;
  char byte = 0;
  const ssize_t got = ::read(parent_.get(), &byte, 1);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return;
  parent_.reset();
  agent_->on_terminate("the program that started this worker is gone", monotonic_ms());
}

void Loop::on_sockets() {
  const std::int64_t now = monotonic_ms();
  for (const SocketEvent& event : socket_.receive()) {
    if (std::holds_alternative<SocketConnected>(event)) {
      agent_->on_connected(now);
    } else if (const auto* lost = std::get_if<SocketDisconnected>(&event)) {
      log_event("connection", {{"lost", lost->reason}});
      agent_->on_disconnected(now);
    } else if (const auto* garbage = std::get_if<SocketGarbage>(&event)) {
      agent_->on_bad_message(garbage->error, now);
    } else {
      agent_->on_message(std::get<Message>(event), now);
    }
    do_actions();  // in step: a reconnect makes the rest of these events stale, but harmless
  }
}

// ---- processes ------------------------------------------------------------------------------

struct Loop::OnEvent {
  Loop& loop;
  const AttemptRef& ref;
  Running& running;
  std::int64_t now_ms;

  Agent& agent() const { return *loop.agent_; }
  void operator()(const ProcessStarted& event) const {
    agent().on_stage_started(ref, event.pid, running.log_path, now_ms);
  }
  void operator()(const ProcessNotStarted& event) const {
    agent().on_not_started(ref, event.error);
  }
  void operator()(const ProcessReportLine& event) const {
    agent().on_report_line(ref, event.line, now_ms);
  }
  void operator()(const ProcessNote& event) const { agent().on_process_note(ref, event.text); }
  void operator()(const ProcessExited& event) const {
    StageExit exit{event.exit_code, event.signal, false};
    if (event.signal == SIGKILL) {
      const auto after = oom_kills();
      exit.oom_killed = after && running.oom_kills_before && *after > *running.oom_kills_before;
    }
    agent().on_stage_exited(ref, exit);
  }
  void operator()(const ProcessTreeEmpty&) const {
    agent().on_tree_empty(ref, running.process->report_lines_dropped(), now_ms);
  }
};

void Loop::on_processes() {
  for (auto it = running_.begin(); it != running_.end();) {
    for (const ProcessEvent& event : it->second.process->poll_events()) {
      std::visit(OnEvent{*this, it->first, it->second, monotonic_ms()}, event);
    }
    if (!it->second.process->is_empty()) {
      ++it;
      continue;
    }
    bound({{it->first, it->second.log_bound}});  // the last time: nobody writes any more
    it = running_.erase(it);
  }
  do_actions();
}

std::vector<std::string> Loop::command_of(const AssignAttempt& order) const {
  if (!order.command.empty()) return order.command;
  return {options_.stage_program};
}

void Loop::start_stage(const AssignAttempt& order) {
  disk_.post([this, store = store_, order]() -> BackgroundThread::Completion {
    auto prepared =
        std::make_shared<Result<PreparedAttempt>>(store->prepare(order, own_environment()));
    return [this, order, prepared] {
      if (prepared->ok()) {
        start_process(order, prepared->value());
      } else {
        agent_->on_prepare_failed(order.ref, prepared->error(), monotonic_ms());
      }
    };
  });
}

void Loop::start_process(const AssignAttempt& order, PreparedAttempt& prepared) {
  StageCommand command;
  command.arguments = command_of(order);
  command.environment = std::move(prepared.environment);
  command.folder = prepared.folder;
  command.log_fd = prepared.log.get();
  auto process = StageProcess::start(family_, command);
  if (!process) {
    agent_->on_not_started(order.ref, process.error());
    agent_->on_tree_empty(order.ref, 0, monotonic_ms());
    return;
  }
  auto log_bound = options_.log_limit_bytes > 0
                       ? std::make_shared<LogBound>(prepared.log.get(), options_.log_limit_bytes)
                       : nullptr;
  running_[order.ref] = Running{std::move(*process), prepared.log_path, prepared.temp, oom_kills(),
                                std::move(log_bound)};
}

// ---- long logs ------------------------------------------------------------------------------

void Loop::bound_logs() {
  const std::int64_t now = monotonic_ms();
  if (bounding_ || running_.empty() || now < next_bound_ms_) return;
  bounding_ = true;
  std::vector<std::pair<AttemptRef, std::shared_ptr<LogBound>>> logs;
  for (const auto& [ref, running] : running_) logs.emplace_back(ref, running.log_bound);
  bound(std::move(logs));
  punch_.post([this] {
    return BackgroundThread::Completion([this] {
      bounding_ = false;
      next_bound_ms_ = monotonic_ms() + bound_interval_ms;
    });
  });
}

void Loop::bound(std::vector<std::pair<AttemptRef, std::shared_ptr<LogBound>>> logs) {
  std::erase_if(logs, [](const auto& log) { return log.second == nullptr; });
  if (logs.empty()) return;
  punch_.post([this, logs = std::move(logs)]() -> BackgroundThread::Completion {
    std::vector<std::pair<AttemptRef, Error>> errors;
    for (const auto& [ref, log] : logs) {
      if (const Status kept = log->keep(); !kept) errors.emplace_back(ref, kept.error());
    }
    return [this, errors = std::move(errors)] {
      for (const auto& [ref, error] : errors) {
        const bool is_known = error.code == ErrorCode::unsupported && bound_unsupported_said_;
        if (error.code == ErrorCode::unsupported) bound_unsupported_said_ = true;
        if (is_known) continue;
        log_event("log_not_bounded", {{"attempt", to_string(ref)}, {"error", error.line()}});
      }
    };
  });
}

// ---- probes ---------------------------------------------------------------------------------

void Loop::probe() {
  const std::int64_t now = monotonic_ms();
  if (looking_ && now - look_begun_ms_ > look_silent_after_ms && !look_silent_) {
    look_silent_ = true;
    log_event("probe_silent", {{"ms", std::to_string(now - look_begun_ms_)}});
    agent_->on_disk_sample({});  // unknown, and unknown never ends anything
  }
  if (looking_ || now < next_look_ms_) return;
  looking_ = true;
  look_begun_ms_ = now;
  struct Target {
    AttemptRef ref;
    pid_t supervisor;
    std::string log_path;
    std::string temp;
  };
  std::vector<Target> targets;
  for (const auto& [ref, running] : running_) {
    targets.push_back({ref, running.process->supervisor(), running.log_path, running.temp});
  }
  look_.post([this, store = store_, targets]() -> BackgroundThread::Completion {
    const std::int64_t begun = monotonic_ms();
    const std::vector<ProcessInfo> processes =
        targets.empty() ? std::vector<ProcessInfo>() : all_processes();
    std::vector<std::pair<AttemptRef, AttemptSample>> samples;
    for (const Target& target : targets) {
      samples.emplace_back(target.ref, AttemptSample{tree_memory(target.supervisor, processes),
                                                     file_bytes(target.log_path)});
    }
    DiskSample disk{disk_free(store->root()), disk_free(store->temp())};
    for (const Target& target : targets) {  // a job may have asked for another place
      const auto free = disk_free(target.temp);
      if (free && disk.temp_free_bytes) {
        disk.temp_free_bytes = std::min(*free, *disk.temp_free_bytes);
      }
    }
    const std::int64_t cost = monotonic_ms() - begun;
    return [this, samples, disk, cost] {
      const std::int64_t after = monotonic_ms();
      looking_ = look_silent_ = false;
      // Looking costs at most a hundredth of one core, however big the machine is.
      next_look_ms_ = after + std::max(options_.probe_interval_ms, 100 * cost);
      agent_->on_disk_sample(disk);
      for (const auto& [ref, sample] : samples) agent_->on_sample(ref, sample, after);
    };
  });
}

// ---- actions --------------------------------------------------------------------------------

struct Loop::DoAction {
  Loop& loop;

  void operator()(const SendMessage& action) const {
    if (const Status sent = loop.socket_.send(action.message); !sent) {
      log_event("message_dropped", {{"error", sent.error().line()}});
    }
  }
  void operator()(const StartStage& action) const { loop.start_stage(action.order); }
  void operator()(const StopStage& action) const {
    const auto it = loop.running_.find(action.ref);
    if (it != loop.running_.end()) it->second.process->stop(action.grace_ms);
  }
  void operator()(const FinishAttempt& action) const {
    loop.seal_.post([l = &loop, store = loop.store_, draft = action.draft] {
      return BackgroundThread::Completion(
          [l, result = store->finish(draft)] { l->agent_->on_result_stored(result); });
    });
  }
  void operator()(const CommitAttempt& action) const {
    loop.disk_.post([l = &loop, store = loop.store_, ref = action.ref] {
      return BackgroundThread::Completion(
          [l, ref, status = store->commit(ref)] { l->agent_->on_committed(ref, status); });
    });
  }
  void operator()(const ForgetAttempt& action) const {
    loop.disk_.post([store = loop.store_, action] {
      const Status forgotten = store->forget(action.ref, action.accepted);
      if (!forgotten) log_event("not_forgotten", {{"error", forgotten.error().line()}});
      return BackgroundThread::Completion();
    });
  }
  void operator()(const ReadLog& action) const {
    loop.look_.post([l = &loop, store = loop.store_, request = action.request] {
      return BackgroundThread::Completion(
          [l, chunk = store->read_log(request)] { l->agent_->on_log_read(chunk); });
    });
  }
  void operator()(const Reconnect&) const {
    if (const Status opened = loop.socket_.open(); !opened) {
      log_event("reconnect_failed", {{"error", opened.error().line()}});
    }
  }
  void operator()(const WriteLog& action) const {
    std::vector<LogField> fields(action.fields.begin(), action.fields.end());
    log_event(action.event, fields);
  }
  void operator()(const ExitWorker&) const { loop.over_ = true; }
};

void Loop::do_actions() {
  for (const Action& action : agent_->take_actions()) std::visit(DoAction{*this}, action);
}

}  // namespace nightshift
