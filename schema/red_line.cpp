#include "schema/red_line.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace nightshift {
namespace {

struct Suffix {
  std::string_view unit;
  std::string_view text;
  double factor;
  double divisor = 1;   // a percentage divided is the nearest number to what was written
};

constexpr double kib = 1024.0;
constexpr Suffix suffixes[] = {
    {"tok/s", "", 1},
    {"tok/s", "tok/s", 1},
    {"tok/s", "tokens/s", 1},
    {"ms", "", 1},
    {"ms", "us", 1e-3},
    {"ms", "ms", 1},
    {"ms", "s", 1000},
    {"bytes", "", 1},
    {"bytes", "B", 1},
    {"bytes", "KB", 1e3},
    {"bytes", "kB", 1e3},
    {"bytes", "MB", 1e6},
    {"bytes", "GB", 1e9},
    {"bytes", "TB", 1e12},
    {"bytes", "KiB", kib},
    {"bytes", "MiB", kib * kib},
    {"bytes", "GiB", kib * kib * kib},
    {"bytes", "TiB", kib * kib * kib * kib},
    {"fraction", "", 1},
    {"fraction", "%", 1, 100},
};

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string example_of(std::string_view unit) {
  if (unit == "tok/s") return "like \">= 1600\" or \">= 3.0x\" of the baseline";
  if (unit == "ms") return "like \"<= 120 ms\" or \"<= 0.33x\" of the baseline";
  if (unit == "bytes") return "like \"<= 20GiB\" or \"<= 0.6x\" of the baseline";
  return "like \">= 95%\"";
}

}  // namespace

Result<Limit> parse_limit(std::string_view text, std::string_view unit) {
  const auto bad = [&](const std::string& what) {
    return Error{ErrorCode::invalid_argument, what, "", "write it " + example_of(unit)};
  };
  Limit limit;
  limit.text = std::string(trimmed(text));
  std::string_view rest = limit.text;
  if (rest.starts_with(">=")) {
    limit.side = Limit::Side::at_least;
  } else if (rest.starts_with("<=")) {
    limit.side = Limit::Side::at_most;
  } else {
    return bad("a limit begins with >= or <=");
  }
  rest = trimmed(rest.substr(2));
  // from_chars would also take "inf", "nan" and a sign.
  if (rest.empty() || rest.front() < '0' || rest.front() > '9') {
    return bad("there is no number after " + limit.text.substr(0, 2));
  }
  double number = 0;
  const auto [end, failed] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (failed != std::errc() || !std::isfinite(number)) return bad("the number is out of range");
  rest = trimmed(rest.substr(static_cast<std::size_t>(end - rest.data())));
  if (rest == "x" || rest == "X") {
    if (number <= 0) return bad("a factor on the baseline is above 0");
    limit.relative = true;
    limit.value = number;
    return limit;
  }
  for (const Suffix& suffix : suffixes) {
    if (suffix.unit != unit || suffix.text != rest) continue;
    limit.value = number * suffix.factor / suffix.divisor;
    if (unit == "fraction" && limit.value > 1) {
      return bad(rest.empty() ? "a fraction is at most 1, or has a percent sign"
                              : "there is no more than 100%");
    }
    return limit;
  }
  return bad("`" + std::string(rest) + "` is not a unit that is known here");
}

namespace {

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

RedLineResult check_limit(const char* name, const Limit& limit, std::optional<double> baseline,
                          std::optional<double> measured) {
  RedLineResult result;
  result.name = name;
  result.limit = limit.text;
  result.limit_value = limit.value;
  result.at_least = limit.side == Limit::Side::at_least;
  result.measured = measured.value_or(0);
  if (!measured || !std::isfinite(*measured)) {
    result.measured = 0;
    result.detail = "not measured: counts as a breach";
    return result;
  }
  result.detail = "measured " + number_text(*measured);
  if (limit.relative) {
    if (!baseline || !std::isfinite(*baseline) || *baseline <= 0) {
      result.detail += ", but the baseline has no such number: counts as a breach";
      return result;
    }
    result.limit_value = limit.value * *baseline;
    result.detail += ", baseline " + number_text(*baseline) + ", that is " +
                     number_text(*measured / *baseline) + "x";
  }
  result.pass = result.at_least ? *measured >= result.limit_value : *measured <= result.limit_value;
  return result;
}

// Mean over the groups of a class; none when one of them has no number.
std::optional<double> mean_of(const std::map<std::string, double>& accuracy,
                              const std::vector<std::string>& groups, std::string& missing) {
  double sum = 0;
  for (const std::string& group : groups) {
    const auto it = accuracy.find(group);
    if (it == accuracy.end() || !std::isfinite(it->second)) {
      missing = group;
      return std::nullopt;
    }
    sum += it->second;
  }
  return sum / static_cast<double>(groups.size());
}

RedLineResult check_accuracy(const std::string& name, double drop_max,
                             const std::vector<std::string>& groups, const Measurement& baseline,
                             const Measurement& measured) {
  RedLineResult result;
  result.name = "accuracy_drop." + name;
  result.limit = "<= " + number_text(drop_max * 100) + "%";
  result.at_least = true;
  if (groups.empty()) {
    result.detail = "no task groups belong to `" + name + "`: counts as a breach";
    return result;
  }
  std::string missing;
  const auto before = mean_of(baseline.accuracy, groups, missing);
  if (!before) {
    result.detail = "the baseline has no accuracy of `" + missing + "`: counts as a breach";
    return result;
  }
  result.limit_value = *before * (1 - drop_max);
  const auto after = mean_of(measured.accuracy, groups, missing);
  if (!after) {
    result.detail = "accuracy of `" + missing + "` was not measured: counts as a breach";
    return result;
  }
  result.measured = *after;
  // Half a step of rounding: 0.5 * (1 - 0.02) is not exactly 0.49.
  result.pass = *after >= result.limit_value - 1e-12;
  const double lost = *before > 0 ? (*before - *after) / *before * 100 : 0;
  result.detail = "accuracy " + number_text(*after) + ", 16-bit " + number_text(*before) +
                  ", lost " + number_text(lost) + "% of it (";
  for (std::size_t i = 0; i < groups.size(); ++i) result.detail += (i ? ", " : "") + groups[i];
  result.detail += ")";
  return result;
}

}  // namespace

std::vector<RedLineResult> check_red_lines(
    const RedLines& lines, const Measurement& baseline, const Measurement& measured,
    const std::map<std::string, std::vector<std::string>>& groups) {
  std::vector<RedLineResult> results;
  const auto check = [&](const char* name, const std::optional<Limit>& limit,
                         std::optional<double> Measurement::* number) {
    if (limit) results.push_back(check_limit(name, *limit, baseline.*number, measured.*number));
  };
  check("throughput_tok_s", lines.throughput_tok_s, &Measurement::throughput_tok_s);
  check("ttft_ms", lines.ttft_ms, &Measurement::ttft_ms);
  check("tpot_ms", lines.tpot_ms, &Measurement::tpot_ms);
  check("peak_memory", lines.peak_memory_bytes, &Measurement::peak_memory_bytes);
  check("token_match", lines.token_match, &Measurement::token_match);
  for (const auto& [name, drop_max] : lines.accuracy_drop) {
    const auto it = groups.find(name);
    const std::vector<std::string> none;
    results.push_back(check_accuracy(name, drop_max, it == groups.end() ? none : it->second,
                                     baseline, measured));
  }
  return results;
}

}  // namespace nightshift
