// The "pre_tokenizer" of tokenizer.json: cuts text into the pieces within which BPE merges. Knows
// the kinds of splitters; must not know vocabularies.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schema/json_fwd.h"
#include "schema/result.h"
#include "stages/text/regex.h"

namespace nightshift {

// What becomes of the matches of a splitter's pattern.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Split, ByteLevel, Digits, Punctuation and Sequence. A ByteLevel must be there, because the
// vocabulary is in the byte alphabet; splitters behind it see the text in that alphabet.
class PreTokenizer {
 public:
  static Result<PreTokenizer> parse(const Json& json, const std::string& where);

  // The pieces are views of `text`, in order, none empty. `text` must be UTF-8.
  Status split(std::string_view text, std::vector<std::string_view>& pieces) const;
  // A blank belongs before a text that does not begin with one; the caller puts it there.
  bool add_prefix_space() const { return add_prefix_space_; }

 private:
  struct Step {
    Regex regex;
    SplitBehavior behavior;
    bool invert;
    bool on_alphabet;
  };

  Status add(const Json& json, const std::string& where, int depth);
  Status add_split(const Json& json, const std::string& where);
  Status add_byte_level(const Json& json, const std::string& where);
  Status add_pattern(std::string_view pattern, SplitBehavior behavior, const std::string& where);
  static Status apply(const Step& step, std::string_view piece, std::vector<Regex::Match>& matches,
                      std::vector<std::string_view>& pieces);

  std::vector<Step> steps_;
  bool has_byte_level_ = false;
  bool add_prefix_space_ = false;
};

}  // namespace nightshift
