// The "normalizer" of tokenizer.json. Knows its JSON; must not know how a normal form is computed
// (unicode.h does), nor tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schema/json_fwd.h"
#include "schema/result.h"
#include "stages/text/unicode.h"

namespace nightshift {

// The steps of a normalizer in order; none leaves text as it is.
class Normalizer {
 public:
  // null, one of the four forms, or a Sequence of them; others are refused by name.
  static Result<Normalizer> parse(const Json& json, const std::string& where);

  bool is_identity() const { return forms_.empty(); }
  // `text` must be UTF-8. O(n log n), also for long runs of combining marks.
  Result<std::string> apply(std::string_view text) const;
  // True when apply is known to change nothing, which it tells quickly for most text; false proves
  // nothing.
  bool leaves_alone(std::string_view text) const;

 private:
  std::vector<NormalForm> forms_;
};

}  // namespace nightshift
