#include "coordinator/yaml_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/units.h"
#include "schema/job_spec.h"
#include "schema/text.h"

namespace nightshift {
namespace {

std::string at(const std::string& path, YamlPlace place) {
  if (place.line == 0) return path;
  return fmt::format("{}:{}:{}", path, place.line, place.column);
}

}  // namespace

void YamlProblems::add(YamlPlace place, std::string what, std::string hint, ErrorCode code) {
  if (seen_.contains({place, what})) return;
  if (problems_.size() >= problems_max) {
    ++left_out_;
    return;
  }
  seen_.emplace(place, what);
  problems_.push_back({place, {code, std::move(what), "", std::move(hint)}});
}

void YamlProblems::warn(YamlPlace place, std::string what) {
  if (warnings_.size() >= problems_max || !seen_.emplace(place, what).second) return;
  warnings_.emplace_back(place, std::move(what));
}

std::vector<Error> YamlProblems::errors(const std::string& path) const {
  std::vector<Problem> sorted = problems_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Problem& a, const Problem& b) { return a.place < b.place; });
  std::vector<Error> errors;
  for (Problem& problem : sorted) {
    problem.error.where = at(path, problem.place);
    errors.push_back(std::move(problem.error));
  }
  if (left_out_ > 0) {
    errors.push_back(
        {ErrorCode::invalid_argument, fmt::format("and {} more", left_out_), path, ""});
  }
  return errors;
}

std::vector<std::string> YamlProblems::warnings(const std::string& path) const {
  std::vector<std::string> lines;
  for (const auto& [place, what] : warnings_) lines.push_back(at(path, place) + ": " + what);
  return lines;
}

std::string kind_text(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null: return "an empty value";
    case YamlNode::Kind::scalar: return "`" + clip_utf8(node.text, 60) + "`";
    case YamlNode::Kind::list: return "a list";
    case YamlNode::Kind::map: return "a map";
  }
  return "";
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = did_you_mean(word, candidates);
  if (!near.empty()) return "did you mean `" + near + "`?";
  constexpr std::size_t few = 16;
  if (candidates.empty() || candidates.size() > few) return "";
  return fmt::format("known here: {}", fmt::join(candidates, ", "));
}

YamlMap::YamlMap(const YamlNode& node, std::string name, const std::vector<std::string>& known,
                 YamlProblems& problems)
    : node_(node), name_(std::move(name)), problems_(problems) {
  if (node.kind == YamlNode::Kind::null) return;
  if (node.kind != YamlNode::Kind::map) {
    problems_.add(node.place, fmt::format("{}: expected a map, found {}", name_, kind_text(node)),
                  "write it like {key: value}");
    return;
  }
  for (const YamlEntry& entry : node.entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    problems_.add(entry.place,
                  fmt::format("unknown key `{}`{}", clip_utf8(entry.key, 60),
                              name_.empty() ? "" : " in " + name_),
                  suggestion(entry.key, known));
  }
}

const YamlNode* YamlMap::node(const char* key) const {
  const YamlEntry* entry = node_.find(key);
  return entry ? entry->value.get() : nullptr;
}

YamlPlace YamlMap::place(const char* key) const {
  const YamlNode* found = node(key);
  return found ? found->place : node_.place;
}

std::string YamlMap::path(std::string_view key) const {
  return name_.empty() ? std::string(key) : fmt::format("{}.{}", name_, key);
}

void YamlMap::problem(const char* key, const std::string& what, const std::string& hint) const {
  problems_.add(place(key), path(key) + ": " + what, hint);
}

const YamlNode* YamlMap::scalar(const char* key, const char* expected) const {
  const YamlNode* found = node(key);
  if (!found) return nullptr;
  if (found->kind != YamlNode::Kind::scalar) {
    problem(key, fmt::format("expected {}, found {}", expected, kind_text(*found)));
    return nullptr;
  }
  return found;
}

void YamlMap::whole(const char* key, int& value, std::int64_t min, std::int64_t max) const {
  const YamlNode* found = scalar(key, "a whole number");
  if (!found) return;
  const Result<std::int64_t> read = parse_whole(found->text);
  if (!read) return problem(key, read.error().what, read.error().hint);
  if (*read < min) return problem(key, fmt::format("{} is too small, at least {}", *read, min));
  if (*read > max) return problem(key, fmt::format("{} is too large, at most {}", *read, max));
  value = static_cast<int>(*read);
}

void YamlMap::number(const char* key, double& value, double min, double max) const {
  const YamlNode* found = scalar(key, "a number");
  if (!found) return;
  const Result<double> read = parse_number(found->text);
  if (!read) return problem(key, read.error().what, read.error().hint);
  if (*read < min || *read > max) {
    return problem(key, fmt::format("{} is out of range, from {} to {}", *read, min, max));
  }
  value = *read;
}

void YamlMap::size(const char* key, std::int64_t& value) const {
  const YamlNode* found = scalar(key, "a size like 20GiB");
  if (!found) return;
  const Result<std::int64_t> read = parse_size(found->text);
  if (!read) return problem(key, read.error().what, read.error().hint);
  value = *read;
}

void YamlMap::duration(const char* key, std::int64_t& value, std::int64_t min) const {
  const YamlNode* found = scalar(key, "a duration like 5m");
  if (!found) return;
  const Result<std::int64_t> read = parse_duration(found->text);
  if (!read) return problem(key, read.error().what, read.error().hint);
  if (*read < min) return problem(key, fmt::format("{} ms is too short, at least {}", *read, min));
  value = *read;
}

void YamlMap::fraction(const char* key, double& value) const {
  const YamlNode* found = scalar(key, "a share like 2%");
  if (!found) return;
  const Result<double> read = parse_fraction(found->text);
  if (!read) return problem(key, read.error().what, read.error().hint);
  value = *read;
}

void YamlMap::flag(const char* key, bool& value) const {
  const YamlNode* found = scalar(key, "true or false");
  if (!found) return;
  const Result<bool> read = parse_boolean(found->text);
  if (!read) return problem(key, read.error().what, read.error().hint);
  value = *read;
}

bool YamlMap::text(const char* key, std::string& value) const {
  const YamlNode* found = scalar(key, "a text");
  if (!found) return false;
  if (found->text.empty()) {
    problem(key, "is empty");
    return false;
  }
  value = found->text;
  return true;
}

void YamlMap::word(const char* key, std::string& value,
                   const std::vector<std::string>& allowed) const {
  const YamlNode* found = scalar(key, "a word");
  if (!found) return;
  if (std::find(allowed.begin(), allowed.end(), found->text) == allowed.end()) {
    return problem(key, fmt::format("{} is not known", kind_text(*found)),
                   suggestion(found->text, allowed));
  }
  value = found->text;
}

void YamlMap::texts(const char* key, std::vector<std::string>& value) const {
  const YamlNode* found = node(key);
  if (!found) return;
  if (found->kind == YamlNode::Kind::scalar) {
    value.clear();
    value.push_back(found->text);
    return;
  }
  if (found->kind != YamlNode::Kind::list) {
    return problem(key, fmt::format("expected a list of texts, found {}", kind_text(*found)));
  }
  std::vector<std::string> read;
  for (const YamlRef& item : found->items) {
    if (item->kind != YamlNode::Kind::scalar || item->text.empty()) {
      problems_.add(item->place,
                    fmt::format("{}: expected a text, found {}", path(key), kind_text(*item)));
      return;
    }
    read.push_back(item->text);
  }
  value = std::move(read);
}

}  // namespace nightshift
