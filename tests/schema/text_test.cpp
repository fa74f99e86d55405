// UTF-8, names, and suggestions for mistyped words.
#include "schema/text.h"

#include <doctest/doctest.h>

#include <string>

#include "schema/job_spec.h"

using namespace nightshift;

TEST_CASE("utf-8: valid and invalid sequences of the Unicode standard, table 3-7") {
  for (const char* good : {"", "a", "ü", "夜", "🌙", "\xEF\xBF\xBF", "\xF4\x8F\xBF\xBF"}) {
    CHECK(is_utf8(good));
  }
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xE0\x80\x80", "\xE0\xA0",
                          "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80",
                          "\xF5\x80\x80\x80", "\xFF", "ok \xFE"}) {
    CHECK_FALSE(is_utf8(bad));
    CHECK(is_utf8(to_utf8(bad)));
  }
  CHECK(first_invalid_utf8("ab\xFF") == 2);
  CHECK(to_utf8("a\xFF\xC3z") == "a\xEF\xBF\xBD\xEF\xBF\xBDz");
}

TEST_CASE("utf-8: clipping never cuts a character") {
  CHECK(clip_utf8("aü", 3) == "aü");
  CHECK(clip_utf8("aü", 2) == "a");
  CHECK(clip_utf8("夜夜", 5) == "夜");
  CHECK(clip_utf8("夜", 0) == "");
  for (std::size_t bytes = 0; bytes < 12; ++bytes) {
    const std::string clipped = clip_utf8("a\xFFü夜🌙", bytes);
    CHECK(clipped.size() <= bytes);
    CHECK(is_utf8(clipped));
  }
}

TEST_CASE("names: for people, and for stages") {
  CHECK(is_name("k3 夜", 128));
  for (const char* bad : {"", "a\nb", "a\tb", "\x7F", "\xFF"}) CHECK_FALSE(is_name(bad, 128));
  CHECK_FALSE(is_name("abc", 2));
  CHECK(is_stage_name("a-z_09"));
  CHECK(is_stage_name(std::string(64, 'a')));
  for (const char* bad : {"", "A", "a b", "a/b", "..", "ü"}) CHECK_FALSE(is_stage_name(bad));
  CHECK_FALSE(is_stage_name(std::string(65, 'a')));
}

TEST_CASE("did you mean: slips are found, guesses are not made") {
  const std::vector<std::string> stages = {"baseline", "calibrate", "quantize", "fuse", "soak"};
  const std::pair<const char*, const char*> rows[] = {
      {"qunatize", "quantize"}, {"quantise", "quantize"},  {"Quantize", "quantize"},
      {"calibarte", "calibrate"}, {"fues", "fuse"},        {"fusee", "fuse"},
      {"baselines", "baseline"}, {"soke", ""},             {"x", ""},
      {"", ""},                 {"evaluate", ""},          {"zzzzzzzz", ""}};
  for (const auto& [word, expected] : rows)
    CHECK_MESSAGE(did_you_mean(word, stages) == expected, word);
  CHECK(did_you_mean("ab", {"ba"}) == "ba");
  CHECK(did_you_mean("a", {"b"}) == "");
  CHECK(did_you_mean(std::string(1'000'000, 'a'), stages) == "");
  CHECK(did_you_mean("needs", {}) == "");
}
