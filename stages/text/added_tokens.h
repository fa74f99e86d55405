// Tokens that are cut out of a text before it is split: "<|im_end|>", "<think>". Knows their flags;
// must not know vocabularies or merges.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "schema/json_fwd.h"
#include "schema/result.h"
#include "stages/text/token_id.h"

namespace nightshift {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
  bool normalized = false;   // is looked for in the normalized text, not in the raw one
  bool special = false;      // is left out by decode on request
};

// The "added_tokens" of tokenizer.json. Two tokens of one id or one content are an error.
Result<std::vector<AddedToken>> parse_added_tokens(const Json& json, const std::string& where);

// Finds added tokens in a text: leftmost first, the longest where several begin at one place.
class AddedTokenFinder {
 public:
  // Whether the token may be recognised at [begin, end) of the text; a place where it may not is
  // passed over as if the token did not exist.
  using Permit = std::function<bool(const AddedToken& token, std::size_t begin, std::size_t end)>;
  struct Segment {
    std::size_t begin = 0;
    std::size_t end = 0;
    TokenId id = -1;  // -1: text between tokens
  };

  AddedTokenFinder() { roots_.fill(-1); }
  // `pattern` is what to look for: the content, or its normalized form.
  void add(const AddedToken& token, std::string_view pattern);
  // The text in segments, in order; none is empty. A token's segment includes the white space that
  // it takes along.
  std::vector<Segment> cut(std::string_view text, const Permit& permit) const;

 private:
  struct Node {
    std::unordered_map<unsigned char, std::int32_t> children;
    std::int32_t token = -1;  // index in tokens_
  };
  struct Hit {
    std::int32_t token = -1;
    std::size_t end = 0;
  };
  Hit longest_at(std::string_view text, std::size_t at, const Permit& permit) const;

  std::array<std::int32_t, 256> roots_{};  // node of each first byte; -1 for none
  std::vector<Node> nodes_;
  std::vector<AddedToken> tokens_;
};

}  // namespace nightshift
