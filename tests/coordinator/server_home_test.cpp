#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "tests/coordinator/fake_store.h"
#include "tests/coordinator/server_fixture.h"

using namespace nightshift;
using namespace nightshift::testing;

TEST_CASE("server home: the flag wins over the environment, which wins over the default") {
  ::setenv("NIGHTSHIFT_HOME", "/from/environment/", 1);
  CHECK(Home::locate("/from/flag")->root() == "/from/flag");
  CHECK(Home::locate("")->root() == "/from/environment");
  ::unsetenv("NIGHTSHIFT_HOME");
  CHECK(Home::locate("")->root() == std::string(std::getenv("HOME")) + "/.nightshift");
  CHECK(Home::locate("relative/x")->root() ==
        std::filesystem::current_path().string() + "/relative/x");
}

TEST_CASE("server home: folders are for their user alone") {
  const TemporaryHome folder;
  const Home home = *Home::locate(folder.path + "/deep/down");
  REQUIRE(home.create().ok());
  for (const std::string& path : {home.root(), home.keys_folder(), home.logs_folder()}) {
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
  }
  ::chmod(home.root().c_str(), 0777);
  const Status open_to_all = home.create();
  REQUIRE_FALSE(open_to_all.ok());
  CHECK(open_to_all.error().hint == "chmod 700 " + home.root());
}

TEST_CASE("server home: a second coordinator is refused with the pid of the first") {
  const TemporaryHome folder;
  const Home home = folder.home();
  CHECK_FALSE(coordinator_pid(home));
  {
    const Result<HomeLock> first = HomeLock::take(home);
    REQUIRE(first.ok());
    CHECK(coordinator_pid(home) == ::getpid());
    const Result<HomeLock> second = HomeLock::take(home);
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().code == ErrorCode::conflict);
    CHECK(second.error().what.find("(pid " + std::to_string(::getpid()) + ") already runs on") !=
          std::string::npos);
    CHECK(coordinator_pid(home) == ::getpid());   // looking and failing let the lock be
  }
  CHECK_FALSE(coordinator_pid(home));
  CHECK(HomeLock::take(home).ok());
}

TEST_CASE("server home: a path too long for a socket gives a TCP port on the loopback") {
  const TemporaryHome folder;
  const std::string deep = folder.path + "/" + std::string(100, 'd');
  const Home home = *Home::locate(deep);
  REQUIRE(home.create().ok());
  CHECK(home.default_endpoint() == "tcp://127.0.0.1:*");
  FakeStore store;
  std::string before;
  {
    RunningServer server(home, store);
    before = server.access().endpoint;
    CHECK(before.starts_with("tcp://127.0.0.1:"));
    Client client = server.client();
    CHECK(client.ask("ping", Json::object()).ok());
  }
  RunningServer again(home, store);
  CHECK(again.access().endpoint == before);   // who has read the access file finds it again
}

TEST_CASE("server home: keys are made once and must stay private") {
  const TemporaryHome folder;
  const std::string keys = folder.path + "/keys";
  const auto first = load_or_make_keys(keys);
  REQUIRE(first.ok());
  const auto second = load_or_make_keys(keys);
  REQUIRE(second.ok());
  CHECK(first->server.secret_key == second->server.secret_key);
  CHECK(first->client.public_key == second->client.public_key);
  ::chmod((keys + "/server.json").c_str(), 0644);
  const auto open_to_all = load_or_make_keys(keys);
  REQUIRE_FALSE(open_to_all.ok());
  CHECK(open_to_all.error().hint == "chmod 600 " + keys + "/server.json");
  ::chmod((keys + "/server.json").c_str(), 0600);
  std::ofstream(keys + "/server.json") << R"({"public":"short","secret":"x"})";
  CHECK(load_or_make_keys(keys).error().code == ErrorCode::corrupt);
}

TEST_CASE("server home: files are replaced whole") {
  const TemporaryHome folder;
  const std::string path = folder.path + "/report.json";
  REQUIRE(write_file(path, "one", 0644).ok());
  REQUIRE(write_file(path, "two", 0600).ok());
  CHECK(*read_file(path, 100) == "two");
  CHECK_FALSE(read_file(path, 2).ok());
  CHECK(read_file(folder.path + "/none", 2).error().code == ErrorCode::not_found);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path)) {
    (void)entry;
    ++files;
  }
  CHECK(files == 1);   // no temporary file is left
  CHECK_FALSE(write_file(folder.path + "/none/x", "one", 0644).ok());
}
