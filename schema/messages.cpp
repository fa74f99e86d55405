#include "schema/messages.h"

#include <array>
#include <type_traits>

#include "schema/codec_fields.h"
#include "schema/msgpack_scan.h"

namespace nightshift {
namespace {

constexpr std::array<const char*, std::variant_size_v<Message>> message_names = {
    "worker_hello",        "worker_welcome",  "heartbeat",
    "assign_attempt",      "attempt_started", "attempt_finished",
    "commit_checkpoint",   "checkpoint_committed", "attempt_acknowledged",
    "stop_attempt",        "assign_refused",  "log_request",
    "log_chunk",           "worker_shutdown", "submit_job",
    "job_submitted",       "command",         "command_reply",
    "error_reply",         "input_read",      "checkpoint_read",
    "checkpoint_chunk",    "drop_checkpoint", "checkpoint_dropped"};

constexpr std::size_t log_tail_bytes_max = 8 * 1024;

}  // namespace

using codec::Ref;

template <class A>
void fields(A& a, Ref<A, HeldAttempt> m) {
  a.object("ref", m.ref);
  a.flag("finished", m.finished);
  a.flag("preparing", m.preparing);
}

template <class A>
void fields(A& a, Ref<A, WorkerHello> m) {
  a.name("worker", m.worker.value);
  a.text("session", m.session);
  a.text("host", m.host);
  a.integer("pid", m.pid);
  a.text("software", m.software);
  a.object("resources", m.resources);
  a.list("held", m.held);
}

template <class A>
void fields(A& a, Ref<A, WorkerWelcome> m) {
  a.integer("server_epoch", m.server_epoch);
  a.integer("heartbeat_ms", m.heartbeat_ms, 1);
  a.integer("lease_ms", m.lease_ms, 1);
}

template <class A>
void fields(A& a, Ref<A, Heartbeat> m) {
  a.name("worker", m.worker.value);
  a.text("session", m.session);
  a.integer("server_epoch", m.server_epoch);
  a.integer("disk_free_bytes", m.disk_free_bytes, -1);
  a.integer("temp_free_bytes", m.temp_free_bytes, -1);
  a.list("attempts", m.attempts);
}

template <class A>
void fields(A& a, Ref<A, AssignAttempt> m) {
  a.object("ref", m.ref);
  a.integer("server_epoch", m.server_epoch);
  a.object("order", m.order);
  a.names("command", m.command, codec::prose_bytes_max);
  a.text_map("environment", m.environment, codec::prose_bytes_max);
  a.text_map("input_digests", m.input_digests);
  a.text("temp", m.temp, codec::path_bytes_max);
  a.prose("retry_reason", m.retry_reason);
  a.object("watchdog", m.watchdog);
  a.integer("wall_limit_ms", m.wall_limit_ms);
  a.integers("gpu_devices", m.gpu_devices, 0, codec::count_max);
}

template <class A>
void fields(A& a, Ref<A, AttemptStarted> m) {
  a.object("ref", m.ref);
  a.integer("pid", m.pid);
  a.text("log_path", m.log_path, codec::path_bytes_max);
}

template <class A>
void fields(A& a, Ref<A, CheckpointInfo> m) {
  a.text("path", m.path, codec::path_bytes_max);
  a.text("digest", m.digest);
  a.integer("bytes", m.bytes);
}

template <class A>
void fields(A& a, Ref<A, AttemptFinished> m) {
  a.object("ref", m.ref);
  a.choice("outcome", m.outcome, to_string, outcome_from);
  a.integer("exit_code", m.exit_code, -1, 255);
  a.integer("signal", m.signal, 0, 128);
  a.prose("reason", m.reason);
  a.prose("log_tail", m.log_tail, log_tail_bytes_max);
  a.integer("elapsed_ms", m.elapsed_ms);
  a.integer("peak_memory_bytes", m.peak_memory_bytes);
  a.flag("committed", m.committed);
  a.optional("checkpoint", m.checkpoint);
  a.list("metrics", m.metrics);
  a.list("red_lines", m.red_lines);
  a.names("notes", m.notes, codec::prose_bytes_max);
}

template <class A>
void fields(A& a, Ref<A, CommitCheckpoint> m) {
  a.object("ref", m.ref);
}

template <class A>
void fields(A& a, Ref<A, CheckpointCommitted> m) {
  a.object("ref", m.ref);
  a.flag("ok", m.ok);
  a.prose("reason", m.reason);
}

template <class A>
void fields(A& a, Ref<A, AttemptAcknowledged> m) {
  a.object("ref", m.ref);
  a.flag("accepted", m.accepted);
}

template <class A>
void fields(A& a, Ref<A, StopAttempt> m) {
  a.object("ref", m.ref);
  a.choice("outcome", m.outcome, to_string, outcome_from);
  a.prose("reason", m.reason);
}

template <class A>
void fields(A& a, Ref<A, AssignRefused> m) {
  a.object("ref", m.ref);
  a.prose("reason", m.reason);
  a.flag("input_missing", m.input_missing);
  a.text("corrupt_input", m.corrupt_input);
}

template <class A>
void fields(A& a, Ref<A, InputRead> m) {
  a.integer("request", m.request);
  a.object("ref", m.ref);
  a.stage_name("input", m.input);
  a.text("file", m.file, codec::path_bytes_max);
  a.integer("offset", m.offset);
  a.integer("bytes_max", m.bytes_max, 1, wire::chunk_bytes_max);
}

template <class A>
void fields(A& a, Ref<A, CheckpointRead> m) {
  a.integer("request", m.request);
  a.object("ref", m.ref);
  a.text("file", m.file, codec::path_bytes_max);
  a.integer("offset", m.offset);
  a.integer("bytes_max", m.bytes_max, 1, wire::chunk_bytes_max);
}

template <class A>
void fields(A& a, Ref<A, CheckpointChunk> m) {
  a.integer("request", m.request);
  a.integer("offset", m.offset);
  a.integer("size", m.size);
  a.bytes("bytes", m.bytes, static_cast<std::size_t>(wire::chunk_bytes_max));
  a.prose("error", m.error);
  a.flag("retryable", m.retryable);
}

template <class A>
void fields(A& a, Ref<A, DropCheckpoint> m) {
  a.object("ref", m.ref);
}

template <class A>
void fields(A& a, Ref<A, CheckpointDropped> m) {
  a.object("ref", m.ref);
  a.flag("ok", m.ok);
  a.prose("reason", m.reason);
}

template <class A>
void fields(A& a, Ref<A, LogRequest> m) {
  a.integer("request", m.request);
  a.object("ref", m.ref);
  a.integer("offset", m.offset, INT64_MIN);
  a.integer("bytes_max", m.bytes_max, 0, static_cast<std::int64_t>(wire::log_bytes_max));
}

template <class A>
void fields(A& a, Ref<A, LogChunk> m) {
  a.integer("request", m.request);
  a.object("ref", m.ref);
  a.integer("offset", m.offset);
  a.integer("size", m.size);
  a.bytes("bytes", m.bytes, wire::log_bytes_max);
  a.prose("error", m.error);
}

template <class A>
void fields(A& a, Ref<A, WorkerShutdown> m) {
  a.prose("reason", m.reason);
}

template <class A>
void fields(A& a, Ref<A, SubmitJob> m) {
  a.text("spec_json", m.spec_json, wire::text_bytes_max);
  a.text("source_text", m.source_text, wire::text_bytes_max);
  a.text("user", m.user);
  a.text("request", m.request);
}

template <class A>
void fields(A& a, Ref<A, JobSubmitted> m) {
  a.integer("job", m.job.value, 1);
}

template <class A>
void fields(A& a, Ref<A, Command> m) {
  a.integer("request", m.request);
  a.name("verb", m.verb);
  a.text("arguments_json", m.arguments_json, wire::text_bytes_max);
}

template <class A>
void fields(A& a, Ref<A, CommandReply> m) {
  a.integer("request", m.request);
  a.text("body_json", m.body_json, wire::text_bytes_max);
}

template <class A>
void fields(A& a, Ref<A, ErrorReply> m) {
  a.integer("request", m.request);
  a.name("code", m.code);
  a.prose("what", m.what);
  a.prose("where", m.where);
  a.prose("hint", m.hint);
}

namespace {

template <std::size_t I>
Result<Message> decode_as(const Json& body, const std::string& where) {
  using T = std::variant_alternative_t<I, Message>;
  NS_TRY_ASSIGN(T message, codec::read_object<T>(body, where));
  return Message(std::in_place_index<I>, std::move(message));
}

using DecodeFunction = Result<Message> (*)(const Json&, const std::string&);

template <std::size_t... I>
constexpr std::array<DecodeFunction, sizeof...(I)> decoders(std::index_sequence<I...>) {
  return {&decode_as<I>...};
}

constexpr auto decode_table =
    decoders(std::make_index_sequence<std::variant_size_v<Message>>{});

Error refused(const std::string& what, const std::string& where, const std::string& hint = "") {
  return Error{ErrorCode::invalid_argument, what, where, hint};
}

}  // namespace

const char* message_name(const Message& message) { return message_names.at(message.index()); }

Frames encode(const Message& message) {
  const Json body = std::visit([](const auto& m) { return codec::write_object(m); }, message);
  Frames frames;
  frames.head = std::string(wire::magic) + static_cast<char>(wire::version);
  frames.number = std::string(1, static_cast<char>(message.index() + 1));
  Json::to_msgpack(body, frames.body);
  return frames;
}

Result<Message> decode(std::string_view head, std::string_view number, std::string_view body) {
  if (head.size() != wire::magic.size() + 1 || !head.starts_with(wire::magic)) {
    return refused("the first frame is not magic and version", "message");
  }
  const auto version = static_cast<unsigned char>(head.back());
  if (version != wire::version) {
    return Error{ErrorCode::unsupported,
                 "protocol version " + std::to_string(version) + ", this side speaks " +
                     std::to_string(wire::version),
                 "message", "run the same version of Nightshift on both sides"};
  }
  if (number.size() != 1) {
    return refused("the message number has " + std::to_string(number.size()) + " bytes, not 1",
                   "message");
  }
  const std::size_t index = static_cast<std::size_t>(static_cast<unsigned char>(number[0])) - 1;
  if (index >= decode_table.size()) {
    return refused("unknown message number " + std::to_string(index + 1), "message");
  }
  const std::string where = std::string("message ") + message_names[index];
  if (body.size() > wire::body_bytes_max) {
    return refused("the body has " + std::to_string(body.size()) + " bytes, the most is " +
                       std::to_string(wire::body_bytes_max),
                   where);
  }
  NS_TRY(codec::check_msgpack(body, where));
  const Json value = Json::from_msgpack(body.begin(), body.end(), true, false);
  if (value.is_discarded()) return refused("the body is not MessagePack", where);
  return decode_table[index](value, where);
}

}  // namespace nightshift
