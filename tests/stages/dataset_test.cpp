#include "stages/text/dataset.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "stages/model_io/files.h"

using namespace nightshift;

namespace {

struct TextFile {
  explicit TextFile(const std::string& text) {
    std::string pattern = "/tmp/nightshift-dataset-XXXXXX";
    folder = ::mkdtemp(pattern.data());
    path = folder + "/eval.jsonl";
    REQUIRE(write_file(path, text).ok());
  }
  ~TextFile() { std::filesystem::remove_all(folder); }
  std::string folder;
  std::string path;
};

const std::string chat_line = R"({"group": "qa", "messages": [{"role": "user", "content": "q"}]})"
                              "\n";
const std::string item_line =
    R"({"id": "a", "group": "qa", "messages": [{"role": "user", "content": "q"}],)"
    R"( "choices": ["x", "y"], "answer": 1})"
    "\n";

std::string choice_refusal(const std::string& text, DatasetLimits limits = {}) {
  const TextFile file(text);
  const auto items = read_choice_items(file.path, limits);
  REQUIRE_FALSE(items.ok());
  const std::string line = items.error().line();
  REQUIRE(line.find(file.path) == 0);
  return line.substr(file.folder.size() + 1);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("dataset: the sample files have the counts of their description") {
  const auto chats = read_chats("jobs/data/calibration.jsonl");
  REQUIRE(chats.ok());
  std::map<std::string, int> groups;
  for (const auto& sample : *chats) ++groups[sample.group];
  CHECK(chats->size() == 1024);
  CHECK(groups ==
        std::map<std::string, int>{{"code", 310}, {"qa", 310}, {"summary", 310}, {"zh", 94}});
  CHECK(chats->front().messages.size() == 2);
  CHECK(chats->front().messages.back().content == "Lua environment plug-in for GIMP");
  CHECK(read_chats("jobs/data/calibration-code-only.jsonl")->size() == 256);
  const auto items = read_choice_items("jobs/data/eval.jsonl");
  REQUIRE(items.ok());
  CHECK(items->size() == 653);
  CHECK(items->front().id == "qa-000");
  CHECK(items->front().choices.size() == 4);
  CHECK(items->front().answer == 0);
  CHECK(read_plain_text("jobs/data/heldout.txt")->size() == 177010);
}

TEST_CASE("dataset: a line that is not JSON is named by its number") {
  CHECK(has(choice_refusal(item_line + "\n\noops\n"), "eval.jsonl:4:1: not valid JSON"));
  CHECK(has(choice_refusal(item_line + item_line.substr(0, 40) + "\n"), "eval.jsonl:2:41: "));
  CHECK(has(choice_refusal(item_line + "[1]\n"), "eval.jsonl:2: the line is not a JSON object"));
  CHECK(has(choice_refusal("\xff\n"), "eval.jsonl:1: not UTF-8: byte 0xFF at offset 0"));
}

TEST_CASE("dataset: wrong members are named by their line") {
  const auto with = [](const std::string& from, const std::string& to) {
    return choice_refusal("\n" + replaced(item_line, from, to));
  };
  CHECK(has(with("\"answer\": 1", "\"answer\": 2"),
            "eval.jsonl:2: \"answer\": expected an integer from 0 to 1, found an integer 2"));
  CHECK(has(with("\"answer\": 1", "\"answer\": -1"), "\"answer\""));
  CHECK(has(with("\"answer\": 1", "\"answer\": \"y\""), "\"answer\""));
  CHECK(has(with(", \"answer\": 1", ""), "\"answer\" is missing"));
  CHECK(has(with("[\"x\", \"y\"]", "[\"x\"]"), "1 \"choices\""));
  CHECK(has(with("\"y\"]", "7]"), "\"choices\""));
  CHECK(has(with("\"y\"]", "\"\"]"), "\"choices\""));
  CHECK(has(with("\"id\": \"a\", ", ""), "\"id\" is missing"));
  CHECK(has(with("[{\"role\": \"user\", \"content\": \"q\"}]", "[]"), "\"messages\" is empty"));
  CHECK(has(with("\"user\"", "\"root\""), "\"role\": \"root\""));
  CHECK(has(with("\"content\": \"q\"", "\"content\": 7"), "\"content\""));
  CHECK(has(with("\"qa\"", "\"\""), "\"group\" is empty"));
  CHECK(has(with("\"qa\"", "7"), "\"group\""));
}

TEST_CASE("dataset: the same id twice names both lines") {
  const std::string line = choice_refusal(item_line + item_line);
  CHECK(has(line, "eval.jsonl:2: \"id\": \"a\" is already that of"));
  CHECK(has(line, "eval.jsonl:1"));
}

TEST_CASE("dataset: blank lines, CRLF and a missing last newline are fine") {
  const TextFile file("\n" + chat_line + "  \r\n" + chat_line.substr(0, chat_line.size() - 1) +
                      "\r\n\n" + chat_line.substr(0, chat_line.size() - 1));
  const auto chats = read_chats(file.path);
  REQUIRE(chats.ok());
  CHECK(chats->size() == 3);
  CHECK(chats->front().group == "qa");
}

TEST_CASE("dataset: a file without a sample is an error") {
  CHECK(has(choice_refusal(""), "no sample"));
  CHECK(has(choice_refusal("\n \n"), "no sample"));
  CHECK(read_chats("/nowhere/x.jsonl").error().code == ErrorCode::not_found);
}

TEST_CASE("dataset: lines and files are bounded") {
  CHECK(has(choice_refusal(item_line, {.file_bytes_max = 1000, .line_bytes_max = 20}),
            "eval.jsonl:1: the line has"));
  CHECK(has(choice_refusal(item_line, {.file_bytes_max = 10, .line_bytes_max = 20}),
            "at most 10 are read"));
}

TEST_CASE("dataset: plain text samples") {
  const TextFile file("{\"text\": \"a\\nb\"}\n{\"text\": \"c\", \"group\": \"zh\"}\n");
  const auto texts = read_texts(file.path);
  REQUIRE(texts.ok());
  CHECK(texts->size() == 2);
  CHECK(texts->front().text == "a\nb");
  CHECK(texts->front().group == "all");
  CHECK(texts->back().group == "zh");
  const TextFile empty("{\"text\": \"\"}\n");
  CHECK(has(read_texts(empty.path).error().line(), "eval.jsonl:1: \"text\" is empty"));
  const TextFile broken("abc\xff");
  CHECK(has(read_plain_text(broken.path).error().line(), "offset 3"));
}
