#include "stages/text/unicode.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "stages/text/utf8.h"

namespace nightshift {
namespace {

// No character decomposes into more than 18 code points.
constexpr std::size_t decomposition_max = 32;

int decompose_options(NormalForm form) {
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
}

bool composes(NormalForm form) {
  return form == NormalForm::nfc || form == NormalForm::nfkc;
}

// utf8proc orders combining marks by exchanging neighbours, which takes quadratic time in a hostile
// run of them; so the decomposition and the ordering are done here, and only the tables are its
// own.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto mark_class = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  std::size_t at = 0;
  while (at < codes.size()) {
    if (mark_class(codes[at]) == 0) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < codes.size() && mark_class(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(at),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
    at = end;
  }
}

// A text of nothing but these is in NFC: below U+0300 nothing composes with what comes before it,
// and the ideographs and Hangul syllables neither decompose nor follow anything.
bool is_inert_in_nfc(std::uint32_t code) {
  return code < 0x300 || (code >= 0x2002 && code < 0x20C0) || (code >= 0x3001 && code < 0x302A) ||
         (code >= 0x3041 && code < 0x3099) || (code >= 0x30A0 && code < 0x3100) ||
         (code >= 0x4E00 && code < 0xA000) || (code >= 0xAC00 && code < 0xD7A4) ||
         (code >= 0xFF01 && code < 0xFFEF);
}

}  // namespace

Result<std::string> normalize(std::string_view text, NormalForm form) {
  const auto failure = [](utf8proc_ssize_t code) {
    return Error{ErrorCode::internal,
                 fmt::format("cannot normalize text: {}", utf8proc_errmsg(code)), "", ""};
  };
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  const auto options = static_cast<utf8proc_option_t>(decompose_options(form));
  std::array<utf8proc_int32_t, decomposition_max> parts{};
  std::size_t at = 0;
  while (at < text.size()) {
    int last_class = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(next_code_point(text, at)), parts.data(),
        static_cast<utf8proc_ssize_t>(parts.size()), options, &last_class);
    if (count < 0) return failure(count);
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  order_marks(codes);
  auto size = static_cast<utf8proc_ssize_t>(codes.size());
  if (composes(form)) {
    size = utf8proc_normalize_utf32(
        codes.data(), size, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (size < 0) return failure(size);
  }
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < size; ++i) {
    append_utf8(out, static_cast<std::uint32_t>(codes[static_cast<std::size_t>(i)]));
  }
  return out;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_plain_in_nfc(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (!is_inert_in_nfc(next_code_point(text, at))) return false;
  }
  return true;
}

bool is_word_character(std::uint32_t code) {
  // Letters among the symbols, and the two joiners.
  if ((code >= 0x24B6 && code <= 0x24E9) || code == 0x200C || code == 0x200D) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

bool is_white_space(std::uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

}  // namespace nightshift
