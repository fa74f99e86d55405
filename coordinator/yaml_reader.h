// Typed access to the fields of a YAML map, with every problem collected at its place. Knows the
// YAML tree and units; must not know what a job is.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/yaml_document.h"
#include "schema/result.h"

namespace nightshift {

// All problems of one file, so that a person mends them in one go. The same at the same place is
// one problem: a matrix finds it for each of its stages.
class YamlProblems {
 public:
  void add(YamlPlace place, std::string what, std::string hint = "",
           ErrorCode code = ErrorCode::invalid_argument);
  void warn(YamlPlace place, std::string what);
  bool empty() const { return problems_.empty(); }

  // In the order of the file, each with "path:line:column"; the first `problems_max` of them.
  std::vector<Error> errors(const std::string& path) const;
  std::vector<std::string> warnings(const std::string& path) const;

 private:
  static constexpr std::size_t problems_max = 100;
  struct Problem {
    YamlPlace place;
    Error error;
  };
  std::vector<Problem> problems_;
  std::vector<std::pair<YamlPlace, std::string>> warnings_;
  std::set<std::pair<YamlPlace, std::string>> seen_;
  std::size_t left_out_ = 0;
};

// Every reader leaves its value alone when the key is absent or wrong; wrong ones become problems.
// An empty value (`bench:`) is an empty map where a map is expected, and a problem elsewhere.
class YamlMap {
 public:
  // Not `known` keys become problems with "did you mean". `name` is the path in messages ("bench").
  YamlMap(const YamlNode& node, std::string name, const std::vector<std::string>& known,
          YamlProblems& problems);

  bool has(const char* key) const { return node_.find(key) != nullptr; }
  // Null when it is absent.
  const YamlNode* node(const char* key) const;
  // Of the value where there is one, else of the map.
  YamlPlace place(const char* key) const;
  YamlPlace place() const { return node_.place; }
  std::string path(std::string_view key) const;
  void problem(const char* key, const std::string& what, const std::string& hint = "") const;

  void whole(const char* key, int& value, std::int64_t min, std::int64_t max) const;
  void number(const char* key, double& value, double min, double max) const;
  void size(const char* key, std::int64_t& value) const;
  void duration(const char* key, std::int64_t& value, std::int64_t min = 0) const;
  void fraction(const char* key, double& value) const;
  void flag(const char* key, bool& value) const;
  // True when a text that is not empty was read.
  bool text(const char* key, std::string& value) const;
  void word(const char* key, std::string& value, const std::vector<std::string>& allowed) const;
  // A list of texts; one text alone is a list of one.
  void texts(const char* key, std::vector<std::string>& value) const;

 private:
  const YamlNode* scalar(const char* key, const char* expected) const;

  const YamlNode& node_;
  std::string name_;
  YamlProblems& problems_;
};

// "a list", "an empty value", ... of what was found.
std::string kind_text(const YamlNode& node);
// "did you mean `x`?", else the words themselves when they are few.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace nightshift
