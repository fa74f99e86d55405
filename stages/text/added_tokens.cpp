#include "stages/text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "schema/json.h"
#include "stages/text/unicode.h"
#include "stages/text/utf8.h"

namespace nightshift {
namespace {

constexpr std::int64_t token_id_max = (std::int64_t{1} << 24) - 1;
// Keeps the search linear: every byte of a text may begin a token that is then not there.
constexpr std::size_t content_bytes_max = 1024;

// The start of the character that ends at `end`.
std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool is_word_before(std::string_view text, std::size_t at) {
  if (at == 0) return false;
  std::size_t start = character_before(text, at);
  return is_word_character(next_code_point(text, start));
}

bool is_word_at(std::string_view text, std::size_t at) {
  return at < text.size() && is_word_character(next_code_point(text, at));
}

std::size_t skip_space_back(std::string_view text, std::size_t at, std::size_t stop) {
  while (at > stop) {
    const std::size_t start = character_before(text, at);
    std::size_t reader = start;
    if (!is_white_space(next_code_point(text, reader))) break;
    at = start;
  }
  return std::max(at, stop);
}

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t behind = at;
    if (!is_white_space(next_code_point(text, behind))) break;
    at = behind;
  }
  return at;
}

Result<AddedToken> parse_token(const Json& json, const std::string& where) {
  const JsonReader reader(json, where);
  AddedToken token;
  NS_TRY_ASSIGN(const std::int64_t id, reader.integer("id", 0, token_id_max));
  token.id = static_cast<TokenId>(id);
  NS_TRY_ASSIGN(token.content, reader.string("content"));
  if (token.content.empty() || token.content.size() > content_bytes_max) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("added token {} has {} bytes; from 1 to {} are read", id,
                             token.content.size(), content_bytes_max),
                 where, ""};
  }
  NS_TRY_ASSIGN(token.special, reader.boolean_or("special", false));
  NS_TRY_ASSIGN(token.single_word, reader.boolean_or("single_word", false));
  NS_TRY_ASSIGN(token.lstrip, reader.boolean_or("lstrip", false));
  NS_TRY_ASSIGN(token.rstrip, reader.boolean_or("rstrip", false));
  NS_TRY_ASSIGN(token.normalized, reader.boolean_or("normalized", !token.special));
  return token;
}

}  // namespace

Result<std::vector<AddedToken>> parse_added_tokens(const Json& json, const std::string& where) {
  std::vector<AddedToken> tokens;
  if (json.is_null()) return tokens;
  if (!json.is_array()) {
    return Error{ErrorCode::invalid_argument, "\"added_tokens\" is not an array", where, ""};
  }
  std::unordered_set<TokenId> ids;
  std::unordered_set<std::string> contents;
  for (const Json& entry : json) {
    NS_TRY_ASSIGN(AddedToken token, parse_token(entry, where + ": \"added_tokens\""));
    if (!ids.insert(token.id).second || !contents.insert(token.content).second) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("added token {} \"{}\" is there twice", token.id,
                               token.content.substr(0, 80)),
                   where, ""};
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenFinder::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  std::int32_t node = -1;
  for (const char c : pattern) {
    const auto byte = static_cast<unsigned char>(c);
    const auto fresh = static_cast<std::int32_t>(nodes_.size());
    std::int32_t next = fresh;
    if (node < 0) {
      if (roots_[byte] < 0) roots_[byte] = fresh;
      next = roots_[byte];
    } else {
      next = nodes_[static_cast<std::size_t>(node)].children.emplace(byte, fresh).first->second;
    }
    if (next == fresh) nodes_.emplace_back();
    node = next;
  }
  nodes_[static_cast<std::size_t>(node)].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenFinder::Hit AddedTokenFinder::longest_at(std::string_view text, std::size_t at,
                                                   const Permit& permit) const {
  Hit hit;
  const std::size_t begin = at;
  std::int32_t node = roots_[static_cast<unsigned char>(text[at])];
  while (node >= 0) {
    ++at;
    const Node& here = nodes_[static_cast<std::size_t>(node)];
    if (here.token >= 0 && permit(tokens_[static_cast<std::size_t>(here.token)], begin, at)) {
      hit = {here.token, at};
    }
    if (at == text.size()) break;
    const auto child = here.children.find(static_cast<unsigned char>(text[at]));
    node = child == here.children.end() ? -1 : child->second;
  }
  return hit;
}

std::vector<AddedTokenFinder::Segment> AddedTokenFinder::cut(std::string_view text,
                                                             const Permit& permit) const {
  std::vector<Segment> segments;
  std::size_t done = 0;  // everything before it is in a segment
  std::size_t at = 0;
  while (at < text.size()) {
    const Hit hit =
        roots_[static_cast<unsigned char>(text[at])] < 0 ? Hit{} : longest_at(text, at, permit);
    if (hit.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(hit.token)];
    std::size_t begin = at;
    std::size_t end = hit.end;
    at = hit.end;
    if (token.single_word && (is_word_before(text, begin) || is_word_at(text, end))) continue;
    if (token.lstrip) begin = skip_space_back(text, begin, done);
    if (token.rstrip) end = skip_space(text, end);
    if (begin > done) segments.push_back({done, begin, -1});
    segments.push_back({begin, end, token.id});
    done = end;
    at = end;
  }
  if (done < text.size()) segments.push_back({done, text.size(), -1});
  return segments;
}

}  // namespace nightshift
