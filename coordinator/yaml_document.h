// YAML text as a small tree with positions. Knows YAML (yaml-cpp in the .cpp); must not know what a
// job is. A text of a user can never crash it or make it large: see the limits.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nightshift {

// 1-based; 0: no place.
struct YamlPlace {
  std::size_t line = 0;
  std::size_t column = 0;
  auto operator<=>(const YamlPlace&) const = default;
};

struct YamlNode;
using YamlRef = std::shared_ptr<const YamlNode>;

struct YamlEntry {
  std::string key;
  YamlPlace place;              // of the key
  YamlRef value;
};

// Scalars stay text: what `no`, `1e3` or `22:00` mean is for the field that reads them to say.
// Nodes behind an alias are shared, and their places are those of the anchor.
struct YamlNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  YamlPlace place;
  std::string text;                 // scalar
  bool quoted = false;              // scalar in quotes or a block: never null, boolean or number
  std::vector<YamlRef> items;       // list
  std::vector<YamlEntry> entries;   // map, in order, merge keys (<<) already applied
  std::size_t weight = 1;           // nodes below and including this one, aliases expanded

  const YamlEntry* find(const std::string& key) const;
};

struct YamlLimits {
  std::size_t depth_max = 32;
  std::size_t nodes_max = 1'000'000;     // after expansion of aliases
};

struct YamlProblem {
  YamlPlace place;
  std::string what;
  std::string hint;
};

struct YamlDocument {
  YamlRef root;                         // null when the text could not be read at all
  std::vector<YamlProblem> problems;    // duplicate keys are collected, other problems end it
};

// One document. Refused: bytes that are not UTF-8, control characters, a second document, tags,
// keys that are not plain text, duplicate keys (both lines named), aliases of themselves.
YamlDocument parse_yaml(const std::string& text, YamlLimits limits = {});

}  // namespace nightshift
