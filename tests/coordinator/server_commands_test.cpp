#include <doctest/doctest.h>

#include <fstream>

#include "tests/coordinator/reactor_world.h"
#include "tests/coordinator/server_fixture.h"

using namespace nightshift;
using namespace nightshift::testing;

namespace {

// A desk without a socket.
struct DeskWorld {
  TemporaryHome folder;
  Home home = folder.home();
  FakeStore store;
  Engine engine{store, {}};
  Desk desk{engine, home, [](const std::string&) {}};
  Now now{1'000, 1'700'000'000'000};

  DeskWorld() { REQUIRE(engine.open(now).ok()); }

  std::vector<Letter> turn(const std::string& peer, const Message& message) {
    desk.on_message(peer, message, now);
    return desk.end_turn(now);
  }
  Result<Json> ask(const std::string& verb, const Json& arguments) {
    for (const Letter& letter : turn("cli", Command{5, verb, dump_json(arguments)})) {
      if (letter.peer != "cli") continue;
      if (const auto* reply = std::get_if<CommandReply>(&letter.message)) {
        CHECK(reply->request == 5);
        return parse_json(reply->body_json, "reply");
      }
      if (const auto* error = std::get_if<ErrorReply>(&letter.message)) {
        return Error{error_code_from(error->code), error->what, error->where, error->hint};
      }
    }
    return Error{ErrorCode::internal, "no answer", "", ""};
  }
  JobId submit(const std::string& stages, const std::string& name) {
    const auto letters = turn("cli", SubmitJob{to_json_text(dag(stages, name)), "", "u", ""});
    return std::get<JobSubmitted>(letters.at(0).message).job;
  }
  void add_worker(const std::string& peer) {
    WorkerHello hello;
    hello.worker = {"box1"};
    hello.session = "s1";
    hello.host = "h";
    hello.software = "t";
    turn(peer, hello);
  }
};

}  // namespace

TEST_CASE("server commands: a job by number, by its newest name, and a wrong name") {
  DeskWorld world;
  world.submit("a", "night");
  const JobId newest = world.submit("a -> b", "night");
  CHECK(world.ask("status", {{"job", "1"}})->at("job").at("job") == 1);
  CHECK(world.ask("status", {{"job", "night"}})->at("job").at("job") == newest.value);
  const auto wrong = world.ask("status", {{"job", "nihgt"}});
  CHECK(wrong.error().code == ErrorCode::not_found);
  CHECK(wrong.error().hint == "did you mean night?");
  CHECK(world.ask("status", {{"job", 1}}).error().code == ErrorCode::invalid_argument);
  CHECK(world.ask("status", Json::object())->at("jobs").size() == 2);
}

TEST_CASE("server commands: unknown verbs and arguments that are no object") {
  DeskWorld world;
  CHECK(world.ask("dance", Json::object()).error().code == ErrorCode::unsupported);
  CHECK(world.ask("status", Json::array()).error().code == ErrorCode::invalid_argument);
  world.desk.on_message("cli", Command{5, "status", "{"}, world.now);
  const auto letters = world.desk.end_turn(world.now);
  CHECK(std::get<ErrorReply>(letters.at(0).message).request == 5);
}

TEST_CASE("server commands: explain says why, and knows stages by name") {
  DeskWorld world;
  world.submit("a -> b", "night");
  const auto all = world.ask("explain", {{"job", "night"}});
  REQUIRE(all.ok());
  CHECK(all->at("stages").size() == 2);
  CHECK(all->at("stages").at(0).at("reasons").size() >= 1);
  CHECK(world.ask("explain", {{"job", "night"}, {"stage", "b"}})->at("stages").size() == 1);
  CHECK(world.ask("explain", {{"job", "night"}, {"stage", "zzz"}}).error().code ==
        ErrorCode::not_found);
}

TEST_CASE("server commands: cancel, cancel again, and a resume that only plans") {
  DeskWorld world;
  world.submit("a -> b", "night");
  CHECK(world.ask("cancel", {{"job", "night"}, {"by", "u"}}).ok());
  CHECK(world.ask("cancel", {{"job", "night"}, {"by", "u"}}).ok());
  CHECK(world.ask("status", {{"job", "night"}})->at("job").at("state") == "cancelled");
  const auto plan = world.ask("resume", {{"job", "night"}, {"plan", true}});
  REQUIRE(plan.ok());
  CHECK(plan->at("steps").size() == 2);
  CHECK(plan->at("steps").at(0).at("rerun") == true);
  CHECK(world.ask("status", {{"job", "night"}})->at("job").at("state") == "cancelled");
  CHECK(world.ask("resume", {{"job", "night"}}).ok());
  CHECK(world.ask("status", {{"job", "night"}})->at("job").at("state") == "active");
  CHECK(world.ask("resume", {{"job", "night"}, {"from", "nowhere"}}).error().code !=
        ErrorCode::internal);
}

TEST_CASE("server commands: a local log in pieces that never cut a character") {
  DeskWorld world;
  world.add_worker("w");
  const JobId job = world.submit("a", "night");
  CHECK(world.ask("logs", {{"job", "night"}, {"stage", "zzz"}}).error().code ==
        ErrorCode::not_found);
  const std::string path = world.home.attempt_log({job, "a", {1}});
  REQUIRE(make_folders(path.substr(0, path.rfind('/')), 0700).ok());
  std::ofstream(path) << "层\n5 done\n";
  const auto whole = world.ask("logs", {{"job", "night"}, {"stage", "a"}});
  REQUIRE(whole.ok());
  CHECK(whole->at("text") == "层\n5 done\n");
  CHECK(whole->at("open") == true);
  CHECK(whole->at("attempt") == 1);
  const auto first = world.ask("logs", {{"job", "night"}, {"bytes_max", 4}});
  CHECK(first->at("text") == "层\n");
  CHECK(first->at("next") == 4);
  const auto tail = world.ask("logs", {{"job", "night"}, {"offset", -5}});
  CHECK(tail->at("text") == "done\n");
  CHECK(world.ask("logs", {{"job", "night"}, {"offset", 1000}})->at("text") == "");
  CHECK(world.ask("logs", {{"job", "night"}, {"attempt", 7}}).error().code ==
        ErrorCode::not_found);
}

TEST_CASE("server commands: a log that lies with a worker is asked for there") {
  DeskWorld world;
  world.add_worker("w");
  const JobId job = world.submit("a", "night");
  const AttemptRef ref{job, "a", {1}};
  world.desk.on_message("cli", Command{9, "logs", R"({"job":"night","offset":3})"}, world.now);
  const auto asked = world.desk.end_turn(world.now);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].peer == "w");
  const LogRequest request = std::get<LogRequest>(asked[0].message);
  CHECK(request.ref == ref);
  CHECK(request.offset == 3);
  // Somebody else's answer is not believed.
  LogChunk chunk{request.request, ref, 3, 8, "lines", ""};
  CHECK(world.turn("stranger", chunk).empty());
  const auto answered = world.turn("w", chunk);
  REQUIRE(answered.size() == 1);
  CHECK(answered[0].peer == "cli");
  CHECK(std::get<CommandReply>(answered[0].message).request == 9);
  CHECK(world.turn("w", chunk).empty());   // twice is once too often

  world.desk.on_message("cli", Command{10, "logs", R"({"job":"night"})"}, world.now);
  world.desk.end_turn(world.now);
  world.now.mono_ms += 6'000;
  world.desk.on_tick(world.now);
  bool told = false;
  for (const Letter& letter : world.desk.end_turn(world.now)) {
    const auto* error = std::get_if<ErrorReply>(&letter.message);
    told = told || (error && error->request == 10 && error->code == "unavailable");
  }
  CHECK(told);
}

TEST_CASE("server commands: messages go to the connection of the session they are for") {
  DeskWorld world;
  world.add_worker("old-connection");
  world.add_worker("new-connection");   // the same process, connected again
  world.desk.on_unreachable("old-connection");
  world.submit("a", "night");
  world.now.mono_ms += 10;
  world.desk.on_tick(world.now);
  world.desk.end_turn(world.now);
  WorkerHello hello;
  hello.worker = {"box1"};
  hello.session = "s1";
  hello.host = "h";
  hello.software = "t";
  bool assigned = false;
  for (const Letter& letter : world.turn("new-connection", hello)) {
    CHECK(letter.peer == "new-connection");
    assigned = assigned || std::holds_alternative<AssignAttempt>(letter.message);
  }
  CHECK(assigned);
}
