#include "schema/json.h"

#include <doctest/doctest.h>

#include <limits>

using nightshift::dump_json;
using nightshift::dump_json_pretty;
using nightshift::ErrorCode;
using nightshift::Json;
using nightshift::JsonReader;
using nightshift::parse_json;

namespace {

// What went wrong, as a user reads it: "where: what".
std::string parse_failure(std::string_view text, std::size_t first_line = 1) {
  const auto parsed = parse_json(text, "f.json", first_line);
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.error().code == ErrorCode::invalid_argument);
  return parsed.error().line();
}

bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string nested(std::size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

}  // namespace

TEST_CASE("json: values of every kind are read") {
  const auto parsed = parse_json(
      R"({"s": "ä\u00e4\ud83d\ude42", "i": -5, "u": 18446744073709551615, "f": 0.5,
          "b": true, "n": null, "a": [1, [], {}], "o": {"x": {"y": []}}})",
      "f.json");
  REQUIRE(parsed.ok());
  const Json& value = *parsed;
  CHECK(value["s"] == "ää🙂");
  CHECK(value["i"] == -5);
  CHECK(value["u"] == std::numeric_limits<std::uint64_t>::max());
  CHECK(value["f"] == 0.5);
  CHECK(value["b"] == true);
  CHECK(value["n"].is_null());
  CHECK(dump_json(value["a"]) == "[1,[],{}]");
  CHECK(dump_json(value["o"]) == R"({"x":{"y":[]}})");
  CHECK(parse_json(" 7 ", "f").value() == 7);
}

TEST_CASE("json: errors name file, line and column") {
  CHECK(starts_with(parse_failure("{\"a\": 1,\n  oops}"), "f.json:2:3: not valid JSON: "));
  CHECK(starts_with(parse_failure("{\"a\" 1}", 12), "f.json:12:6: "));
  CHECK(starts_with(parse_failure("{\"a\": 1} x"), "f.json:1:10: "));
  CHECK(contains(parse_failure("{\"a\": 1"), "unexpected end of input"));
  CHECK(starts_with(parse_failure(""), "f.json:1:1: "));
  parse_failure("[1,]");
  parse_failure("[NaN]");
  parse_failure("[1e999]");
  parse_failure("\"\xff\"");
  parse_failure("\"\xed\xa0\x80\"");
  parse_failure(std::string_view("[1]\0", 4));
}

TEST_CASE("json: a long bad token does not make a long message") {
  CHECK(parse_failure("{\"" + std::string(1'000'000, 'x') + "\n\": 1}").size() < 400);
}

TEST_CASE("json: duplicate keys are refused at the second one") {
  CHECK(starts_with(parse_failure("{\"a\": 1,\n \"b\": {\"x\": 1, \"x\": 2}}"),
                    "f.json:2:16: not valid JSON: key \"x\" appears twice"));
  CHECK(starts_with(parse_failure(R"({"a\"b": 1, "a\"b": 2})"), "f.json:1:13: "));
  CHECK(parse_json(R"([{"x": 1}, {"x": 2}, {"y": {"x": 3}, "x": 4}])", "f").ok());
  CHECK(parse_json(R"({"x": 1, "x": 2})", "f", 1, {.refuse_duplicate_keys = false}).value()["x"] ==
        2);
}

TEST_CASE("json: nesting is bounded while parsing") {
  CHECK(parse_json(nested(64), "f").ok());
  CHECK(contains(parse_failure(nested(65)), "f.json:1:65: not valid JSON: nested deeper than 64"));
  CHECK(contains(parse_failure(std::string(5'000'000, '[')), "nested deeper"));
  CHECK(parse_json(nested(100), "f", 1, {.depth_max = 100}).ok());
}

TEST_CASE("json: truncation at every byte is an error") {
  const std::string text = R"({"a": [1, 2.5e3, "x\u00e4", true, null], "b": {"c": "é"}})";
  REQUIRE(parse_json(text, "f").ok());
  for (std::size_t size = 0; size < text.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(parse_json(text.substr(0, size), "f").ok());
  }
}

TEST_CASE("json: dump replaces invalid UTF-8 instead of throwing") {
  CHECK(dump_json(Json{{"a", "x\xff"}}) == "{\"a\":\"x\xEF\xBF\xBD\"}");
  CHECK(dump_json_pretty(Json{{"a", 1}}) == "{\n  \"a\": 1\n}\n");
}

TEST_CASE("json reader: typed members") {
  const Json value = parse_json(R"({"s": "x", "i": 7, "w": 4096.0, "f": 1.5, "b": false,
                                    "n": null, "o": {}, "a": []})",
                                "f")
                         .value();
  const JsonReader reader(value, "config.json");
  CHECK(reader.string("s").value() == "x");
  CHECK(reader.integer("i").value() == 7);
  CHECK(reader.integer("w").value() == 4096);
  CHECK(reader.number("i").value() == 7.0);
  CHECK(reader.boolean("b").value() == false);
  CHECK(reader.object("o").value()->is_object());
  CHECK(reader.array("a").value()->is_array());
  CHECK(reader.string_or("absent", "d").value() == "d");
  CHECK(reader.integer_or("n", 3).value() == 3);
  CHECK(reader.number_or("absent", 0.5).value() == 0.5);
  CHECK(reader.boolean_or("n", true).value() == true);
  CHECK(reader.has("s"));
  CHECK_FALSE(reader.has("n"));
  CHECK_FALSE(reader.has("absent"));
}

TEST_CASE("json reader: errors name key, expectation and finding") {
  const Json value =
      parse_json(R"({"s": "x", "i": 7, "f": 1.5, "big": 18446744073709551615})", "f").value();
  const JsonReader reader(value, "config.json");
  CHECK(reader.string("i").error().line() ==
        "config.json: \"i\": expected a string, found an integer 7");
  CHECK(reader.string("absent").error().line() ==
        "config.json: \"absent\" is missing: expected a string");
  CHECK(reader.integer("i", 8, 9).error().line() ==
        "config.json: \"i\": expected an integer from 8 to 9, found an integer 7");
  CHECK_FALSE(reader.integer("f").ok());
  CHECK_FALSE(reader.integer("big").ok());
  CHECK_FALSE(reader.integer_or("s", 1).ok());
  CHECK_FALSE(reader.number_or("s", 1.0).ok());
  CHECK_FALSE(reader.boolean_or("s", true).ok());
  CHECK_FALSE(reader.object("s").ok());
  CHECK_FALSE(reader.array("s").ok());
  const Json list = Json::array();
  CHECK_FALSE(JsonReader(list, "f").string_or("s", "d").ok());
  CHECK_FALSE(JsonReader(list, "f").has("s"));
}
