#include "coordinator/units.h"

#include <charconv>
#include <cmath>
#include <string>

#include "schema/text.h"

namespace nightshift {
namespace {

Error refused(std::string_view text, const std::string& why, const std::string& hint) {
  return Error{ErrorCode::invalid_argument, "`" + clip_utf8(text, 60) + "` " + why, "", hint};
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The forms that one YAML version or another reads as a number that nobody meant.
Status check_digits(std::string_view text) {
  const std::string_view digits =
      !text.empty() && (text[0] == '-' || text[0] == '+') ? text.substr(1) : text;
  if (digits.empty() || !is_digit(digits[0])) return {};
  if (digits.find(':') != std::string_view::npos) {
    return refused(text, "looks like a time of day, not like a number",
                   "some YAML readers make 1320 of 22:00");
  }
  if (digits.size() > 1 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) {
    return refused(text, "is hexadecimal", "write the number in decimal digits");
  }
  if (digits.size() > 1 && digits[0] == '0' && (digits[1] == 'o' || digits[1] == 'b')) {
    return refused(text, "is octal or binary", "write the number in decimal digits");
  }
  if (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1])) {
    return refused(text, "begins with 0: some read it as octal", "write it without the first 0");
  }
  if (digits.find('_') != std::string_view::npos || digits.find(',') != std::string_view::npos) {
    return refused(text, "has separators between its digits", "write the digits alone");
  }
  return {};
}

struct Leading {
  double value = 0;
  std::string_view rest;
};

// The number at the front of `text`, and what follows.
Result<Leading> leading_number(std::string_view text, std::string_view whole) {
  NS_TRY(check_digits(text));
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  const std::string_view digits = sign ? text.substr(1) : text;
  if (digits.empty() || !(is_digit(digits[0]) || (digits[0] == '.' && digits.size() > 1 &&
                                                  is_digit(digits[1])))) {
    return refused(whole, "is not a number", "");
  }
  double value = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failed != std::errc() || !std::isfinite(value)) {
    return refused(whole, "is out of range", "");
  }
  if (sign && text[0] == '-') value = -value;
  return Leading{value, digits.substr(static_cast<std::size_t>(end - digits.data()))};
}

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kib = 1024;
constexpr Unit sizes[] = {
    {"B", 1},           {"KiB", kib},       {"MiB", kib * kib}, {"GiB", kib * kib * kib},
    {"TiB", kib * kib * kib * kib},         {"KB", 1e3},        {"kB", 1e3},
    {"MB", 1e6},        {"GB", 1e9},        {"TB", 1e12},
};
constexpr Unit durations[] = {
    {"ms", 1},        {"s", 1000},       {"sec", 1000},       {"m", 60'000},
    {"min", 60'000},  {"h", 3'600'000},  {"d", 86'400'000},
};

const Unit* find_unit(std::string_view name, const Unit* begin, const Unit* end) {
  for (const Unit* unit = begin; unit != end; ++unit) {
    if (unit->name == name) return unit;
  }
  return nullptr;
}

Result<std::int64_t> rounded(double value, std::string_view text) {
  if (!(value >= 0)) return refused(text, "is below 0", "");
  if (value > 9e15) return refused(text, "is out of range", "");
  return static_cast<std::int64_t>(std::llround(value));
}

}  // namespace

Result<std::int64_t> parse_whole(std::string_view text) {
  const std::string_view trim = trimmed(text);
  NS_TRY_ASSIGN(const Leading number, leading_number(trim, trim));
  if (!number.rest.empty()) return refused(trim, "is not a whole number", "write digits alone");
  if (number.value != std::floor(number.value)) {
    return refused(trim, "is not whole", "write a number without a fraction");
  }
  if (std::abs(number.value) > 9e15) return refused(trim, "is out of range", "");
  return static_cast<std::int64_t>(number.value);
}

Result<double> parse_number(std::string_view text) {
  const std::string_view trim = trimmed(text);
  NS_TRY_ASSIGN(const Leading number, leading_number(trim, trim));
  if (!number.rest.empty()) return refused(trim, "is not a number", "write digits alone");
  return number.value;
}

Result<std::int64_t> parse_size(std::string_view text) {
  const std::string_view trim = trimmed(text);
  NS_TRY_ASSIGN(const Leading number, leading_number(trim, trim));
  const std::string_view name = trimmed(number.rest);
  if (name.empty()) {
    if (number.value == 0) return std::int64_t{0};
    return refused(trim, "has no unit", "write it like 20GiB, 512MiB or 10GB");
  }
  const Unit* unit = find_unit(name, std::begin(sizes), std::end(sizes));
  if (!unit) {
    return refused(trim, "has no unit of size that is known here",
                   "B, KiB, MiB, GiB, TiB (1024), KB, MB, GB, TB (1000)");
  }
  return rounded(number.value * unit->factor, trim);
}

Result<std::int64_t> parse_duration(std::string_view text) {
  const std::string_view trim = trimmed(text);
  std::string_view rest = trim;
  double total = 0;
  double last_factor = INFINITY;
  do {
    NS_TRY_ASSIGN(const Leading number, leading_number(rest, trim));
    rest = trimmed(number.rest);
    std::size_t letters = 0;
    while (letters < rest.size() && !is_digit(rest[letters]) && rest[letters] != ' ') ++letters;
    const std::string_view name = rest.substr(0, letters);
    if (name.empty()) {
      if (number.value == 0 && rest.empty() && last_factor == INFINITY) return std::int64_t{0};
      return refused(trim, "has no unit", "write it like 300ms, 30s, 5m, 1h30m or 2d");
    }
    const Unit* unit = find_unit(name, std::begin(durations), std::end(durations));
    if (!unit) {
      return refused(trim, "has no unit of time that is known here", "ms, s, m, h or d");
    }
    // 30m1h, 5m5m: a slip more often than a wish.
    if (unit->factor >= last_factor) {
      return refused(trim, "does not go from the larger unit to the smaller",
                     "write it like 1h30m");
    }
    last_factor = unit->factor;
    total += number.value * unit->factor;
    if (number.value < 0) return refused(trim, "is below 0", "");
    rest = trimmed(rest.substr(letters));
  } while (!rest.empty());
  return rounded(total, trim);
}

Result<double> parse_fraction(std::string_view text) {
  const std::string_view trim = trimmed(text);
  NS_TRY_ASSIGN(const Leading number, leading_number(trim, trim));
  const std::string_view name = trimmed(number.rest);
  if (!name.empty() && name != "%") {
    return refused(trim, "is not a share", "write it like 2% or 0.02");
  }
  const double value = name.empty() ? number.value : number.value / 100;
  if (value < 0) return refused(trim, "is below 0", "");
  if (value > 1) {
    return name.empty() ? refused(trim, "is more than all of it", "for a percentage write " +
                                                                     clip_utf8(trim, 20) + "%")
                        : refused(trim, "is more than 100%", "");
  }
  return value;
}

Result<bool> parse_boolean(std::string_view text) {
  const std::string_view trim = trimmed(text);
  if (trim == "true") return true;
  if (trim == "false") return false;
  return refused(trim, "is not a boolean here", "write true or false");
}

Result<int> parse_time_of_day(std::string_view text) {
  const std::string_view trim = trimmed(text);
  const auto bad = [&] { return refused(trim, "is not a time of day", "write it like 22:00"); };
  const std::size_t colon = trim.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon > 2 || trim.size() != colon + 3) {
    return bad();
  }
  for (std::size_t i = 0; i < trim.size(); ++i) {
    if (i != colon && !is_digit(trim[i])) return bad();
  }
  const int hour = colon == 1 ? trim[0] - '0' : (trim[0] - '0') * 10 + (trim[1] - '0');
  const int minute = (trim[colon + 1] - '0') * 10 + (trim[colon + 2] - '0');
  if (hour > 23 || minute > 59) return bad();
  return hour * 60 + minute;
}

}  // namespace nightshift
