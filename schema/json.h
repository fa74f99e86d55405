// JSON and MessagePack values. Knows nlohmann-json, and is the only header that does; include it in
// .cpp files (headers use json_fwd.h). All parsing of foreign text goes through parse_json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "schema/json_fwd.h"
#include "schema/result.h"

namespace nightshift {

// Bounds for foreign JSON: nesting and duplicate keys are checked while parsing, before anything
// is built, so that a hostile file costs no more than its own size.
struct JsonLimits {
  std::size_t depth_max = 64;
  bool refuse_duplicate_keys = true;
};

// Parses one JSON value that spans the whole text. Errors name `where` with line and column
// ("eval.jsonl:12:7"), what was expected, and never throw. `first_line` is the number of the text's
// first line in its file (for JSON lines).
Result<Json> parse_json(std::string_view text, const std::string& where, std::size_t first_line = 1,
                        JsonLimits limits = {});

// One line, UTF-8; invalid UTF-8 inside strings is replaced by U+FFFD instead of throwing.
std::string dump_json(const Json& value);
// The same over several lines, indented by two spaces, with a final newline: for files.
std::string dump_json_pretty(const Json& value);

// Typed access to a member of a JSON object that a peer or a file sent: the value, or an Error that
// names the key, what was expected and what was found. Integers must be whole and in range.
class JsonReader {
 public:
  // `where` is the place named in errors (a path, "message worker_hello", ...).
  JsonReader(const Json& object, std::string where);

  Result<std::string> string(const char* key) const;
  Result<std::int64_t> integer(const char* key, std::int64_t min = INT64_MIN,
                               std::int64_t max = INT64_MAX) const;
  Result<double> number(const char* key) const;   // finite
  Result<bool> boolean(const char* key) const;
  // Points into the object given to the constructor.
  Result<const Json*> object(const char* key) const;
  Result<const Json*> array(const char* key) const;

  // Absent or null gives the fallback; present with the wrong type is an error.
  Result<std::string> string_or(const char* key, std::string fallback) const;
  Result<std::int64_t> integer_or(const char* key, std::int64_t fallback,
                                  std::int64_t min = INT64_MIN, std::int64_t max = INT64_MAX) const;
  Result<double> number_or(const char* key, double fallback) const;
  Result<bool> boolean_or(const char* key, bool fallback) const;

  bool has(const char* key) const;   // present and not null

 private:
  Error wrong(const char* key, const char* expected, const Json* found) const;
  const Json* find(const char* key) const;

  const Json& object_;
  std::string where_;
};

}  // namespace nightshift
