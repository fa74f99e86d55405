#include "stages/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <cctype>

namespace nightshift {
namespace {

// White_Space of Unicode, which is what \s means to Oniguruma; PCRE2 adds U+180E to it.
constexpr std::string_view white_space =
    R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A})"
    R"(\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// A run of a million blanks needs about as many steps.
constexpr std::uint32_t match_limit = 50'000'000;
constexpr std::size_t jit_stack_bytes_min = 32u << 10;
constexpr std::size_t jit_stack_bytes_max = 16u << 20;
constexpr std::size_t pattern_bytes_max = 64u << 10;

// Turns a pattern written for Oniguruma into one that means the same to PCRE2.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '\\') {
        NS_TRY(escape());
      } else if (in_class_) {
        NS_TRY(class_character());
      } else {
        NS_TRY(plain_character());
      }
    }
    return std::move(out_);
  }

 private:
  bool next_is(std::string_view text) const { return pattern_.substr(at_, text.size()) == text; }

  Error refuse(std::string_view what) const {
    return Error{ErrorCode::unsupported,
                 fmt::format("\"{}\" in the pattern at byte {} is not supported", what, at_),
                 where_, ""};
  }

  void copy(std::size_t bytes) {
    out_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }

  Status escape() {
    const char kind = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (kind) {
      case 's':
        out_ += in_class_ ? std::string(white_space) : fmt::format("[{}]", white_space);
        at_ += 2;
        return {};
      case 'S':
        if (in_class_) return refuse("\\S inside a class");
        out_ += fmt::format("[^{}]", white_space);
        at_ += 2;
        return {};
      case 'w':
      case 'W':
      case 'b':
      case 'B':
      case 'h':
      case 'H':
      case 'R':
      case 'X':
      case 'Q':
      case 'E': return refuse(pattern_.substr(at_, 2));
      case 'p':
      case 'P':
      case 'x': {
        const auto close = pattern_.find('}', at_);
        const bool braced = at_ + 2 < pattern_.size() && pattern_[at_ + 2] == '{' &&
                            close != std::string_view::npos;
        copy(braced ? close + 1 - at_ : 2);
        return {};
      }
      default: copy(at_ + 1 < pattern_.size() ? 2 : 1); return {};
    }
  }

  Status class_character() {
    if (next_is("[:")) {
      const auto close = pattern_.find(":]", at_);
      if (close == std::string_view::npos) return refuse("[:");
      copy(close + 2 - at_);
      return {};
    }
    if (next_is("[")) return refuse("[ inside a class");
    if (next_is("&&")) return refuse("&& inside a class");
    if (next_is("]")) in_class_ = false;
    copy(1);
    return {};
  }

  Status plain_character() {
    // Possessive to PCRE2, a repeated repetition to Oniguruma.
    if (next_is("}+")) return refuse("}+");
    if (next_is("[")) {
      in_class_ = true;
      copy(next_is("[^") ? 2 : 1);
      if (next_is("]")) copy(1);
      return {};
    }
    copy(1);
    return {};
  }

  std::string_view pattern_;
  const std::string& where_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// What a match needs besides the pattern; one for each thread, because none of it may be shared.
struct Scratch {
  Scratch()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(jit_stack_bytes_min, jit_stack_bytes_max, nullptr)) {
    if (context == nullptr) return;
    pcre2_set_match_limit(context, match_limit);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

}  // namespace

struct Regex::Code {
  Code(pcre2_code* compiled, std::string named) : code(compiled), where(std::move(named)) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }

  pcre2_code* code;
  std::string where;
};

Result<Regex> Regex::compile(std::string_view pattern, const std::string& where) {
  if (pattern.empty() || pattern.size() > pattern_bytes_max) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a pattern of {} bytes; from 1 to {} are read", pattern.size(),
                             pattern_bytes_max),
                 where, ""};
  }
  NS_TRY_ASSIGN(const std::string translated, Translator(pattern, where).run());
  int failure = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &failure, &offset, nullptr);
  if (code == nullptr) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the pattern does not compile: {} at byte {} of \"{}\"",
                             pcre2_message(failure), offset, translated.substr(0, 200)),
                 where, ""};
  }
  // Without a just-in-time compiler pcre2_match interprets the pattern: slower, the same result.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Regex(std::make_shared<const Code>(code, where));
}

Result<Regex> Regex::compile_literal(std::string_view text, const std::string& where) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte) == 0) {
      pattern += fmt::format("\\x{{{:02X}}}", byte);
    } else {
      pattern += c;
    }
  }
  return compile(pattern, where);
}

Status Regex::find_all(std::string_view text, std::vector<Match>& matches) const {
  static thread_local Scratch scratch;
  if (scratch.data == nullptr || scratch.context == nullptr) {
    return Error{ErrorCode::out_of_memory, "no memory for matching a pattern", code_->where, ""};
  }
  matches.clear();
  std::size_t at = 0;
  while (at < text.size()) {
    const int found =
        pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                    PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("the pattern cannot be matched at byte {} of the text: {}", at,
                               pcre2_message(found)),
                   code_->where, ""};
    }
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(scratch.data);
    if (span[1] > span[0]) matches.push_back({span[0], span[1]});
    at = span[1];
    if (span[1] <= span[0]) {
      // An empty match: go on behind the next character.
      do {
        ++at;
      } while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    }
  }
  return {};
}

}  // namespace nightshift
