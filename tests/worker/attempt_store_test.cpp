// Folders of attempts on a real disk.
#include "worker/attempt_store.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "tests/worker/support.h"
#include "worker/checkpoint_seal.h"
#include "worker/stage_environment.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

struct Store {
  Store() : store(folder.path()) { REQUIRE(store.open().ok()); }

  PreparedAttempt prepare(const AttemptRef& ref) {
    auto prepared = store.prepare(make_order(ref), {"PATH=/usr/bin"});
    REQUIRE_MESSAGE(prepared.ok(), (prepared.ok() ? "" : prepared.error().line()));
    return std::move(*prepared);
  }
  AttemptFinished finish(const AttemptRef& ref, Outcome outcome = Outcome::ok) {
    AttemptFinished draft;
    draft.ref = ref;
    draft.outcome = outcome;
    draft.metrics.push_back({"throughput_tok_s", 1600.5, "tok/s", "", ""});
    return store.finish(draft);
  }
  std::string at(const AttemptRef& ref, const std::string& name) {
    return store.attempt_folder(ref) + "/" + name;
  }

  TempFolder folder;
  AttemptStore store;
};

std::string value_of(const std::vector<std::string>& environment, const std::string& name) {
  for (const std::string& text : environment) {
    if (text.starts_with(name + "=")) return text.substr(name.size() + 1);
  }
  return "(absent)";
}

const AttemptRef first = make_ref(3, "quantize", 1);
const AttemptRef second = make_ref(3, "quantize", 2);

}  // namespace

TEST_CASE("attempt store: the folder, the order, the environment, TMPDIR") {
  Store s;
  AssignAttempt order = make_order(first);
  order.environment = {{"SEED", "7"}, {"NIGHTSHIFT_OUT", "/elsewhere"}, {"BAD=", "x"}};
  order.order.inputs = {{"fuse-2", "/ckpt/fuse"}};
  order.retry_reason = "attempt 0 hung";
  const auto prepared =
      s.store.prepare(order, {"PATH=/usr/bin", "NIGHTSHIFT_INPUT_OLD=/x", "SEED=1", "junk"});
  REQUIRE(prepared.ok());
  const auto& env = prepared->environment;
  CHECK(value_of(env, "PATH") == "/usr/bin");
  CHECK(value_of(env, "SEED") == "7");
  CHECK(value_of(env, "NIGHTSHIFT_OUT") == s.at(first, "out"));
  CHECK(value_of(env, "NIGHTSHIFT_SPEC") == s.at(first, "spec.json"));
  CHECK(value_of(env, "NIGHTSHIFT_STATE") == s.at(first, "state"));
  CHECK(value_of(env, "NIGHTSHIFT_INPUT_FUSE_2") == "/ckpt/fuse");
  CHECK(value_of(env, "NIGHTSHIFT_INPUT_OLD") == "(absent)");
  CHECK(value_of(env, "NIGHTSHIFT_ATTEMPT") == "1");
  CHECK(value_of(env, "NIGHTSHIFT_RETRY_REASON") == "attempt 0 hung");
  CHECK(is_folder(value_of(env, "TMPDIR")));
  for (const char* name : {"out", "state"}) CHECK(is_folder(s.at(first, name)));
  const auto spec = stage_order_from_json(read_text(s.at(first, "spec.json")), "spec");
  REQUIRE(spec.ok());
  CHECK(spec->stage == "quantize");
  s.finish(first);
  CHECK_FALSE(is_folder(value_of(env, "TMPDIR")));
}

TEST_CASE("attempt store: a number is used once, so that a log is never overwritten") {
  Store s;
  s.prepare(first);
  write_text(s.at(first, "log"), "precious\n");
  const auto again = s.store.prepare(make_order(first), {});
  REQUIRE_FALSE(again.ok());
  CHECK(again.error().code == ErrorCode::conflict);
  CHECK(read_text(s.at(first, "log")) == "precious\n");
  s.finish(first);
  REQUIRE(s.store.forget(first, true).ok());
  CHECK_FALSE(s.store.prepare(make_order(first), {}).ok());
}

TEST_CASE("attempt store: state/ goes from the newest earlier attempt to the next") {
  Store s;
  s.prepare(first);
  write_text(s.at(first, "state/step"), "40");
  s.finish(first, Outcome::crash);
  s.prepare(second);
  CHECK(read_text(s.at(second, "state/step")) == "40");
  CHECK_FALSE(is_folder(s.at(first, "state")));
  write_text(s.at(second, "state/step"), "80");
  s.finish(second, Outcome::lost);
  s.prepare(make_ref(3, "quantize", 11));  // numbers, not text: 11 is after 2
  CHECK(read_text(s.at(make_ref(3, "quantize", 11), "state/step")) == "80");
  s.prepare(make_ref(4, "quantize", 12));  // another job's
  CHECK(read_text(s.at(make_ref(4, "quantize", 12), "state/step")) == "");
}

TEST_CASE("attempt store: success forgets state/, so that a forced rerun starts fresh") {
  Store s;
  s.prepare(first);
  write_text(s.at(first, "state/step"), "all");
  s.finish(first);
  REQUIRE(s.store.commit(first).ok());
  REQUIRE(s.store.forget(first, true).ok());
  s.prepare(second);
  CHECK(read_text(s.at(second, "state/step")) == "");
}

TEST_CASE("attempt store: a good end is sealed, durable, and committed once") {
  Store s;
  s.prepare(first);
  write_text(s.at(first, "out/config.json"), "{}");
  REQUIRE(make_folders(s.at(first, "out/sub")).ok());
  write_text(s.at(first, "out/sub/w.safetensors"), "weights");
  write_text(s.at(first, "log"), "10%\r100%\nall done\n");
  const AttemptFinished result = s.finish(first);
  CHECK(result.outcome == Outcome::ok);
  CHECK(result.log_tail == "100%\nall done\n");
  REQUIRE(result.checkpoint);
  CHECK(result.checkpoint->bytes == 9);
  CHECK(result.checkpoint->path == s.store.checkpoint_folder(first));
  CHECK_FALSE(is_folder(result.checkpoint->path));  // by the coordinator's decision only
  for (int i = 0; i < 3; ++i) CHECK(s.store.commit(first).ok());
  const auto manifest = check_checkpoint(result.checkpoint->path);
  REQUIRE(manifest.ok());
  CHECK(manifest->digest() == result.checkpoint->digest);
  CHECK(manifest->files.size() == 2);
  CHECK_FALSE(is_folder(s.at(first, "out")));
  const auto stored = s.store.recover();
  REQUIRE(stored.size() == 1);
  CHECK(stored[0].committed);
  CHECK(stored[0].metrics.at(0).value == 1600.5);
  REQUIRE(s.store.forget(first, true).ok());
  CHECK(s.store.recover().empty());
  CHECK(s.store.commit(first).ok());  // asked again after all: still there
  CHECK(is_folder(result.checkpoint->path));
}

TEST_CASE("attempt store: what is not accepted loses its files, but not its log") {
  Store s;
  s.prepare(first);
  write_text(s.at(first, "out/w"), "late result");
  s.finish(first);
  REQUIRE(s.store.forget(first, false).ok());
  CHECK_FALSE(is_folder(s.at(first, "out")));
  CHECK(is_file(s.at(first, "log")));
  CHECK(is_file(s.at(first, "result.acknowledged.json")));
  CHECK_FALSE(s.store.commit(first).ok());
  CHECK(s.store.recover().empty());
  CHECK(s.store.forget(first, false).ok());
}

TEST_CASE("attempt store: killed between rename and mark, the commit is found at the start") {
  Store s;
  s.prepare(first);
  write_text(s.at(first, "out/w"), "x");
  const AttemptFinished result = s.finish(first);
  REQUIRE(make_folders(parent_folder(result.checkpoint->path)).ok());
  REQUIRE(::rename(s.at(first, "out").c_str(), result.checkpoint->path.c_str()) == 0);
  const auto stored = s.store.recover();
  REQUIRE(stored.size() == 1);
  CHECK(stored[0].committed);
  CHECK(s.store.commit(first).ok());
}

TEST_CASE("attempt store: at the start, abandoned ones are not reported; state/ and log stay") {
  Store s;
  const PreparedAttempt prepared = s.prepare(first);
  write_text(s.at(first, "state/step"), "40");
  write_text(s.at(first, "out/half"), "x");
  s.prepare(make_ref(3, "fuse", 1));
  s.finish(make_ref(3, "fuse", 1), Outcome::error);
  s.prepare(make_ref(3, "soak", 1));
  write_text(s.at(make_ref(3, "soak", 1), "result.json"), "{\"ref\":");
  const auto stored = s.store.recover();
  REQUIRE(stored.size() == 1);
  CHECK(stored[0].ref == make_ref(3, "fuse", 1));
  CHECK_FALSE(is_folder(s.at(first, "out")));
  CHECK_FALSE(is_folder(prepared.temp));
  CHECK(is_file(s.at(first, "log")));
  CHECK(is_file(s.at(make_ref(3, "soak", 1), "result.json.unreadable")));
  s.prepare(second);
  CHECK(read_text(s.at(second, "state/step")) == "40");
}

TEST_CASE("attempt store: inputs that are missing, damaged or others are refused by name") {
  Store s;
  const std::string input = s.folder.path() + "/input";
  REQUIRE(make_folders(input).ok());
  write_text(input + "/w", "weights");
  const auto manifest = seal_checkpoint(input);
  REQUIRE(manifest.ok());
  AssignAttempt order = make_order(first);
  order.order.inputs = {{"calibrate", input}};
  order.input_digests = {{"calibrate", "00000000000000000000000000000000"}};
  CHECK(s.store.prepare(order, {}).error().code == ErrorCode::conflict);
  order.input_digests = {{"calibrate", manifest->digest()}};
  write_text(input + "/w", "weight");
  CHECK(s.store.prepare(order, {}).error().code == ErrorCode::corrupt);
  order.order.inputs = {{"calibrate", s.folder.path() + "/gone"}};
  const auto missing = s.store.prepare(order, {});
  CHECK(missing.error().what.find("calibrate") != std::string::npos);
  write_text(input + "/w", "weights");
  order.order.inputs = {{"calibrate", input}};
  CHECK(s.store.prepare(order, {}).ok());  // the refusals have not used the number up
}

TEST_CASE("attempt store: a refused order leaves state/ where it was and its number free") {
  Store s;
  s.prepare(first);
  write_text(s.at(first, "state/step"), "40");
  s.finish(first, Outcome::crash);
  AssignAttempt order = make_order(second);
  write_text(s.folder.path() + "/file", "");
  order.temp = s.folder.path() + "/file";  // no folder can be made in it
  CHECK_FALSE(s.store.prepare(order, {}).ok());
  CHECK(read_text(s.at(first, "state/step")) == "40");
  order.temp.clear();
  CHECK(s.store.prepare(order, {}).ok());
}

TEST_CASE("attempt store: names that lead out of the root are refused") {
  Store s;
  for (const char* stage : {"..", "a/b", "", ".hidden", "/etc"}) {
    CAPTURE(stage);
    CHECK_FALSE(s.store.prepare(make_order(make_ref(3, stage, 1)), {}).ok());
    CHECK_FALSE(s.store.commit(make_ref(3, stage, 1)).ok());
    CHECK_FALSE(s.store.forget(make_ref(3, stage, 1), false).ok());
    CHECK_FALSE(s.store.read_log({1, make_ref(3, stage, 1), 0, 10}).error.empty());
  }
  CHECK_FALSE(s.store.prepare(make_order(make_ref(0, "fuse", 1)), {}).ok());
  CHECK_FALSE(s.store.prepare(make_order(make_ref(3, "fuse", 0)), {}).ok());
}

TEST_CASE("attempt store: a link in out/ ends the attempt as an error that names it") {
  Store s;
  s.prepare(first);
  REQUIRE(::symlink("/etc/passwd", s.at(first, "out/tokenizer.json").c_str()) == 0);
  const AttemptFinished result = s.finish(first);
  CHECK(result.outcome == Outcome::error);
  CHECK(result.reason.find("tokenizer.json") != std::string::npos);
  CHECK_FALSE(result.checkpoint);
}

TEST_CASE("attempt store: one worker a root") {
  Store s;
  AttemptStore other(s.folder.path());
  const Status opened = other.open();
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.error().hint.find("--root") != std::string::npos);
}

TEST_CASE("attempt store: log pieces, also of an attempt that is not there") {
  Store s;
  s.prepare(first);
  write_text(s.at(first, "log"), "0123456789");
  const LogChunk chunk = s.store.read_log({7, first, -3, 100});
  CHECK(chunk.request == 7);
  CHECK(chunk.offset == 7);
  CHECK(chunk.bytes == "789");
  CHECK(chunk.size == 10);
  CHECK(s.store.read_log({7, second, 0, 10}).error.find("cannot open the log") !=
        std::string::npos);
}
