#include <doctest/doctest.h>

#include "coordinator/cli/session.h"
#include "tests/coordinator/server_fixture.h"

using namespace nightshift;
using namespace nightshift::testing;

namespace {

// Somebody who listens where a coordinator would, and answers as told.
struct FakeCoordinator {
  TemporaryHome folder;
  KeyPair server = *make_key_pair();
  KeyPair client = *make_key_pair();
  zmq::context_t context{1};
  zmq::socket_t router{context, zmq::socket_type::router};
  Access access;

  FakeCoordinator() {
    router.set(zmq::sockopt::linger, 0);
    router.set(zmq::sockopt::curve_server, 1);
    router.set(zmq::sockopt::curve_secretkey, server.secret_key);
    router.set(zmq::sockopt::rcvtimeo, 5'000);
    access = {"ipc://" + folder.path + "/s", server.public_key, client.public_key,
              client.secret_key};
    router.bind(access.endpoint);
  }
  struct Question {
    std::string peer;
    Message message;
  };
  Question next() {
    std::vector<std::string> frames;
    zmq::message_t part;
    do {
      REQUIRE(router.recv(part, zmq::recv_flags::none));
      frames.push_back(part.to_string());
    } while (part.more());
    REQUIRE(frames.size() == 4);
    Result<Message> message = decode(frames[1], frames[2], frames[3]);
    REQUIRE(message.ok());
    return {frames[0], *message};
  }
  void answer(const std::string& peer, const Message& message) {
    const Frames frames = encode(message);
    router.send(zmq::buffer(peer), zmq::send_flags::sndmore);
    router.send(zmq::buffer(frames.head), zmq::send_flags::sndmore);
    router.send(zmq::buffer(frames.number), zmq::send_flags::sndmore);
    router.send(zmq::buffer(frames.body), zmq::send_flags::none);
  }
};

SubmitJob a_submit() {
  SubmitJob submit;
  submit.spec_json = "{}";
  submit.request = "r1";
  return submit;
}

}  // namespace

TEST_CASE("client: a submit whose answer is lost is sent again with the same request") {
  FakeCoordinator coordinator;
  Client client = *Client::open(coordinator.access, {300, 3});
  std::thread there([&] {
    const auto first = coordinator.next();   // not answered
    const auto second = coordinator.next();
    CHECK(std::get<SubmitJob>(first.message).request == "r1");
    CHECK(std::get<SubmitJob>(second.message).request == "r1");
    CHECK(first.peer != second.peer);        // a late answer to the first cannot confuse
    coordinator.answer(second.peer, JobSubmitted{{7}});
  });
  const Result<JobId> job = client.submit(a_submit());
  there.join();
  REQUIRE(job.ok());
  CHECK(job->value == 7);
}

TEST_CASE("client: answers to other questions are passed over") {
  FakeCoordinator coordinator;
  Client client = *Client::open(coordinator.access, {3'000, 1});
  std::thread there([&] {
    const auto asked = coordinator.next();
    const std::int64_t request = std::get<Command>(asked.message).request;
    coordinator.answer(asked.peer, CommandReply{request + 100, R"({"wrong":1})"});
    coordinator.answer(asked.peer, ErrorReply{request + 100, "io", "wrong", "", ""});
    coordinator.answer(asked.peer, CommandReply{request, R"({"right":1})"});
  });
  const Result<Json> answer = client.ask("ping", Json::object());
  there.join();
  REQUIRE(answer.ok());
  CHECK(answer->contains("right"));
}

TEST_CASE("client: errors of the coordinator keep their code, place and hint") {
  FakeCoordinator coordinator;
  Client client = *Client::open(coordinator.access, {3'000, 1});
  std::thread there([&] {
    const auto asked = coordinator.next();
    const std::int64_t request = std::get<Command>(asked.message).request;
    coordinator.answer(asked.peer,
                       ErrorReply{request, "not_found", "no job", "here", "look there"});
  });
  const Result<Json> answer = client.ask("status", Json::object());
  there.join();
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.error().code == ErrorCode::not_found);
  CHECK(answer.error().line() == "here: no job (look there)");
  CHECK(error_code_from("something newer") == ErrorCode::internal);
}

TEST_CASE("client: where nobody is, it says how to start one, and soon") {
  const TemporaryHome folder;
  const KeyPair keys = *make_key_pair();
  const Access access{"ipc://" + folder.path + "/nobody", keys.public_key, keys.public_key,
                      keys.secret_key};
  Client client = *Client::open(access, {200, 2});
  const auto begun = std::chrono::steady_clock::now();
  const Result<Json> answer = client.ask("ping", Json::object());
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(5));
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.error().code == ErrorCode::unavailable);
  CHECK(answer.error().what == "no coordinator at ipc://" + folder.path +
                                   "/nobody: start one with `nightshift coordinator`, or use "
                                   "`nightshift run`");
  // Many unanswered questions neither pile up nor block.
  for (int i = 0; i < 40; ++i) {
    client.set_options({5, 1});
    CHECK_FALSE(client.ask("ping", Json::object()).ok());
  }
}

TEST_CASE("client: an access file whose coordinator has gone is not waited for") {
  const TemporaryHome folder;
  const Home home = folder.home();
  const KeyPair keys = *make_key_pair();
  REQUIRE(write_access(home.access_file(), {"ipc://" + home.root() + "/coordinator.sock",
                                            keys.public_key, keys.public_key, keys.secret_key})
              .ok());
  const auto begun = std::chrono::steady_clock::now();
  const Result<Client> client = cli::open_client({home.root(), ""});
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(1));
  REQUIRE_FALSE(client.ok());
  CHECK(client.error().what.find("no coordinator at " + home.root()) == 0);
}

TEST_CASE("client: an address that is none is an error, not an exception") {
  const KeyPair keys = *make_key_pair();
  const Result<Client> client =
      Client::open({"nonsense://x", keys.public_key, keys.public_key, keys.secret_key});
  REQUIRE_FALSE(client.ok());
  CHECK(client.error().where == "nonsense://x");
}

TEST_CASE("client: requests are random") {
  CHECK(random_request().size() == 32);
  CHECK(random_request() != random_request());
}
