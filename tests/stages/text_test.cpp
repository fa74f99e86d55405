#include <doctest/doctest.h>

#include <chrono>

#include "stages/text/byte_map.h"
#include "stages/text/regex.h"
#include "stages/text/unicode.h"
#include "stages/text/utf8.h"

using namespace nightshift;

namespace {

std::string matches(const char* pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern, "test");
  REQUIRE(regex.ok());
  std::vector<Regex::Match> found;
  REQUIRE(regex->find_all(text, found).ok());
  std::string out;
  for (const auto& match : found) {
    out += "<" + std::string(text.substr(match.begin, match.end - match.begin)) + ">";
  }
  return out;
}

std::string nfc(std::string_view text) {
  return normalize(text, NormalForm::nfc).value();
}

}  // namespace

TEST_CASE("utf8: the boundaries of the well-formed ranges") {
  for (const char* good : {"", "a", "\u007f", "\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000",
                           "\uffff", "\U00010000", "\U0010ffff"}) {
    CHECK_FALSE(find_invalid_utf8(good).has_value());
  }
  // Overlong, surrogate, beyond U+10FFFF, lone continuation, cut short.
  for (const char* bad :
       {"\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\x80", "\xff", "\xe4\xbd"}) {
    CHECK(find_invalid_utf8(std::string("ab") + bad + "c") == 2);
  }
  CHECK(check_utf8("ab\xff", "f").error().line() == "f: not UTF-8: byte 0xFF at offset 2");
}

TEST_CASE("utf8: code points are taken apart and put together") {
  std::string text;
  for (const std::uint32_t code : {0x41u, 0xe9u, 0x4e2du, 0x1f642u}) append_utf8(text, code);
  CHECK(text == "Aé中🙂");
  std::size_t at = 0;
  CHECK(next_code_point(text, at) == 0x41);
  CHECK(next_code_point(text, at) == 0xe9);
  CHECK(next_code_point(text, at) == 0x4e2d);
  CHECK(next_code_point(text, at) == 0x1f642);
  CHECK(at == text.size());
}

TEST_CASE("utf8: a stream never splits a character") {
  const std::string text = "aé中🙂z";
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      Utf8Stream stream;
      std::string out;
      for (const auto& part :
           {text.substr(0, first), text.substr(first, second - first), text.substr(second)}) {
        const std::string piece = stream.push(part);
        CHECK_FALSE(find_invalid_utf8(piece).has_value());
        out += piece;
      }
      CHECK(out + stream.finish() == text);
    }
  }
}

TEST_CASE("utf8: a stream replaces each maximal part, as the Unicode standard shows") {
  // Table 3-8 of the standard: E1 80 | E2 | F0 91 92 | F1 BF, then 41.
  Utf8Stream stream;
  CHECK(stream.push("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41") ==
        "\uFFFD\uFFFD\uFFFD\uFFFD"
        "A");
  CHECK(stream.push("\xc0\xaf") == "\uFFFD\uFFFD");
  CHECK(stream.push("\xf0\x9f") == "");
  CHECK(stream.finish() == "\uFFFD");
  CHECK(stream.finish() == "");
}

TEST_CASE("byte map: the alphabet of GPT-2") {
  CHECK(bytes_to_alphabet(" a\n") == "ĠaĊ");
  CHECK(bytes_to_alphabet("\xad") == "Ń");  // the last of the shifted ones
  CHECK(bytes_to_alphabet("中") == "ä¸Ń");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(alphabet_to_bytes(bytes_to_alphabet(all)) == all);
  CHECK_FALSE(alphabet_to_bytes("a b").has_value());
  CHECK_FALSE(alphabet_to_bytes("中").has_value());
}

TEST_CASE("unicode: normal forms of the standard's examples") {
  CHECK(nfc("e\u0301") == "é");
  CHECK(nfc("\u212b") == "\u00c5");  // Angstrom sign
  CHECK(nfc("\u1e9b\u0323") == "\u1e9b\u0323");
  CHECK(nfc("\u1100\u1161\u11a8") == "\uac01");  // Hangul
  CHECK(nfc("a\u0315\u0300\u05ae\u0300b") ==
        "\u00e0\u05ae\u0300\u0315"
        "b");
  CHECK(nfc("\u0958") == "\u0915\u093c");  // excluded from composition
  CHECK(normalize("\u1e9b\u0323", NormalForm::nfkc).value() == "\u1e69");
  CHECK(normalize("\ufb01", NormalForm::nfkd).value() == "fi");
  CHECK(normalize("é", NormalForm::nfd).value() == "e\u0301");
}

TEST_CASE("unicode: the quick look at NFC claims nothing false") {
  CHECK(is_plain_in_nfc("Grüße, 中文。 한국어 かな “quoted” € ！"));
  CHECK_FALSE(is_plain_in_nfc("e\u0301"));
  CHECK_FALSE(is_plain_in_nfc("\u2000"));
  for (std::uint32_t code = 1; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string text = "e";
    append_utf8(text, code);
    if (is_plain_in_nfc(text) && nfc(text) != text) FAIL_CHECK("U+", code);
  }
}

TEST_CASE("unicode: a hostile run of combining marks takes no quadratic time") {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const auto start = std::chrono::steady_clock::now();
  const std::string out = nfc(text);
  const auto taken = std::chrono::steady_clock::now() - start;
  CHECK(out.size() > 300'000);
  CHECK(taken < std::chrono::seconds(2));
}

TEST_CASE("regex: white space is Unicode's, as in Oniguruma") {
  CHECK(matches(R"(\s+)", "a\u0085\u00a0\u3000b\u180ec") == "<\u0085\u00a0\u3000>");
  CHECK(matches(R"(\S+)", "a b") == "<a><b>");
  CHECK(matches(R"([^\s\p{L}]+)", "a, b!") == "<,><!>");
  CHECK(matches(R"(\p{L}+|\p{N}{1,3})", "añb12345") == "<añb><123><45>");
  CHECK(matches(R"((?i:'s|'ll))", "it'S, we'LL") == "<'S><'LL>");
}

TEST_CASE("regex: what the two libraries read differently is refused") {
  for (const char* pattern :
       {R"(\w+)", R"(\bx)", R"(\p{N}{1,3}+)", R"([a[b]])", R"([a&&b])", R"([\S])", R"(\h)"}) {
    CAPTURE(pattern);
    const auto regex = Regex::compile(pattern, "test");
    REQUIRE_FALSE(regex.ok());
    CHECK(regex.error().code == ErrorCode::unsupported);
  }
  CHECK(Regex::compile("(", "test").error().code == ErrorCode::invalid_argument);
  CHECK_FALSE(Regex::compile("", "test").ok());
  CHECK_FALSE(Regex::compile(std::string(1 << 20, 'a'), "test").ok());
  CHECK_FALSE(Regex::compile("[[:alpha", "test").ok());
  CHECK_FALSE(Regex::compile("\\", "test").ok());
}

TEST_CASE("regex: a literal is no pattern") {
  const auto regex = Regex::compile_literal("a.b[\\Ü", "test");
  REQUIRE(regex.ok());
  std::vector<Regex::Match> found;
  REQUIRE(regex->find_all("xa.b[\\Üx axb", found).ok());
  REQUIRE(found.size() == 1);
  CHECK(found[0].begin == 1);
}

TEST_CASE("regex: a match beyond the limit is an error, not a crash") {
  const auto regex = Regex::compile("(?:(?:a|aa)+)+c", "test");
  REQUIRE(regex.ok());
  std::vector<Regex::Match> found;
  const auto status = regex->find_all(std::string(5000, 'a') + "dc", found);
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == ErrorCode::invalid_argument);
  CHECK(status.error().line().find("cannot be matched at byte 0") != std::string::npos);
}

TEST_CASE("regex: empty matches end") {
  CHECK(matches("x*", "aéxx") == "<xx>");
}
