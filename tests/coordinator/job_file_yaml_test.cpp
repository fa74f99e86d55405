// The YAML side: text stays text, duplicates, aliases, depth, bytes.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <ctime>
#include <string>

#include "coordinator/yaml_document.h"
#include "tests/coordinator/job_file_support.h"

using namespace nightshift;
using namespace nightshift::test;

namespace {

long peak_memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

std::string repeated(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

// The deepest thing a parser may be asked to follow: refused at once, in little memory.
void refused_fast(const std::string& text, const std::string& part) {
  const std::clock_t began = std::clock();   // of this process: a busy machine is no failure
  const long before = peak_memory_mib();
  const JobFileResult result = parse(text);
  REQUIRE_FALSE(result.spec.has_value());
  REQUIRE_FALSE(result.errors.empty());
  CHECK_MESSAGE(result.errors[0].line().find(part) != std::string::npos, result.errors[0].line());
  CHECK(static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC < 1.0);
  CHECK(peak_memory_mib() - before < 100);
}

}  // namespace

TEST_CASE("job file: words that YAML 1.1 takes for booleans stay text") {
  const JobFileResult result = parse(
      "name: on\nmodel: {path: no}\nresources: {labels: [en, no, zh, Yes, y]}\n"
      "stages: {baseline: {}}\n");
  REQUIRE(result.spec.has_value());
  CHECK(result.spec->name == "on");
  CHECK(result.spec->model_path == "/jobs/no");
  CHECK(result.spec->resources.labels == std::vector<std::string>{"en", "no", "zh", "Yes", "y"});
}

TEST_CASE("job file: a boolean is true or false, everything else is refused at its place") {
  const auto fuse = [](const std::string& value) {
    return "name: j\nmodel: {path: m}\nstages:\n  baseline: {}\n  fuse:\n    needs: baseline\n"
           "    same_precision_only: " + value + "\n";
  };
  CHECK(parse(fuse("true")).spec.has_value());
  CHECK(parse(fuse("false")).spec.has_value());
  for (const char* word : {"yes", "no", "on", "Off", "True", "1", "y"}) {
    CHECK_MESSAGE(fails_at(fuse(word), "7:26", "write true or false"), word);
  }
}

TEST_CASE("job file: a duplicate key is refused, naming both lines") {
  CHECK(fails_at("name: j\nmodel: {path: m}\nstages:\n  baseline: {}\n  fuse: {needs: baseline}\n"
                 "  fuse: {needs: baseline}\n",
                 "6:3", "key `fuse` is there twice: lines 5 and 6"));
  CHECK(fails_at("name: j\nmodel: {path: m}\nbench:\n  batch: 1\n  batch: 2\n"
                 "stages: {baseline: {}}\n",
                 "5:3", "key `batch` is there twice: lines 4 and 5"));
  CHECK(fails_at("name: j\nmodel: {path: m}\n\"name\": k\nstages: {baseline: {}}\n", "3:1",
                 "key `name` is there twice: lines 1 and 3"));
}

TEST_CASE("job file: anchors and merge keys work, own keys win") {
  const JobFileResult result = parse(
      "name: j\nmodel: {path: m}\nstages:\n  baseline: &common {wall_limit: 1h, expected: 5m}\n"
      "  calibrate:\n    <<: *common\n    needs: baseline\n    data: d\n    expected: 7m\n"
      "  quantize:\n    <<: [*common, {expected: 9m, scheme: int8}]\n    needs: calibrate\n");
  for (const Error& error : result.errors) MESSAGE(error.line());
  REQUIRE(result.spec.has_value());
  CHECK(stage_of(*result.spec, "calibrate").wall_limit_ms == 3'600'000);
  CHECK(stage_of(*result.spec, "calibrate").expected_ms == 420'000);
  CHECK(stage_of(*result.spec, "quantize").expected_ms == 300'000);
  CHECK(params_of(*result.spec, "quantize").find(R"("scheme":"int8")") != std::string::npos);
  CHECK(fails_at(job_text("bench: {<<: 5}"), "1:61", "<< merges maps only"));
}

TEST_CASE("job file: alias bombs are refused fast and small") {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char name = 'b'; name <= 'i'; ++name) {
    const std::string before = std::string("*") + static_cast<char>(name - 1);
    bomb +=
        std::string(1, name) + ": &" + name + " [" + before + repeated(", " + before, 8) + "]\n";
  }
  refused_fast(bomb, "more than 1000000 values after expanding aliases");
  std::string merges = "a: &a {k0: 1, k1: 1}\n";
  for (char name = 'b'; name <= 'z'; ++name) {
    const std::string before = std::string("*") + static_cast<char>(name - 1);
    merges += std::string(1, name) + ": &" + name + " {p: " + before + ", q: " + before + "}\n";
  }
  refused_fast(merges, "more than 1000000 values");
  refused_fast("a: &a [*a]\n", "it would contain itself");
  refused_fast("a: *nowhere\n", "anchor is not defined");
}

TEST_CASE("job file: 100,000 levels of every kind of nesting are refused, not followed") {
  constexpr int levels = 100'000;
  refused_fast(std::string(levels, '['), "nested deeper than 32 levels");
  refused_fast(std::string(4'000'000, '['), "nested deeper than 32 levels");
  refused_fast(repeated("{a: ", levels), "nested deeper than 32 levels");
  refused_fast(repeated("- ", levels), "nested deeper than 32 levels");
  refused_fast(repeated("? ", levels), "nested deeper than 32 levels");
  refused_fast(repeated("[ # ]\n", levels), "nested deeper than 32 levels");
  refused_fast(repeated("{a: [", levels), "nested deeper than 32 levels");
  std::string steps;
  for (int i = 0; i < 500; ++i) steps += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  refused_fast(steps, "nested deeper than 32 levels");
  refused_fast(std::string(levels, ']'), "");
  refused_fast(std::string(levels, '}'), "");
  refused_fast(std::string(levels, '&'), "");
  refused_fast(std::string(levels, '!'), "");
  refused_fast("a: " + std::string(levels, '"'), "");
  refused_fast(repeated("%YAML 1.2\n", levels), "");
  refused_fast(repeated("---\n", levels), "");
}

TEST_CASE("job file: what is no text, no YAML or no map is refused at its place") {
  CHECK(fails_at("", "1:1", "the file is empty"));
  CHECK(fails_at("# only a comment\n", "1:1", ""));
  CHECK(fails_at("name: \xff\n", "1:7", "not valid UTF-8"));
  CHECK(fails_at("name: j\nmodel: \xc0\xaf\n", "2:8", "not valid UTF-8"));
  CHECK(fails_at(std::string("name: j\n\0", 9), "2:1", "a control character (0)"));
  CHECK(fails_at("name: a\x1b[31m\n", "1:8", "a control character (27)"));
  CHECK(fails_at("- a\n- b\n", "1:1", "expected a job"));
  CHECK(fails_at("just words", "1:1", "expected a job"));
  CHECK(fails_at("name: [a\n", "2:1", ""));
  CHECK(fails_at("name: j\n\tmodel: m\n", "2:1", ""));
  CHECK(fails_at("name: j\n---\nname: k\n", "3:1", "a second document"));
  CHECK(fails_at("name: !!str j\n", "1:7", "tag `tag:yaml.org,2002:str`"));
  CHECK(fails_at("? [a]\n: b\n", "1:3", "a key that is a list or a map"));
  CHECK(fails_at("red_lines:\n  ttft_ms: >= 3\n", "2:13", "stands in quotes"));
}

TEST_CASE("job file: a byte order mark and Windows line ends are no trouble") {
  CHECK(parse("\xEF\xBB\xBFname: j\r\nmodel: {path: m}\r\nstages: {baseline: {}}\r\n")
            .spec.has_value());
  CHECK(fails_at("name: j\r\nmodel: {path: m}\r\nnmae: x\r\nstages: {baseline: {}}\r\n", "3:1",
                 "unknown key `nmae`"));
}
