// What a machine can check of the house rules (HACKING.md): who includes whom, lengths, banned
// words, headers that say what they know. Runs in the repository's root.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

struct Source {
  std::string path;    // "stages/engine/graph.h"
  std::string folder;  // "stages"
  std::vector<std::string> lines;
  bool is_header() const { return path.ends_with(".h"); }
};

const std::vector<std::string> parts = {"schema", "coordinator", "worker", "stages", "kernels"};

const std::vector<Source>& sources() {
  static const std::vector<Source> all = [] {
    std::vector<Source> found;
    std::vector<std::string> roots = parts;
    roots.push_back("tests");
    for (const std::string& root : roots) {
      for (const auto& entry : fs::recursive_directory_iterator(root)) {
        const std::string extension = entry.path().extension().string();
        if (!entry.is_regular_file() || (extension != ".h" && extension != ".cpp")) continue;
        Source source{entry.path().generic_string(), root, {}};
        std::ifstream file(entry.path());
        for (std::string line; std::getline(file, line);) source.lines.push_back(line);
        found.push_back(std::move(source));
      }
    }
    return found;
  }();
  return all;
}

// The path of `#include "..."`, empty for other lines.
std::string quoted_include(const std::string& line) {
  if (!line.starts_with("#include \"")) return {};
  const std::size_t end = line.find('"', 10);
  return end == std::string::npos ? std::string() : line.substr(10, end - 10);
}

// Columns of UTF-8 text.
std::size_t columns(const std::string& line) {
  std::size_t count = 0;
  for (unsigned char c : line) count += (c & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("tidy: the sources are there") {
  CHECK(sources().size() > 150);
}

TEST_CASE("tidy: who may include whom") {
  const std::map<std::string, std::set<std::string>> allowed = {
      {"kernels", {"kernels"}},
      {"schema", {"schema"}},
      {"stages", {"stages", "kernels", "schema"}},
      {"worker", {"worker", "schema"}},
      {"coordinator", {"coordinator", "schema"}},
      {"tests", {"tests", "schema", "coordinator", "worker", "stages", "kernels"}}};
  for (const Source& source : sources()) {
    for (const std::string& line : source.lines) {
      const std::string include = quoted_include(line);
      if (include.empty()) continue;
      const std::string target = include.substr(0, include.find('/'));
      CHECK_MESSAGE(allowed.at(source.folder).count(target) == 1,
                    source.path << " includes " << include);
    }
  }
}

TEST_CASE("tidy: a third-party library is included where it belongs and nowhere else") {
  const std::vector<std::pair<std::regex, std::regex>> homes = {
      {std::regex("<yaml-cpp/.*"), std::regex("coordinator/yaml_document\\.cpp")},
      {std::regex("<sqlite3\\.h>"), std::regex("coordinator/sqlite_store.*|tests/.*")},
      {std::regex("<zmq.*"),
       std::regex("coordinator/(server|client|curve_keys).*|worker/socket\\.cpp|tests/.*")},
      {std::regex("<boost/.*"), std::regex("coordinator/server\\.cpp|tests/.*")},
      {std::regex("<CLI/.*"), std::regex("coordinator/cli/arguments\\.cpp|worker/main\\.cpp")},
      {std::regex("<pcre2.*"), std::regex("stages/text/regex\\.cpp")},
      {std::regex("<utf8proc.*"), std::regex("stages/text/.*\\.cpp")},
      {std::regex("<xxhash.*"), std::regex("schema/content_hash\\.cpp")},
      {std::regex("<nlohmann/json\\.hpp>"), std::regex("schema/json\\.h")},
  };
  for (const Source& source : sources()) {
    for (const std::string& line : source.lines) {
      if (!line.starts_with("#include <")) continue;
      const std::string include = line.substr(9);
      for (const auto& [library, home] : homes) {
        if (!std::regex_match(include, library)) continue;
        CHECK_MESSAGE(std::regex_match(source.path, home), source.path << " includes " << include);
      }
    }
  }
}

TEST_CASE("tidy: files of at most 500 lines, lines of at most 100 columns") {
  for (const Source& source : sources()) {
    CHECK_MESSAGE(source.lines.size() <= 500, source.path << " has " << source.lines.size());
    for (std::size_t n = 0; n < source.lines.size(); ++n) {
      if (source.lines[n].starts_with("#include")) continue;
      CHECK_MESSAGE(columns(source.lines[n]) <= 100, source.path << ":" << n + 1);
    }
  }
}

TEST_CASE("tidy: a header says first what it knows, and has #pragma once") {
  for (const Source& source : sources()) {
    if (!source.is_header()) continue;
    REQUIRE_MESSAGE(!source.lines.empty(), source.path);
    CHECK_MESSAGE(source.lines[0].starts_with("// "), source.path);
    bool once = false;
    for (const std::string& line : source.lines) once = once || line == "#pragma once";
    CHECK_MESSAGE(once, source.path);
  }
}

TEST_CASE("tidy: banned words") {
  struct Ban {
    std::regex what;
    std::regex except;
  };
  const std::vector<Ban> bans = {
      {std::regex("using namespace std;"), std::regex("tests/tidy/.*")},
      {std::regex("system_clock::now"), std::regex(".*clock.*|tests/.*")},
      {std::regex("\\bgets\\(|\\bstrcpy\\(|\\bsprintf\\("), std::regex("tests/tidy/.*")},
  };
  for (const Source& source : sources()) {
    for (std::size_t n = 0; n < source.lines.size(); ++n) {
      for (const Ban& ban : bans) {
        if (std::regex_match(source.path, ban.except)) continue;
        CHECK_MESSAGE(!std::regex_search(source.lines[n], ban.what), source.path << ":" << n + 1);
      }
    }
  }
}

TEST_CASE("tidy: no header that nobody includes") {
  std::set<std::string> included;
  for (const Source& source : sources()) {
    for (const std::string& line : source.lines) included.insert(quoted_include(line));
  }
  for (const Source& source : sources()) {
    if (source.is_header()) CHECK_MESSAGE(included.count(source.path) == 1, source.path);
  }
}

TEST_CASE("tidy: the top-level folders are the house's") {
  const std::set<std::string> house = {"coordinator", "worker", "stages", "kernels",
                                       "jobs",        "schema", "tests",  "ops"};
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(".")) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !name.starts_with(".") && !name.starts_with("build")) {
      found.insert(name);
    }
  }
  CHECK(found == house);
}
