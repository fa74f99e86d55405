// Unicode regular expressions as tokenizers write them. Knows PCRE2 in its source; must not know
// tokens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace nightshift {

// A compiled pattern. Tokenizers write for Oniguruma; where the same text means something else to
// PCRE2 (white space classes), it is translated, and where that is not possible (\w, nested
// classes,
// "{1,3}+"), the pattern is refused. May be used from several threads.
class Regex {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  static Result<Regex> compile(std::string_view pattern, const std::string& where);
  // A pattern that matches just this text.
  static Result<Regex> compile_literal(std::string_view text, const std::string& where);

  // All matches from left to right, not overlapping. `text` must be UTF-8. Going over the limits of
  // steps or stack is an error with the offset.
  Status find_all(std::string_view text, std::vector<Match>& matches) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}

  std::shared_ptr<const Code> code_;
};

}  // namespace nightshift
