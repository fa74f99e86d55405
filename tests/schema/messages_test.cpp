// Wire messages: numbers, fields and bounds.
#include "schema/messages.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "schema/json.h"
#include "tests/schema/message_examples.h"

using namespace nightshift;
using nightshift::test::message_examples;

namespace {

// Append only: a number that was ever used is never given to another message.
struct Pinned {
  int number;
  const char* name;
  const char* fields;   // of the example, sorted
};
constexpr Pinned pinned[] = {
    {1, "worker_hello", "held host pid resources session software worker"},
    {2, "worker_welcome", "heartbeat_ms lease_ms server_epoch"},
    {3, "heartbeat", "attempts disk_free_bytes server_epoch session temp_free_bytes worker"},
    {4, "assign_attempt",
     "command environment gpu_devices input_digests order ref retry_reason server_epoch temp "
     "wall_limit_ms watchdog"},
    {5, "attempt_started", "log_path pid ref"},
    {6, "attempt_finished",
     "checkpoint committed elapsed_ms exit_code log_tail metrics notes outcome peak_memory_bytes "
     "reason red_lines ref signal"},
    {7, "commit_checkpoint", "ref"},
    {8, "checkpoint_committed", "ok reason ref"},
    {9, "attempt_acknowledged", "accepted ref"},
    {10, "stop_attempt", "outcome reason ref"},
    {11, "assign_refused", "corrupt_input input_missing reason ref"},
    {12, "log_request", "bytes_max offset ref request"},
    {13, "log_chunk", "bytes error offset ref request size"},
    {14, "worker_shutdown", "reason"},
    {15, "submit_job", "request source_text spec_json user"},
    {16, "job_submitted", "job"},
    {17, "command", "arguments_json request verb"},
    {18, "command_reply", "body_json request"},
    {19, "error_reply", "code hint request what where"},
    {20, "input_read", "bytes_max file input offset ref request"},
    {21, "checkpoint_read", "bytes_max file offset ref request"},
    {22, "checkpoint_chunk", "bytes error offset request retryable size"},
    {23, "drop_checkpoint", "ref"},
    {24, "checkpoint_dropped", "ok reason ref"},
};

Json body_of(const Message& message) {
  const Frames frames = encode(message);
  return Json::from_msgpack(frames.body.begin(), frames.body.end());
}

Result<Message> decode_body(const Message& like, const Json& body) {
  Frames frames = encode(like);
  frames.body.clear();
  Json::to_msgpack(body, frames.body);
  return decode(frames.head, frames.number, frames.body);
}

bool mentions(const Result<Message>& result, const std::string& word) {
  return !result.ok() && result.error().line().find(word) != std::string::npos;
}

// Places whose keys are the sender's own words, and fields that may be absent.
bool is_free_form(const std::string& key) {
  return key == "params" || key == "environment" || key == "input_digests" || key == "inputs" ||
         key == "accuracy_drop";
}
bool may_be_absent(const Json::json_pointer& at) {
  if (at.back() == "checkpoint" || at.back() == "progress") return true;
  const auto parent = at.parent_pointer();
  return !parent.empty() && parent.back() == "red_lines" && at.back() != "accuracy_drop";
}

Json wrong_type_for(const Json& value) {
  if (value.is_string() || value.is_array()) return 5;
  return "five";
}

// Calls `visit(pointer, key)` for every named field at every depth.
template <class Visit>
void each_field(const Json& value, const Json::json_pointer& at, const Visit& visit) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      visit(at / key, key);
      if (!is_free_form(key)) each_field(inner, at / key, visit);
    }
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) each_field(value[i], at / i, visit);
  }
}

}  // namespace

TEST_CASE("messages: numbers, names and fields are pinned") {
  const std::vector<Message> examples = message_examples();
  REQUIRE(examples.size() == std::size(pinned));
  REQUIRE(std::variant_size_v<Message> == std::size(pinned));
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const Frames frames = encode(examples[i]);
    CHECK(frames.head == std::string("NSHF\x01", 5));
    REQUIRE(frames.number.size() == 1);
    CHECK(int{static_cast<unsigned char>(frames.number[0])} == pinned[i].number);
    CHECK(std::string(message_name(examples[i])) == pinned[i].name);
    const Json body = body_of(examples[i]);
    std::string keys;
    for (const auto& field : body.items()) keys += (keys.empty() ? "" : " ") + field.key();
    CHECK(keys == pinned[i].fields);
  }
}

TEST_CASE("messages: every one comes back as it was sent") {
  for (const Message& sent : message_examples()) {
    CAPTURE(message_name(sent));
    const Frames frames = encode(sent);
    const Result<Message> got = decode(frames.head, frames.number, frames.body);
    REQUIRE_MESSAGE(got.ok(), got.error().line());
    CHECK(got->index() == sent.index());
    CHECK(encode(*got).body == frames.body);
  }
}

TEST_CASE("messages: values survive: wide integers, doubles, bytes, absent options") {
  const auto examples = message_examples();
  const auto again = [&](std::size_t i) {
    const Frames frames = encode(examples[i]);
    return std::move(decode(frames.head, frames.number, frames.body)).value();
  };
  const auto heartbeat = std::get<Heartbeat>(again(2));
  CHECK(heartbeat.attempts.at(1).log_bytes == 5'000'000'000);
  CHECK(heartbeat.attempts.at(1).progress->rate == 12.5);
  const auto finished = std::get<AttemptFinished>(again(5));
  CHECK(finished.metrics.at(0).value == 1234.5678901234567);
  CHECK(finished.outcome == Outcome::red_line);
  CHECK(finished.checkpoint->bytes == 23'388'192);
  CHECK(finished.notes.at(0) == "层 5 注意力 back to 16 bits");
  CHECK(std::get<LogChunk>(again(12)).bytes == std::string("raw \xff\x00 bytes", 12));
  const auto assign = std::get<AssignAttempt>(again(3));
  CHECK(assign.order.params_json == test::example_order().params_json);
  CHECK(assign.order.red_lines.accuracy_drop.at("target") == 0.02);

  AttemptFinished plain;
  plain.ref = test::example_ref();
  const Frames frames = encode(plain);
  const auto got = decode(frames.head, frames.number, frames.body);
  REQUIRE(got.ok());
  CHECK_FALSE(std::get<AttemptFinished>(*got).checkpoint.has_value());
}

TEST_CASE("messages: a missing field is refused with its name") {
  for (const Message& example : message_examples()) {
    const Json body = body_of(example);
    each_field(body, Json::json_pointer(),
               [&](const Json::json_pointer& at, const std::string& key) {
                 CAPTURE(std::string(message_name(example)));
                 CAPTURE(at.to_string());
                 Json cut = body;
                 cut[at.parent_pointer()].erase(key);
                 const Result<Message> got = decode_body(example, cut);
                 if (may_be_absent(at)) {
                   CHECK(got.ok());
                 } else {
                   CHECK(mentions(got, key + ": is missing"));
                   CHECK(mentions(got, message_name(example)));
                 }
               });
  }
}

TEST_CASE("messages: a field of the wrong type is refused with its name") {
  for (const Message& example : message_examples()) {
    const Json body = body_of(example);
    each_field(body, Json::json_pointer(),
               [&](const Json::json_pointer& at, const std::string& key) {
                 CAPTURE(std::string(message_name(example)));
                 CAPTURE(at.to_string());
                 Json changed = body;
                 changed[at] = wrong_type_for(body[at]);
                 CHECK(mentions(decode_body(example, changed), key + ": "));
               });
  }
}

TEST_CASE("messages: unknown fields of a newer peer are ignored") {
  for (const Message& example : message_examples()) {
    Json body = body_of(example);
    body["future"] = {1, {{"deep", nullptr}}, "\xff"};
    CHECK(decode_body(example, body).ok());
  }
}

TEST_CASE("messages: values out of range are refused with the name of the field") {
  struct Bad {
    int number;
    const char* at;
    Json value;
  };
  const std::string long_name(257, 'n');
  const std::vector<Bad> table = {
      {1, "/worker", ""},
      {1, "/worker", long_name},
      {1, "/worker", "two\nlines"},
      {1, "/worker", "not utf8 \xff"},
      {1, "/session", "\xed\xa0\x80"},
      {1, "/host", long_name},
      {1, "/pid", -1},
      {1, "/pid", UINT64_MAX},
      {1, "/pid", 3.0},
      {1, "/resources/slots", -1},
      {1, "/resources/cores", std::int64_t{1} << 40},
      {1, "/resources/memory_bytes", -1},
      {1, "/resources/labels", Json(std::vector<std::string>{"ok", long_name})},
      {1, "/held/0/ref/attempt", 0},
      {1, "/held/0/ref/attempt", std::int64_t{1} << 31},
      {1, "/held/0/ref/job", 0},
      {1, "/held/1/ref/stage", "../../etc"},
      {1, "/held/1/ref/stage", "Quantize"},
      {1, "/held/1/ref/stage", std::string(65, 'a')},
      {2, "/lease_ms", 0},
      {2, "/heartbeat_ms", 0},
      {3, "/disk_free_bytes", -2},
      {3, "/attempts/0/progress/done", -1},
      {3, "/attempts/1/progress/rate", NAN},
      {4, "/watchdog/mode", "shout"},
      {4, "/watchdog/interval_ms", 0},
      {4, "/order/bench/batch", 0},
      {4, "/order/red_lines/ttft_ms/side", "at_best"},
      {4, "/order/red_lines/ttft_ms/value", INFINITY},
      {4, "/order/params", Json::array()},
      {4, "/temp", std::string(4097, 't')},
      {6, "/outcome", "great"},
      {6, "/exit_code", 256},
      {6, "/exit_code", -2},
      {6, "/signal", 129},
      {6, "/log_tail", std::string(8 * 1024 + 1, 'l')},
      {6, "/metrics/0/value", NAN},
      {6, "/metrics/1/name", ""},
      {6, "/notes", Json(std::vector<int>{1})},
      {6, "/checkpoint/bytes", -1},
      {12, "/bytes_max", -1},
      {12, "/bytes_max", std::int64_t{1} << 30},
      {13, "/bytes", "text instead of bytes"},
      {15, "/spec_json", std::string(wire::text_bytes_max + 1, ' ')},
      {16, "/job", 0},
      {17, "/verb", ""},
  };
  const auto examples = message_examples();
  for (const Bad& bad : table) {
    CAPTURE(bad.at);
    const Message& example = examples[static_cast<std::size_t>(bad.number - 1)];
    Json body = body_of(example);
    const Json::json_pointer at(bad.at);
    REQUIRE(body.contains(at));
    body[at] = bad.value;
    const Result<Message> got = decode_body(example, body);
    CHECK_MESSAGE(mentions(got, at.back() + ": "), (got.ok() ? "accepted" : got.error().line()));
  }
}

TEST_CASE("messages: lists longer than the bound are refused with both numbers") {
  Json body = body_of(message_examples()[5]);
  body["notes"] = Json(std::vector<std::string>(wire::list_items_max + 1, ""));
  const auto got = decode_body(message_examples()[5], body);
  CHECK(mentions(got, "notes: 100001 items, the most is 100000"));
}

TEST_CASE("messages: the frames around the body are checked") {
  const Frames good = encode(message_examples()[6]);
  CHECK(decode(good.head, good.number, good.body).ok());
  CHECK_FALSE(decode("", good.number, good.body).ok());
  CHECK_FALSE(decode("NSHF", good.number, good.body).ok());
  CHECK_FALSE(decode("HTTP\x01", good.number, good.body).ok());
  const auto newer = decode("NSHF\x02", good.number, good.body);
  REQUIRE_FALSE(newer.ok());
  CHECK(newer.error().code == ErrorCode::unsupported);
  CHECK(newer.error().what == "protocol version 2, this side speaks 1");
  CHECK_FALSE(decode(good.head, "", good.body).ok());
  CHECK_FALSE(decode(good.head, "\x07\x07", good.body).ok());
  CHECK_FALSE(decode(good.head, std::string(1, '\0'), good.body).ok());
  CHECK(mentions(decode(good.head, "\x19", good.body), "unknown message number 25"));
  CHECK(mentions(decode(good.head, "\xff", good.body), "unknown message number 255"));
  const std::string large(wire::body_bytes_max + 1, '\xc0');
  CHECK(mentions(decode(good.head, good.number, large), "the most is 67108864"));
}

TEST_CASE("messages: what is clipped or repaired when sending is accepted on the other side") {
  AttemptFinished finished;
  finished.ref = test::example_ref();
  finished.log_tail = std::string(8 * 1024 - 1, 'a') + "ü and more";
  finished.reason = "bad byte \xff here";
  finished.notes = {"\xc3"};
  const Frames frames = encode(finished);
  const auto got = decode(frames.head, frames.number, frames.body);
  REQUIRE_MESSAGE(got.ok(), got.error().line());
  const auto& back = std::get<AttemptFinished>(*got);
  CHECK(back.log_tail == std::string(8 * 1024 - 1, 'a'));
  CHECK(back.reason == "bad byte \xEF\xBF\xBD here");
  CHECK(back.notes.at(0) == "\xEF\xBF\xBD");
}
