// The access file: private to its user, complete, never half written.
#include "schema/access.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

using namespace nightshift;
namespace fs = std::filesystem;

namespace {

struct TemporaryFolder {
  std::string path;
  TemporaryFolder() {
    char name[] = "/tmp/nightshift-access-XXXXXX";
    path = mkdtemp(name);
  }
  ~TemporaryFolder() { fs::remove_all(path); }
};

const Access example{"tcp://127.0.0.1:7654", std::string(40, 'a'), std::string(40, 'b'),
                     std::string(39, 'c') + "#"};

}  // namespace

TEST_CASE("access: written with mode 0600 whatever the umask, and read back") {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/access.json";
  const mode_t before = umask(0);
  CHECK(write_access(path, example).ok());
  CHECK(write_access(path, example).ok());
  umask(before);
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  const auto access = read_access(path);
  REQUIRE_MESSAGE(access.ok(), access.error().line());
  CHECK(access->endpoint == example.endpoint);
  CHECK(access->client_secret == example.client_secret);
  CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator{}) == 1);
}

TEST_CASE("access: a file that others may read is refused, with the chmod that mends it") {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/access.json";
  REQUIRE(write_access(path, example).ok());
  for (const mode_t mode : {0640, 0604, 0660, 0601}) {
    REQUIRE(chmod(path.c_str(), mode) == 0);
    const auto access = read_access(path);
    REQUIRE_FALSE(access.ok());
    CHECK(access.error().hint.find("chmod 600 " + path) != std::string::npos);
  }
}

TEST_CASE("access: what is not an access file is refused, and no key is repeated in a message") {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/access.json";
  const auto refusal = [&](const std::string& text) {
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
    const auto access = read_access(path);
    REQUIRE_FALSE(access.ok());
    return access.error().line();
  };
  CHECK(refusal("").find(path) != std::string::npos);
  CHECK(refusal("{}").find("endpoint: is missing") != std::string::npos);
  CHECK(refusal(std::string(70'000, ' ')).find("larger than 65536") != std::string::npos);
  const std::string secret = "S3cretS3cretS3cretS3cretS3cretS3cret";
  const std::string short_key =
      refusal(R"({"endpoint":"tcp://x:1","server_public":")" + std::string(40, 'a') +
              R"(","client_public":")" + std::string(40, 'a') + R"(","client_secret":")" +
              secret + "\"}");
  CHECK(short_key.find("client_secret is not a key") != std::string::npos);
  CHECK(short_key.find(secret) == std::string::npos);
  CHECK(read_access(folder.path + "/absent").error().code == ErrorCode::not_found);
  CHECK_FALSE(read_access(folder.path).ok());
}

TEST_CASE("access: a folder that cannot be written leaves the old file") {
  const TemporaryFolder folder;
  CHECK_FALSE(write_access(folder.path + "/no/such/folder", example).ok());
  Access bad = example;
  bad.server_public = "short";
  const std::string path = folder.path + "/access.json";
  REQUIRE(write_access(path, example).ok());
  CHECK_FALSE(write_access(path, bad).ok());
  CHECK(read_access(path).ok());
}
