#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "schema/json.h"
#include "stages/text/byte_map.h"
#include "stages/text/tokenizer.h"

using namespace nightshift;

namespace {

using Ids = std::vector<TokenId>;
using Change = std::function<void(Json&)>;

// The 256 bytes as ids 0-255 (so 'a' is 97), "ab" 256, "abc" 257, " a" 258, "bc" 259.
Json small_tokenizer() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocab[bytes_to_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  vocab["Ġa"] = 258;
  vocab["bc"] = 259;
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocab},
            {"merges", Json::array({"a b", "ab c", "Ġ a", "b c"})}}}};
}

Result<Tokenizer> load(const Change& change) {
  Json json = small_tokenizer();
  change(json);
  return Tokenizer::parse(dump_json(json), "tokenizer.json");
}

std::string refusal(const Change& change) {
  const auto tokenizer = load(change);
  REQUIRE_FALSE(tokenizer.ok());
  const std::string line = tokenizer.error().line();
  CHECK(line.find("tokenizer.json") == 0);
  return line;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Json added(TokenId id, const char* content, const std::vector<const char*>& flags) {
  Json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  for (const char* flag : flags) token[flag] = true;
  return token;
}

Ids encode_with(const Json& added_tokens, std::string_view text) {
  const auto tokenizer = load([&](Json& json) { json["added_tokens"] = added_tokens; });
  REQUIRE(tokenizer.ok());
  const auto ids = tokenizer->encode(text);
  REQUIRE(ids.ok());
  return *ids;
}

}  // namespace

TEST_CASE("tokenizer file: merges go by rank, leftmost first") {
  const auto tokenizer = load([](Json&) {});
  REQUIRE(tokenizer.ok());
  CHECK(tokenizer->encode("abc").value() == Ids{257});
  CHECK(tokenizer->encode("bca").value() == Ids{259, 97});
  CHECK(tokenizer->encode("abab").value() == Ids{256, 256});
  CHECK(tokenizer->encode("xab abc").value() == Ids{'x', 256, 32, 257});
  CHECK(tokenizer->encode("ab ab").value() == Ids{256, 32, 256});  // "a b" ranks before "Ġ a"
}

TEST_CASE("tokenizer file: merges as pairs and as text give the same") {
  const auto pairs = load([](Json& json) {
    json["model"]["merges"] = Json::parse(R"([["a", "b"], ["ab", "c"], ["Ġ", "a"], ["b", "c"]])");
  });
  REQUIRE(pairs.ok());
  for (const char* text : {"abc", "bca", "xab abc", "aabbcc"}) {
    CHECK(pairs->encode(text).value() == load([](Json&) {})->encode(text).value());
  }
}

TEST_CASE("tokenizer file: ignore_merges takes a whole piece from the vocabulary") {
  const auto change = [](Json& json) {
    json["model"]["vocab"]["zz"] = 260;
    json["model"]["ignore_merges"] = true;
  };
  CHECK(load(change)->encode("zz zz").value() == Ids{260, 32, 'z', 'z'});
  CHECK(load([&](Json& json) {
          change(json);
          json["model"]["ignore_merges"] = false;
        })
            ->encode("zz")
            .value() == Ids{'z', 'z'});
  // But never a special token out of plain text.
  const auto special = load([&](Json& json) {
    change(json);
    json["added_tokens"] = Json::array({added(260, "zz", {"special"})});
  });
  CHECK(special->encode("zz").value() == Ids{260});
  CHECK(special->encode("zz", {.special_as_text = true}).value() == Ids{'z', 'z'});
}

TEST_CASE("tokenizer file: no merges is an error") {
  CHECK(has(refusal([](Json& json) { json["model"]["merges"] = Json::array(); }),
            "\"merges\" is empty"));
  CHECK(has(refusal([](Json& json) { json["model"].erase("merges"); }), "\"merges\" is missing"));
}

TEST_CASE("tokenizer file: bad merges are named by their place") {
  const Json bad = Json::parse(R"(["ab", "a b c", "a  b", 7, ["a"], ["a", 1]])");
  for (const Json& merge : bad) {
    CAPTURE(dump_json(merge));
    CHECK(has(refusal([&](Json& json) { json["model"]["merges"][1] = merge; }),
              "entry 1 is neither"));
  }
  CHECK(has(refusal([](Json& json) { json["model"]["merges"][2] = "q r"; }),
            "entry 2 needs \"qr\", which is not in the vocabulary"));
  CHECK(has(refusal([](Json& json) { json["model"]["merges"][2] = "中 r"; }),
            "entry 2 needs \"中\""));
}

TEST_CASE("tokenizer file: switches that change the ids are refused by name") {
  const auto with = [](const char* key, const Json& value) {
    return refusal([&](Json& json) { json["model"][key] = value; });
  };
  CHECK(has(with("byte_fallback", true), "\"byte_fallback\" is not supported"));
  CHECK(has(with("dropout", 0.1), "\"dropout\" is not supported"));
  CHECK(has(with("continuing_subword_prefix", "##"), "\"continuing_subword_prefix\""));
  CHECK(has(with("end_of_word_suffix", "</w>"), "\"end_of_word_suffix\""));
  CHECK(has(with("type", "Unigram"), "\"Unigram\" is not supported"));
  CHECK(has(refusal([](Json& json) {
              json["model"]["unk_token"] = "a";
              json["model"]["vocab"].erase("z");
            }),
            "\"unk_token\" is not supported"));
  CHECK(load([](Json& json) { json["model"]["unk_token"] = "a"; }).ok());
  CHECK(has(refusal([](Json& json) {
              json["normalizer"] = {{"type", "Lowercase"}};
            }),
            "Lowercase"));
  CHECK(has(refusal([](Json& json) {
              json["pre_tokenizer"] = {{"type", "Metaspace"}};
            }),
            "Metaspace"));
  CHECK(has(refusal([](Json& json) { json["pre_tokenizer"] = nullptr; }), "pre_tokenizer"));
  CHECK(has(refusal([](Json& json) {
              json["pre_tokenizer"] = {{"type", "Digits"}};
            }),
            "no ByteLevel step"));
  CHECK(has(refusal([](Json& json) { json["decoder"] = {{"type", "WordPiece"}}; }), "WordPiece"));
  CHECK(has(refusal([](Json& json) { json["post_processor"] = {{"type", "Other"}}; }), "Other"));
}

TEST_CASE("tokenizer file: bad vocabularies are refused") {
  const auto with = [](const char* token, const Json& id) {
    return refusal([&](Json& json) { json["model"]["vocab"][token] = id; });
  };
  CHECK(has(with("q", -1), "id of \"q\""));
  CHECK(has(with("q", "1"), "id of \"q\""));
  CHECK(has(with("q", 1e18), "id of \"q\""));
  CHECK(has(with("qq", 5), "id 5 has two tokens"));
  CHECK(has(with("qq", 16'000'000), "largest id is 16000000"));
  CHECK(has(with("", 300), "empty token"));
  CHECK(has(refusal([](Json& json) { json["model"].erase("vocab"); }), "\"vocab\" is missing"));
  CHECK(has(refusal([](Json& json) { json.erase("model"); }), "\"model\" is missing"));
  CHECK_FALSE(Tokenizer::parse("[]", "tokenizer.json").ok());
  CHECK_FALSE(Tokenizer::parse("", "tokenizer.json").ok());
  CHECK(Tokenizer::load("/nowhere/tokenizer.json").error().code == ErrorCode::not_found);
}

TEST_CASE("tokenizer file: a byte without a token is told when it comes up") {
  const auto tokenizer = load([](Json& json) { json["model"]["vocab"].erase("z"); });
  REQUIRE(tokenizer.ok());
  CHECK(tokenizer->encode("abc").ok());
  CHECK(has(tokenizer->encode("z").error().line(), "no token for the byte 0x7A"));
}

TEST_CASE("tokenizer file: bad added tokens are refused") {
  const auto with = [](const Json& tokens) {
    return refusal([&](Json& json) { json["added_tokens"] = tokens; });
  };
  CHECK(has(with(Json::array({added(300, "", {})})), "has 0 bytes"));
  CHECK(has(with(Json::array({added(-1, "<x>", {})})), "\"id\""));
  CHECK(has(with(Json::array({added(97, "<x>", {})})), "id 97 of another token"));
  CHECK(has(with(Json::array({added(300, "<x>", {}), added(300, "<y>", {})})), "twice"));
  CHECK(has(with(Json::array({added(300, "<x>", {}), added(301, "<x>", {})})), "twice"));
  CHECK(has(with(Json::parse(R"([{"id": 300}])")), "\"content\" is missing"));
  CHECK(has(with(Json::object()), "not an array"));
}

// Right values by the rules of the reference implementation: the match takes the white space along
// (lstrip, rstrip), or is passed over where a word character touches it (single_word).
TEST_CASE("added tokens: table of flags") {
  struct Row {
    std::vector<const char*> flags;
    const char* text;
    Ids ids;
  };
  const std::vector<Row> rows = {
      {{}, "x <t> y", {'x', ' ', 300, ' ', 'y'}},
      {{}, "x<t>y", {'x', 300, 'y'}},
      {{}, "<t><t>", {300, 300}},
      {{"lstrip"}, "x \n <t> y", {'x', 300, ' ', 'y'}},
      {{"lstrip"}, " <t>", {300}},
      {{"rstrip"}, "x <t> \n y", {'x', ' ', 300, 'y'}},
      {{"rstrip"}, "<t>y", {300, 'y'}},
      {{"rstrip"}, "<t> <t>", {300, 300}},
      {{"lstrip", "rstrip"}, "x  <t>  y", {'x', 300, 'y'}},
      {{"lstrip", "rstrip"}, "x\u3000<t>\u00a0y", {'x', 300, 'y'}},
      {{"single_word"}, "x <t> y", {'x', ' ', 300, ' ', 'y'}},
      {{"single_word"}, "x<t> y", {'x', '<', 't', '>', ' ', 'y'}},
      {{"single_word"}, "x <t>y", {'x', ' ', '<', 't', '>', 'y'}},
      {{"single_word"}, "(<t>)", {'(', 300, ')'}},
      {{"single_word"}, "é<t>", {0xc3, 0xa9, '<', 't', '>'}},
      {{"normalized"}, "x<t>y", {'x', 300, 'y'}},
      {{"special", "rstrip"}, "<t>  y", {300, 'y'}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.text);
    CHECK(encode_with(Json::array({added(300, "<t>", row.flags)}), row.text) == row.ids);
  }
}

TEST_CASE("added tokens: the longest wins where several begin, and raw ones go first") {
  const Json tokens =
      Json::array({added(300, "<t", {}), added(301, "<t>x", {}), added(302, "<t>", {})});
  CHECK(encode_with(tokens, "<t>x<t>y<ty<") == Ids{301, 302, 'y', 300, 'y', '<'});
  // The normalized one begins further left, but is looked for in what the raw one has left.
  const Json two = Json::array({added(300, "ab<", {"normalized"}), added(301, "<t>", {})});
  CHECK(encode_with(two, "ab<t>ab<") == Ids{256, 301, 300});
}

TEST_CASE("added tokens: normalized ones are found in the normalized text") {
  const auto with = [](std::vector<const char*> flags) {
    return load([&](Json& json) {
      json["normalizer"] = {{"type", "NFC"}};
      json["added_tokens"] = Json::array({added(300, "é", flags)});
    });
  };
  CHECK(with({"normalized"})->encode("e\u0301").value() == Ids{300});
  CHECK(with({"normalized"})->encode("é").value() == Ids{300});
  CHECK(with({})->encode("é").value() == Ids{300});
  CHECK(with({})->encode("e\u0301").value() == Ids{0xc3, 0xa9});
}

TEST_CASE("tokenizer file: exactly one BOS, whoever puts it") {
  const Json post = Json::parse(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}},
                 {"SpecialToken": {"id": "</s>", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [300]},
                         "</s>": {"id": "</s>", "ids": [301]}}})");
  const auto tokenizer = load([&](Json& json) {
    json["added_tokens"] =
        Json::array({added(300, "<s>", {"special"}), added(301, "</s>", {"special"})});
    json["post_processor"] = post;
  });
  REQUIRE(tokenizer.ok());
  CHECK(tokenizer->prefix() == Ids{300});
  const EncodeOptions special{.add_special = true};
  CHECK(tokenizer->encode("x", special).value() == Ids{300, 'x', 301});
  CHECK(tokenizer->encode("<s>x", special).value() == Ids{300, 'x', 301});
  CHECK(tokenizer->encode("<s>x</s>", special).value() == Ids{300, 'x', 301});
  CHECK(tokenizer->encode("<s>x").value() == Ids{300, 'x'});
  CHECK(tokenizer->encode("x").value() == Ids{'x'});
  CHECK(tokenizer->encode("", special).value() == Ids{300, 301});
  CHECK(has(refusal([&](Json& json) { json["post_processor"] = post; }), "token 300"));
}

TEST_CASE("tokenizer file: splitters and their behaviors") {
  // Pieces show through: "ab" merges only within one.
  const auto with = [](const char* pattern, const char* behavior, bool invert) {
    return load([&](Json& json) {
      const Json split = {{"type", "Split"},
                          {"pattern", {{"String", pattern}}},
                          {"behavior", behavior},
                          {"invert", invert}};
      const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
      json["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", Json::array({split, level})}};
    });
  };
  CHECK(with("b", "Isolated", false)->encode("abc").value() == Ids{'a', 'b', 'c'});
  CHECK(with("b", "Removed", false)->encode("abc").value() == Ids{'a', 'c'});
  CHECK(with("b", "Removed", true)->encode("abc").value() == Ids{'b'});
  CHECK(with("b", "MergedWithPrevious", false)->encode("abc").value() == Ids{256, 'c'});
  CHECK(with("b", "MergedWithNext", false)->encode("abc").value() == Ids{'a', 259});
  CHECK(with("b", "Contiguous", false)->encode("abbc").value() == Ids{'a', 'b', 'b', 'c'});
  CHECK(with("x", "Isolated", false)->encode("abc").value() == Ids{257});
  CHECK_FALSE(with("x", "Sideways", false).ok());
}

TEST_CASE("tokenizer file: add_prefix_space") {
  const auto tokenizer = load([](Json& json) { json["pre_tokenizer"]["add_prefix_space"] = true; });
  CHECK(tokenizer->encode("ac").value() == Ids{258, 'c'});
  CHECK(tokenizer->encode(" ac").value() == Ids{258, 'c'});
}

TEST_CASE("tokenizer file: truncation at every byte is an error, never a crash") {
  const std::string text = dump_json(small_tokenizer());
  for (std::size_t size = 0; size < text.size(); size += 7) {
    CHECK_FALSE(Tokenizer::parse(text.substr(0, size), "tokenizer.json").ok());
  }
}
