#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>

#include "coordinator/sqlite_store.h"
#include "tests/coordinator/reactor_world.h"
#include "tests/coordinator/server_fixture.h"

using namespace nightshift;
using namespace nightshift::testing;

namespace {

SubmitJob submission(const std::string& stages, const std::string& request,
                     const std::string& name = "job") {
  return {to_json_text(dag(stages, name)), "the file", "u", request};
}

JobView view_of(Client& client, const std::string& job) {
  Result<Json> answer = client.ask("status", Json{{"job", job}});
  if (!answer.ok()) FAIL(answer.error().line());
  Result<JobView> view = job_view_from_json(answer->at("job"));
  if (!view.ok()) FAIL(view.error().line());
  return std::move(*view);
}

JobView wait_until_over(Client& client, const std::string& job) {
  for (int i = 0; i < 100; ++i) {
    JobView view = view_of(client, job);
    if (view.state != JobState::active) return view;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  FAIL("the job does not end");
  return {};
}

std::int64_t counter(Client& client, const char* name) {
  Result<Json> answer = client.ask("ping", Json::object());
  if (!answer.ok()) FAIL(answer.error().line());
  return answer->at("counters").at(name).get<std::int64_t>();
}

}  // namespace

TEST_CASE("server: a job from submit to done, on a real store, over ipc") {
  const TemporaryHome folder;
  const Home home = folder.home();
  auto store = open_sqlite_store(home.database(), {.synchronous_off = true});
  REQUIRE(store.ok());
  RunningServer server(home, **store);
  CHECK(server.access().endpoint == "ipc://" + home.root() + "/coordinator.sock");
  Client client = server.client();
  FakeWorker worker(server.access(), "box1", "s1");

  const Result<JobId> job = client.submit(submission("a -> b", "r1"));
  REQUIRE(job.ok());
  CHECK(worker.do_one() == AttemptRef{*job, "a", {1}});
  CHECK(worker.do_one() == AttemptRef{*job, "b", {1}});
  const JobView view = wait_until_over(client, "job");
  CHECK(view.state == JobState::done);
  CHECK(view.stages[1].checkpoint_path == "/checkpoints/x");
  CHECK(view.stages[1].metrics.at(0).value == 118);
}

TEST_CASE("server: a submit that is sent twice with one request is one job") {
  const TemporaryHome folder;
  FakeStore store;
  RunningServer server(folder.home(), store);
  Client client = server.client();
  const Result<JobId> first = client.submit(submission("a", "r1"));
  const Result<JobId> again = client.submit(submission("a", "r1"));
  const Result<JobId> other = client.submit(submission("a", "r2"));
  REQUIRE(first.ok());
  REQUIRE(again.ok());
  REQUIRE(other.ok());
  CHECK(*first == *again);
  CHECK(*first != *other);
  const Result<Json> list = client.ask("status", Json::object());
  REQUIRE(list.ok());
  CHECK(list->at("jobs").size() == 2);
}

TEST_CASE("server: garbage is answered once, counted, and hurts nobody") {
  const TemporaryHome folder;
  FakeStore store;
  RunningServer server(folder.home(), store);
  RawPeer garbage(server.access());
  const Frames good = encode(Command{1, "ping", "{}"});
  garbage.send_frames({"NSHF\x02", good.number, good.body});   // a later version
  const ErrorReply answer = garbage.expect<ErrorReply>();
  CHECK(answer.code == "unsupported");
  garbage.send_frames({"what", "is", "this"});
  garbage.send_frames({""});
  garbage.send_frames({"", "", "", "", "", ""});
  garbage.send_frames({good.head, std::string(1, '\xEE'), good.body});
  garbage.send_frames({good.head, good.number, "\xc1\xc1\xc1"});
  garbage.send_frames({good.head, good.number, std::string(1'000'000, '\x9f')});
  garbage.send_frames({good.head, good.number, std::string(wire::body_bytes_max + 1, '\0')});
  garbage.send(WorkerWelcome{});                              // only a coordinator says that
  CHECK(garbage.expect<ErrorReply>(20'000).what.find("worker_welcome") != std::string::npos);
  Client client = server.client();
  CHECK(counter(client, "garbage") == 8);
  CHECK(counter(client, "misdirected") == 1);
  garbage.send(Command{7, "ping", "{}"});                     // it may come to its senses
  CHECK(garbage.expect<CommandReply>().request == 7);
}

TEST_CASE("server: a key that is not admitted is refused and counted") {
  const TemporaryHome folder;
  FakeStore store;
  RunningServer server(folder.home(), store);
  const Result<KeyPair> stranger = make_key_pair();
  REQUIRE(stranger.ok());
  Access access = server.access();
  access.client_public = stranger->public_key;
  access.client_secret = stranger->secret_key;
  Result<Client> refused = Client::open(access, {3'000, 1});
  REQUIRE(refused.ok());
  const Result<Json> answer = refused->ask("ping", Json::object());
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.error().what == "the coordinator does not admit this key");
  Client client = server.client();
  CHECK(counter(client, "refused_keys") >= 1);

  // Added to the list, it is admitted without a restart.
  std::ofstream(folder.home().keys_folder() + "/allowed", std::ios::app)
      << stranger->public_key << " a second machine\n";
  Result<Client> admitted = Client::open(access, {3'000, 1});
  REQUIRE(admitted.ok());
  CHECK(admitted->ask("ping", Json::object()).ok());
}

TEST_CASE("server: a wrong server key never talks") {
  const TemporaryHome folder;
  FakeStore store;
  RunningServer server(folder.home(), store);
  Access access = server.access();
  access.server_public = access.client_public;
  Result<Client> client = Client::open(access, {500, 1});
  REQUIRE(client.ok());
  CHECK_FALSE(client->ask("ping", Json::object()).ok());
}

TEST_CASE("server: a commit that fails is not acknowledged, and asked again it counts once") {
  using Fault = FailingStore::Fault;
  for (const Fault fault : {Fault::before_writing, Fault::after_writing}) {
    const TemporaryHome folder;
    FakeStore inner;
    FailingStore store(inner);
    store.next = fault;
    RunningServer server(folder.home(), store);
    Client client = server.client({2'000, 1});
    const Result<JobId> failed = client.submit(submission("a", "r1"));
    REQUIRE_FALSE(failed.ok());
    CHECK(failed.error().code == ErrorCode::unavailable);
    CHECK(failed.error().what.find("disk I/O error") != std::string::npos);
    REQUIRE(client.submit(submission("a", "r1")).ok());
    CHECK(client.ask("status", Json::object())->at("jobs").size() == 1);
    CHECK(counter(client, "failed_commits") == 1);
  }
}

TEST_CASE("server: a store that cannot be read again is said, and tried again") {
  const TemporaryHome folder;
  FakeStore inner;
  FailingStore store(inner);
  DeskOptions options;
  SystemClock clock;
  Engine engine(store, {});
  REQUIRE(engine.open(clock.now()).ok());
  Desk desk(engine, folder.home(), [](const std::string&) {}, options);
  store.broken = true;
  Now now{1'000, 1'000};
  desk.on_message("cli", submission("a", "r1"), now);
  const auto failed = desk.end_turn(now);
  REQUIRE(failed.size() == 1);
  CHECK(std::get<ErrorReply>(failed[0].message).code == "unavailable");
  CHECK_FALSE(engine.healthy());
  desk.on_message("cli", Command{4, "status", "{}"}, now);
  CHECK(std::get<ErrorReply>(desk.end_turn(now).at(0).message).request == 4);
  store.broken = false;
  now.mono_ms += 2'000;
  desk.on_tick(now);
  CHECK(engine.healthy());
  desk.end_turn(now);
  desk.on_message("cli", Command{5, "status", "{}"}, now);
  CHECK(std::get<CommandReply>(desk.end_turn(now).at(0).message).request == 5);
}

TEST_CASE("server: a peer that floods does not keep the others waiting") {
  const TemporaryHome folder;
  FakeStore store;
  RunningServer server(folder.home(), store);
  std::atomic<bool> stop = false;
  const Access access = server.access();
  std::thread flood([&] {
    RawPeer peer(access);
    WorkerHello hello;
    hello.worker = {"loud"};
    hello.session = "s";
    hello.host = "h";
    hello.software = "t";
    for (int i = 0; i < 20'000 && !stop; ++i) peer.send(hello);
  });
  Client client = server.client({5'000, 1});
  std::int64_t slowest_ms = 0;
  for (int i = 0; i < 30; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    CHECK(client.ask("ping", Json::object()).ok());
    const auto took = std::chrono::steady_clock::now() - begun;
    slowest_ms = std::max<std::int64_t>(
        slowest_ms, std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
  }
  CHECK(slowest_ms < 3'000);
  stop = true;
  flood.join();
}

TEST_CASE("server: a worker that starts again under its name is reachable at once") {
  const TemporaryHome folder;
  FakeStore store;
  RunningServer server(folder.home(), store);
  Client client = server.client();
  FakeWorker first(server.access(), "box1", "s1", "box1");
  FakeWorker second(server.access(), "box1", "s2", "box1");   // the first is still connected
  const Result<JobId> job = client.submit(submission("a", "r1"));
  REQUIRE(job.ok());
  CHECK(second.do_one() == AttemptRef{*job, "a", {1}});
}

TEST_CASE("server: a report before a hello is told to say hello") {
  const TemporaryHome folder;
  FakeStore store;
  RunningServer server(folder.home(), store);
  RawPeer peer(server.access());
  for (int i = 0; i < 2; ++i) {   // each time: the worker may have missed the first
    peer.send(AttemptStarted{{{1}, "a", {1}}, 1, "/log"});
    CHECK(peer.expect<ErrorReply>().hint == "say hello first");
  }
}

TEST_CASE("server: running attempts go on over a restart of the coordinator") {
  const TemporaryHome folder;
  const Home home = folder.home();
  auto store = open_sqlite_store(home.database(), {.synchronous_off = true});
  REQUIRE(store.ok());
  auto server = std::make_unique<RunningServer>(home, **store);
  FakeWorker worker(server->access(), "box1", "s1");
  Client client = server->client();
  REQUIRE(client.submit(submission("a", "r1")).ok());
  const AttemptRef ref = worker.peer.expect<AssignAttempt>().ref;
  worker.started(ref);
  CHECK(counter(client, "messages") > 0);
  server.reset();
  server = std::make_unique<RunningServer>(home, **store);
  worker.hello({{ref, false}});
  CHECK(worker.peer.expect<WorkerWelcome>(10'000).server_epoch > worker.welcome.server_epoch);
  worker.finished(ref);
  CHECK(worker.peer.expect<CommitCheckpoint>().ref == ref);
  worker.peer.send(CheckpointCommitted{ref, true, ""});
  CHECK(wait_until_over(client, "1").state == JobState::done);
}
