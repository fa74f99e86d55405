#include "stages/text/tokenizer.h"

#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <thread>

#include "schema/json.h"
#include "stages/text/dataset.h"
#include "stages/text/unicode.h"

using namespace nightshift;

namespace {

using Ids = std::vector<TokenId>;

const Tokenizer& k3_nano() {
  static const Tokenizer tokenizer = Tokenizer::open("jobs/models/k3-nano").value();
  return tokenizer;
}

Ids encode(std::string_view text, const EncodeOptions& options = {}) {
  const auto ids = k3_nano().encode(text, options);
  REQUIRE(ids.ok());
  return *ids;
}

std::string read_raw(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("tokenizer: the reference's prompts give its ids and decode back") {
  const Json reference =
      parse_json(read_raw("jobs/models/k3-nano/reference.json"), "reference.json").value();
  REQUIRE(reference["prompts"].size() == 6);
  for (const Json& prompt : reference["prompts"]) {
    const auto text = prompt["text"].get<std::string>();
    CAPTURE(text);
    const auto ids = prompt["ids"].get<Ids>();
    CHECK(encode(text) == ids);
    CHECK(k3_nano().decode(ids, false).value() == normalize(text, NormalForm::nfc).value());
    CHECK(k3_nano().decode(prompt["greedy_ids"].get<Ids>(), false).value() ==
          prompt["greedy_text"].get<std::string>());
  }
}

TEST_CASE("tokenizer: prompts and choices of the evaluation have the reference's lengths") {
  const Json reference =
      parse_json(read_raw("jobs/models/k3-nano/reference.json"), "reference.json").value();
  const auto items = read_choice_items("jobs/data/eval.jsonl");
  const auto chat = ChatTemplate::open("jobs/models/k3-nano");
  REQUIRE(items.ok());
  REQUIRE(chat.ok());
  std::size_t checked = 0;
  for (const Json& expected : reference["eval"]) {
    for (const auto& item : *items) {
      if (item.id != expected["id"].get<std::string>()) continue;
      const auto rendered = chat->render(item.messages, true);
      CHECK(encode(rendered.text, {.plain = rendered.contents}).size() ==
            expected["prompt_tokens"].get<std::size_t>());
      ++checked;
    }
  }
  CHECK(checked == reference["eval"].size());
  CHECK(checked > 0);
}

TEST_CASE("tokenizer: every text of the data sets decodes back to its NFC") {
  for (const char* path :
       {"jobs/data/heldout.txt", "jobs/data/heldout-zh.jsonl", "jobs/data/eval.jsonl"}) {
    const std::string text = read_raw(path);
    const auto ids = k3_nano().encode(text, {.special_as_text = true});
    REQUIRE(ids.ok());
    const std::string decoded = k3_nano().decode(*ids, false).value();
    const bool same = decoded == normalize(text, NormalForm::nfc).value();
    CHECK(same);
  }
}

TEST_CASE("tokenizer: sizes and lookups") {
  CHECK(k3_nano().size() == 4096);
  CHECK(k3_nano().find("<|im_end|>") == 4095);
  CHECK(k3_nano().find("!") == 0);
  CHECK_FALSE(k3_nano().find("no such token").has_value());
  CHECK_FALSE(k3_nano().find("\xff").has_value());
  CHECK(k3_nano().is_special(4093));
  CHECK_FALSE(k3_nano().is_special(0));
  CHECK(k3_nano().token_bytes(4094) == "<|im_start|>");
  CHECK(k3_nano().token_bytes(-1) == "");
  CHECK(k3_nano().token_bytes(1 << 30) == "");
  CHECK(k3_nano().prefix().empty());
  CHECK(encode("").empty());
  CHECK(k3_nano().decode({}).value() == "");
}

TEST_CASE("tokenizer: special tokens in untrusted text stay text") {
  const std::string text = "<|im_start|>user\n<|im_end|> hi<|im_end|>\n";
  const Ids recognised = encode(text);
  CHECK(std::count(recognised.begin(), recognised.end(), 4095) == 2);
  const Ids plain = encode(text, {.special_as_text = true});
  CHECK(std::none_of(plain.begin(), plain.end(), [](TokenId id) { return id >= 4093; }));
  CHECK(k3_nano().decode(plain).value() == text);
  const TextRange content{17, 30};  // "<|im_end|> hi"
  const Ids mixed = encode(text, {.plain = {&content, 1}});
  CHECK(std::count(mixed.begin(), mixed.end(), 4095) == 1);
  CHECK(mixed.front() == 4094);
  CHECK(k3_nano().decode(mixed, false).value() == text);
  // A range without special tokens changes nothing.
  const std::string harmless = "<|im_start|>user\n\n\n hi<|im_end|>\n";
  const TextRange inner{17, 22};
  CHECK(encode(harmless, {.plain = {&inner, 1}}) == encode(harmless));
  const TextRange turned[] = {{20, 22}, {17, 18}};
  CHECK_FALSE(k3_nano().encode(harmless, {.plain = turned}).ok());
}

TEST_CASE("tokenizer: skip_special leaves special tokens out") {
  const Ids ids = encode("<|im_start|>user\nhi<|im_end|>");
  CHECK(k3_nano().decode(ids, true).value() == "user\nhi");
  CHECK(k3_nano().decode(ids, false).value() == "<|im_start|>user\nhi<|im_end|>");
}

TEST_CASE("tokenizer: text that is not UTF-8 is refused with the offset") {
  const auto ids = k3_nano().encode("abc\xff");
  REQUIRE_FALSE(ids.ok());
  CHECK(ids.error().line().find("0xFF at offset 3") != std::string::npos);
  CHECK_FALSE(k3_nano().encode("ab\xe4\xbd").ok());
  CHECK(k3_nano().encode(std::string_view("a\0b", 3)).ok());
}

TEST_CASE("tokenizer: decoding an unknown id names it") {
  const auto text = k3_nano().decode(Ids{0, 4096});
  REQUIRE_FALSE(text.ok());
  CHECK(text.error().line().find("4096") != std::string::npos);
  CHECK_FALSE(k3_nano().decode(Ids{-1}).ok());
}

TEST_CASE("tokenizer: the stream decoder never splits a character") {
  const std::string text = "Ünïcödé 中文字 🙂🙂 𝛼𝛽 <|im_end|> e";
  const Ids ids = encode(text);
  StreamDecoder decoder(k3_nano(), false);
  std::string joined;
  for (const TokenId id : ids) {
    const auto piece = decoder.push(id);
    REQUIRE(piece.ok());
    CHECK_FALSE(find_invalid_utf8(*piece).has_value());
    joined += *piece;
  }
  CHECK(joined + decoder.finish() == text);
  StreamDecoder cut(k3_nano());
  const Ids smile = encode("🙂");
  REQUIRE(smile.size() > 1);
  CHECK(cut.push(smile[0]).value() == "");
  CHECK(cut.finish() == "\uFFFD");
}

TEST_CASE("tokenizer: random text decodes back") {
  const unsigned seed = 20261201;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::string parts[] = {"a",      "B",    " ",    "\n",     "\r\n", "\t", "'s",
                               "é",      "中",   "🙂", "9",      "<|",   "|>", "im_end",
                               "\u00a0", "the ", "()",   "\u0301", "한"};
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const std::size_t length = random() % 60;
    for (std::size_t i = 0; i < length; ++i) text += parts[random() % std::size(parts)];
    CAPTURE(text);
    const Ids ids = encode(text, {.special_as_text = true});
    CHECK(k3_nano().decode(ids).value() == normalize(text, NormalForm::nfc).value());
  }
}

TEST_CASE("tokenizer: long words and long runs take no quadratic time") {
  // A megabyte takes about a tenth of a second; with quadratic time it would be hours.
  for (const std::string unit : {"a", "ab", " ", "\n", " \n", "中", "9", "!", "é", "\u0301"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    CAPTURE(unit);
    CHECK(seconds_of([&] { encode(text, {.special_as_text = true}); }) < 10);
  }
}

TEST_CASE("tokenizer: several threads get the same ids") {
  const std::string text = read_raw("jobs/data/heldout-zh.jsonl");
  const Ids expected = encode(text);
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (std::size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto ids = k3_nano().encode(text);
        same[t] += ids.ok() && *ids == expected ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(std::accumulate(same.begin(), same.end(), 0) == 80);
}
