#include "stages/text/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "schema/json.h"
#include "stages/text/byte_map.h"

namespace nightshift {
namespace {

constexpr int sequence_depth_max = 8;
constexpr std::size_t steps_max = 64;

// The pattern that ByteLevel brings along.
constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view digit_pattern = R"(\p{N})";
// ASCII punctuation in the wide sense, and Unicode's category P.
constexpr std::string_view punctuation_pattern = R"([!-/:-@\[-`{-~\p{P}])";

constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> behaviors = {{
    {"Removed", SplitBehavior::removed},
    {"Isolated", SplitBehavior::isolated},
    {"MergedWithPrevious", SplitBehavior::merged_with_previous},
    {"MergedWithNext", SplitBehavior::merged_with_next},
    {"Contiguous", SplitBehavior::contiguous},
}};

Result<SplitBehavior> read_behavior(const JsonReader& reader, const std::string& where,
                                    const char* fallback) {
  NS_TRY_ASSIGN(const std::string name, reader.string_or("behavior", fallback));
  for (const auto& [known, behavior] : behaviors) {
    if (name == known) return behavior;
  }
  return Error{ErrorCode::unsupported,
               fmt::format("pre_tokenizer behavior \"{}\" is not supported", name.substr(0, 80)),
               where, ""};
}

struct Span {
  std::size_t begin;
  std::size_t end;
  bool is_match;
};

// The matches and what lies between them: together the whole text.
std::vector<Span> cover(const std::vector<Regex::Match>& matches, std::size_t size, bool invert) {
  std::vector<Span> spans;
  std::size_t at = 0;
  for (const auto& match : matches) {
    if (match.begin > at) spans.push_back({at, match.begin, invert});
    spans.push_back({match.begin, match.end, !invert});
    at = match.end;
  }
  if (at < size) spans.push_back({at, size, invert});
  return spans;
}

// A match joins its neighbour, unless that neighbour is a match too. Written for the neighbour
// before; for the one behind, the spans are turned round first.
std::vector<Span> merge_with_neighbour(const std::vector<Span>& spans) {
  std::vector<Span> out;
  bool previous_match = false;
  for (const Span& span : spans) {
    if (span.is_match && !previous_match && !out.empty()) {
      out.back().begin = std::min(out.back().begin, span.begin);
      out.back().end = std::max(out.back().end, span.end);
    } else {
      out.push_back(span);
    }
    previous_match = span.is_match;
  }
  return out;
}

std::vector<Span> behave(std::vector<Span> spans, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::isolated: return spans;
    case SplitBehavior::removed:
      std::erase_if(spans, [](const Span& span) { return span.is_match; });
      return spans;
    case SplitBehavior::merged_with_previous: return merge_with_neighbour(spans);
    case SplitBehavior::merged_with_next:
      std::reverse(spans.begin(), spans.end());
      spans = merge_with_neighbour(spans);
      std::reverse(spans.begin(), spans.end());
      return spans;
    case SplitBehavior::contiguous: {
      std::vector<Span> out;
      for (const Span& span : spans) {
        if (!out.empty() && out.back().is_match == span.is_match) {
          out.back().end = span.end;
        } else {
          out.push_back(span);
        }
      }
      return out;
    }
  }
  return spans;
}

// In the byte alphabet one character is one byte of the text, so an offset in the text is the
// number of characters before the offset in the alphabet.
void to_byte_offsets(std::string_view alphabet, std::vector<Regex::Match>& matches) {
  std::size_t at = 0;
  std::size_t characters = 0;
  const auto advance = [&](std::size_t target) {
    for (; at < target; ++at) {
      if ((static_cast<unsigned char>(alphabet[at]) & 0xC0) != 0x80) ++characters;
    }
    return characters;
  };
  for (auto& match : matches) {
    match.begin = advance(match.begin);
    match.end = advance(match.end);
  }
}

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const Json& json, const std::string& where) {
  PreTokenizer out;
  const std::string place = where + ": \"pre_tokenizer\"";
  NS_TRY(out.add(json, place, 0));
  if (!out.has_byte_level_) {
    return Error{ErrorCode::unsupported, "no ByteLevel step; only byte-level BPE is supported",
                 place, ""};
  }
  return out;
}

Status PreTokenizer::add(const Json& json, const std::string& where, int depth) {
  const JsonReader reader(json, where);
  NS_TRY_ASSIGN(const std::string type, reader.string("type"));
  if (depth > sequence_depth_max || steps_.size() >= steps_max) {
    return Error{ErrorCode::unsupported, "too many steps", where, ""};
  }
  if (type == "Sequence") {
    NS_TRY_ASSIGN(const Json* steps, reader.array("pretokenizers"));
    for (const Json& step : *steps) NS_TRY(add(step, where, depth + 1));
    return {};
  }
  if (type == "Split") return add_split(json, where);
  if (type == "ByteLevel") return add_byte_level(json, where);
  if (type == "Digits") {
    NS_TRY_ASSIGN(const bool individual, reader.boolean_or("individual_digits", false));
    return add_pattern(digit_pattern,
                       individual ? SplitBehavior::isolated : SplitBehavior::contiguous, where);
  }
  if (type == "Punctuation") {
    NS_TRY_ASSIGN(const auto behavior, read_behavior(reader, where, "Isolated"));
    return add_pattern(punctuation_pattern, behavior, where);
  }
  return Error{ErrorCode::unsupported,
               fmt::format("pre_tokenizer \"{}\" is not supported", type.substr(0, 80)), where, ""};
}

Status PreTokenizer::add_split(const Json& json, const std::string& where) {
  const JsonReader reader(json, where);
  NS_TRY_ASSIGN(const Json* pattern, reader.object("pattern"));
  NS_TRY_ASSIGN(const auto behavior, read_behavior(reader, where, "Isolated"));
  NS_TRY_ASSIGN(const bool invert, reader.boolean_or("invert", false));
  const JsonReader inner(*pattern, where + " pattern");
  std::optional<Regex> regex;
  if (inner.has("Regex")) {
    NS_TRY_ASSIGN(const std::string text, inner.string("Regex"));
    NS_TRY_ASSIGN(regex, Regex::compile(text, where));
  } else {
    NS_TRY_ASSIGN(const std::string text, inner.string("String"));
    NS_TRY_ASSIGN(regex, Regex::compile_literal(text, where));
  }
  steps_.push_back({std::move(*regex), behavior, invert, has_byte_level_});
  return {};
}

Status PreTokenizer::add_byte_level(const Json& json, const std::string& where) {
  const JsonReader reader(json, where);
  NS_TRY_ASSIGN(const bool prefix, reader.boolean_or("add_prefix_space", true));
  NS_TRY_ASSIGN(const bool use_regex, reader.boolean_or("use_regex", true));
  if (has_byte_level_ || (prefix && !steps_.empty())) {
    return Error{ErrorCode::unsupported,
                 has_byte_level_ ? "a second ByteLevel is not supported"
                                 : "add_prefix_space behind another splitter is not supported",
                 where, ""};
  }
  add_prefix_space_ = prefix;
  if (use_regex) NS_TRY(add_pattern(gpt2_pattern, SplitBehavior::isolated, where));
  has_byte_level_ = true;
  return {};
}

Status PreTokenizer::add_pattern(std::string_view pattern, SplitBehavior behavior,
                                 const std::string& where) {
  NS_TRY_ASSIGN(Regex regex, Regex::compile(pattern, where));
  steps_.push_back({std::move(regex), behavior, false, has_byte_level_});
  return {};
}

Status PreTokenizer::apply(const Step& step, std::string_view piece,
                           std::vector<Regex::Match>& matches,
                           std::vector<std::string_view>& pieces) {
  if (step.on_alphabet) {
    const std::string alphabet = bytes_to_alphabet(piece);
    NS_TRY(step.regex.find_all(alphabet, matches));
    to_byte_offsets(alphabet, matches);
  } else {
    NS_TRY(step.regex.find_all(piece, matches));
  }
  for (const Span& span : behave(cover(matches, piece.size(), step.invert), step.behavior)) {
    pieces.push_back(piece.substr(span.begin, span.end - span.begin));
  }
  return {};
}

Status PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  pieces.clear();
  if (!text.empty()) pieces.push_back(text);
  std::vector<Regex::Match> matches;
  std::vector<std::string_view> before;
  for (const Step& step : steps_) {
    std::swap(before, pieces);
    pieces.clear();
    for (const auto piece : before) NS_TRY(apply(step, piece, matches, pieces));
  }
  return {};
}

}  // namespace nightshift
