#include "coordinator/server_desk.h"

#include <fmt/format.h>

#include <utility>

#include "schema/json.h"

namespace nightshift {

namespace {

ErrorReply error_reply(std::int64_t request, const Error& error) {
  return ErrorReply{request, to_string(error.code), error.what, error.where, error.hint};
}

}  // namespace

Desk::Desk(Engine& engine, Home home, LogLine log, DeskOptions options)
    : engine_(engine), home_(std::move(home)), log_(std::move(log)), options_(options) {}

// ---- answers --------------------------------------------------------------------------------

void Desk::reply(const std::string& peer, std::int64_t request, const Result<Json>& body) {
  if (!body.ok()) return reply_error(peer, request, body.error());
  std::string text = dump_json(*body);
  if (text.size() > wire::text_bytes_max) {
    return reply_error(peer, request,
                       Error{ErrorCode::unsupported,
                             fmt::format("the answer is too large for one message ({} bytes)",
                                         text.size()),
                             "", "ask for one job"});
  }
  letters_.push_back({peer, CommandReply{request, std::move(text)}});
}

void Desk::reply_error(const std::string& peer, std::int64_t request, const Error& error) {
  letters_.push_back({peer, error_reply(request, error)});
}

// ---- messages -------------------------------------------------------------------------------

void Desk::bind(const std::string& peer, const WorkerId& worker, const std::string& session) {
  peers_[peer].sender = Sender{worker, session};
  addresses_[{worker, session}] = peer;
}

struct Desk::OnMessage {
  Desk& desk;
  const std::string& peer;
  Now now;

  template <typename Handler>
  void run(Handler&& handler) const {
    desk.engine_.run(now, std::forward<Handler>(handler));
  }
  // A report is believed to be of the worker that said hello on this connection. Anybody else is
  // told, and says hello.
  template <typename Handler>
  void run_as_sender(Handler&& handler) const {
    const std::optional<Sender>& sender = desk.peers_[peer].sender;
    if (sender) return run([&](Turn& turn) { handler(turn, *sender); });
    ++desk.counters_.unknown_workers;
    desk.reply_error(peer, 0, Error{ErrorCode::not_found, "no worker is known on this connection",
                                    "", "say hello first"});
  }

  void operator()(const WorkerHello& m) const {
    desk.bind(peer, m.worker, m.session);
    run([&](Turn& turn) { on_worker_hello(turn, m); });
  }
  void operator()(const Heartbeat& m) const {
    desk.bind(peer, m.worker, m.session);
    run([&](Turn& turn) { on_heartbeat(turn, m); });
  }
  void operator()(const AttemptStarted& m) const {
    run_as_sender([&](Turn& t, const Sender& s) { on_attempt_started(t, s, m); });
  }
  void operator()(const AttemptFinished& m) const {
    run_as_sender([&](Turn& t, const Sender& s) { on_attempt_finished(t, s, m); });
  }
  void operator()(const CheckpointCommitted& m) const {
    run_as_sender([&](Turn& t, const Sender& s) { on_checkpoint_committed(t, s, m); });
  }
  void operator()(const AssignRefused& m) const {
    run_as_sender([&](Turn& t, const Sender& s) { on_assign_refused(t, s, m); });
  }
  void operator()(const CheckpointDropped& m) const {
    run_as_sender([&](Turn& t, const Sender& s) { on_checkpoint_dropped(t, s, m); });
  }
  void operator()(const InputRead& m) const {
    run_as_sender([&](Turn&, const Sender& s) { desk.on_input_read(peer, s, m, now); });
  }
  void operator()(const CheckpointChunk& m) const {
    run_as_sender([&](Turn&, const Sender& s) { desk.on_checkpoint_chunk(s, m); });
  }
  void operator()(const LogChunk& m) const { desk.on_log_chunk(peer, m); }
  void operator()(const SubmitJob& m) const { desk.on_submit_job(peer, m, now); }
  void operator()(const Command& m) const { desk.on_command(peer, m, now); }
  // A peer answers us with an error: nothing to do, and never an error back.
  void operator()(const ErrorReply& m) const {
    desk.log_(fmt::format("event=peer_error code={} what={}", m.code, dump_json(Json(m.what))));
  }
  template <typename Other>
  void operator()(const Other& m) const {
    ++desk.counters_.misdirected;
    desk.reply_error(peer, 0, Error{ErrorCode::invalid_argument,
                                    fmt::format("a coordinator does not take {}",
                                                message_name(Message(m))),
                                    "", ""});
  }
};

void Desk::on_message(const std::string& peer, const Message& message, Now now) {
  ++counters_.messages;
  peers_[peer].last_word_mono_ms = now.mono_ms;
  if (!engine_.healthy()) {
    // Workers say everything again; people get to know.
    const Error broken{ErrorCode::unavailable, "the coordinator cannot read its store now", "",
                       "see its log; it tries again by itself"};
    if (const auto* command = std::get_if<Command>(&message)) {
      reply_error(peer, command->request, broken);
    } else if (std::holds_alternative<SubmitJob>(message)) {
      reply_error(peer, 0, broken);
    }
    return;
  }
  std::visit(OnMessage{*this, peer, now}, message);
}

void Desk::on_garbage(const std::string& peer, const Error& why, Now now) {
  ++counters_.garbage;
  Peer& known = peers_[peer];
  known.last_word_mono_ms = now.mono_ms;
  if (std::exchange(known.garbage_answered, true)) return;
  log_(fmt::format("event=message_refused why={}", dump_json(Json(why.line()))));
  reply_error(peer, 0, why);
}

void Desk::on_submit_job(const std::string& peer, const SubmitJob& submit, Now now) {
  Result<JobSpec> spec = job_spec_from_json(submit.spec_json, "submitted job");
  if (!spec.ok()) return reply_error(peer, 0, spec.error());
  const Submission submission{std::move(*spec), submit.source_text, submit.user, submit.request};
  const Result<JobId> job =
      engine_.run(now, [&](Turn& turn) { return nightshift::on_submit(turn, submission); });
  if (!job.ok()) return reply_error(peer, 0, job.error());
  letters_.push_back({peer, JobSubmitted{*job}});
}

void Desk::on_command(const std::string& peer, const Command& command, Now now) {
  const Result<Json> parsed = parse_json(command.arguments_json, "arguments of " + command.verb);
  if (!parsed.ok()) return reply_error(peer, command.request, parsed.error());
  const Json& arguments = *parsed;
  if (!arguments.is_object()) {
    return reply_error(peer, command.request,
                       Error{ErrorCode::invalid_argument, "the arguments are not a JSON object",
                             "arguments of " + command.verb, ""});
  }
  auto answer = [&](const Result<Json>& body) { reply(peer, command.request, body); };
  const std::string& verb = command.verb;
  if (verb == "ping") return answer(ping(now));
  if (verb == "status" || verb == "report") return answer(status(arguments, now));
  if (verb == "workers") return answer(workers(now));
  if (verb == "explain") return answer(explain(arguments, now));
  if (verb == "resume") return answer(resume(arguments, now));
  if (verb == "cancel") return answer(cancel(arguments, now));
  if (verb == "pin") return answer(pin(arguments, now));
  if (verb == "logs") {
    const Result<std::optional<Json>> body = logs(peer, command.request, arguments, now);
    if (!body.ok()) return reply_error(peer, command.request, body.error());
    if (*body) answer(**body);
    return;
  }
  reply_error(peer, command.request,
              Error{ErrorCode::unsupported, fmt::format("unknown command {}", verb), "",
                    "the CLI may be newer than the coordinator"});
}

// ---- time and ends --------------------------------------------------------------------------

void Desk::on_tick(Now now) {
  reopen_if_broken(now);
  if (engine_.healthy()) engine_.run(now, [](Turn& turn) { nightshift::on_tick(turn); });
  for (auto it = open_logs_.begin(); it != open_logs_.end();) {
    const OpenLog& open = it->second;
    if (now.mono_ms < open.deadline_mono_ms) {
      ++it;
      continue;
    }
    reply_error(open.peer, open.request,
                Error{ErrorCode::unavailable,
                      fmt::format("worker {} does not send the log of {}", open.worker.value,
                                  to_string(open.ref)),
                      "", ""});
    it = open_logs_.erase(it);
  }
  expire_transfers(now);
  forget_idle_peers(now);
}

void Desk::reopen_if_broken(Now now) {
  if (engine_.healthy() || now.mono_ms < next_reopen_mono_ms_) return;
  next_reopen_mono_ms_ = now.mono_ms + options_.reopen_ms;
  const Status opened = engine_.open(now);
  log_(opened.ok() ? fmt::format("event=store_opened epoch={}", engine_.core().epoch.value)
                   : fmt::format("event=store_failed error={}",
                                 dump_json(Json(opened.error().line()))));
}

void Desk::forget_idle_peers(Now now) {
  std::erase_if(peers_, [&](const auto& item) {
    return now.mono_ms - item.second.last_word_mono_ms > options_.peer_idle_ms_max;
  });
  std::erase_if(addresses_, [&](const auto& item) { return !peers_.contains(item.second); });
}

void Desk::on_unreachable(const std::string& peer) {
  ++counters_.unreachable;
  const auto known = peers_.find(peer);
  if (known == peers_.end()) return;
  if (const auto& sender = known->second.sender) {
    const auto address = addresses_.find({sender->worker, sender->session});
    if (address != addresses_.end() && address->second == peer) addresses_.erase(address);
  }
  peers_.erase(known);
}

std::vector<Letter> Desk::give_up_turn(const Error& why) {
  ++counters_.failed_commits;
  log_(fmt::format("event=commit_failed error={}", dump_json(Json(why.line()))));
  if (engine_.healthy()) {
    log_(fmt::format("event=store_opened epoch={}", engine_.core().epoch.value));
  }
  const Error told{ErrorCode::unavailable, "the change could not be stored: " + why.what, why.where,
                   why.hint.empty() ? "nothing was changed; try again" : why.hint};
  std::vector<Letter> letters;
  for (const Letter& letter : std::exchange(letters_, {})) {
    if (const auto* answer = std::get_if<CommandReply>(&letter.message)) {
      letters.push_back({letter.peer, error_reply(answer->request, told)});
    } else if (std::holds_alternative<JobSubmitted>(letter.message)) {
      letters.push_back({letter.peer, error_reply(0, told)});
    } else if (std::holds_alternative<ErrorReply>(letter.message)) {
      letters.push_back(letter);
    }
  }
  return letters;
}

std::vector<Letter> Desk::end_turn(Now now) {
  if (!engine_.healthy()) return std::exchange(letters_, {});
  Result<std::vector<Send>> sends = engine_.flush(now);
  if (!sends.ok()) return give_up_turn(sends.error());
  std::vector<Letter> letters = std::exchange(letters_, {});
  for (Send& send : *sends) {
    const auto address = addresses_.find({send.worker, send.session});
    if (address == addresses_.end()) continue;   // it will say hello, and be told then
    letters.push_back({address->second, std::move(send.message)});
  }
  return letters;
}

}  // namespace nightshift
