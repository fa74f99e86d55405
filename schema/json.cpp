#include "schema/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "schema/result.h"

namespace nightshift {
namespace {

constexpr std::size_t message_bytes_max = 200;

// Feeds the parser and tells where it stands: nlohmann's SAX events carry no position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    auto before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// The part of nlohmann's message that says what was found and expected.
std::string parser_message(const char* text) {
  std::string message = text;
  if (auto at = message.find("syntax error"); at != std::string::npos) {
    message.erase(0, at);
  } else if (at = message.find("] "); at != std::string::npos) {
    message.erase(0, at + 2);
  }
  if (message.size() > message_bytes_max) {
    // Both ends say something: what was being parsed, and what was expected.
    message = message.substr(0, message_bytes_max / 2) + " ... " +
              message.substr(message.size() - message_bytes_max / 2);
  }
  return message;
}

class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const char* const* reached, JsonLimits limits)
      : text_(text), reached_(reached), limits_(limits) {}

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override {
    return add(value) != nullptr;
  }
  bool string(string_t& value) override { return add(std::move(value)) != nullptr; }
  bool binary(binary_t& value) override { return add(Json::binary(std::move(value))) != nullptr; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Json& object = *open_.back();
    if (limits_.refuse_duplicate_keys && object.contains(name)) {
      return fail(key_offset(), fmt::format("key \"{}\" appears twice in one object",
                                            name.substr(0, message_bytes_max)));
    }
    slot_ = &object[std::move(name)];
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    return fail(position == 0 ? 0 : position - 1, parser_message(error.what()));
  }

  Json take() { return std::move(root_); }
  std::size_t error_offset() const { return error_offset_; }
  const std::string& error_message() const { return error_message_; }

 private:
  template <typename T>
  Json* add(T&& value) {
    if (open_.empty()) {
      root_ = std::forward<T>(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::forward<T>(value));
      return &open_.back()->back();
    }
    *slot_ = std::forward<T>(value);
    return slot_;
  }

  bool open(Json container) {
    if (open_.size() >= limits_.depth_max) {
      return fail(offset() - 1, fmt::format("nested deeper than {} levels", limits_.depth_max));
    }
    open_.push_back(add(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  bool fail(std::size_t at, std::string message) {
    error_offset_ = at;
    error_message_ = std::move(message);
    return false;
  }

  std::size_t offset() const { return static_cast<std::size_t>(*reached_ - text_.data()); }

  // The parser stands behind the closing quote of the key; walks back to the opening one.
  std::size_t key_offset() const {
    std::size_t at = offset() - 1;
    while (at > 0) {
      at = text_.rfind('"', at - 1);
      if (at == std::string_view::npos) return 0;
      std::size_t backslashes = 0;
      while (backslashes < at && text_[at - 1 - backslashes] == '\\') ++backslashes;
      if (backslashes % 2 == 0) return at;
    }
    return 0;
  }

  std::string_view text_;
  const char* const* reached_;
  JsonLimits limits_;
  Json root_;
  std::vector<Json*> open_;
  Json* slot_ = nullptr;
  std::size_t error_offset_ = 0;
  std::string error_message_;
};

std::string position_text(std::string_view text, std::size_t offset, const std::string& where,
                          std::size_t first_line) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  std::size_t line = first_line;
  for (const char c : before) line += c == '\n' ? 1 : 0;
  const auto line_start = before.rfind('\n');
  const auto column =
      line_start == std::string_view::npos ? before.size() : before.size() - line_start - 1;
  return fmt::format("{}:{}:{}", where, line, column + 1);
}

const char* kind_of(const Json& value) {
  if (value.is_number_float()) return "a fraction";
  if (value.is_number()) return "an integer";
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "a boolean";
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return value.is_null() ? "null" : "binary data";
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& where, std::size_t first_line,
                        JsonLimits limits) {
  const char* reached = text.data();
  Builder builder(text, &reached, limits);
  try {
    const bool parsed =
        Json::sax_parse(CountingIterator(text.data(), &reached),
                        CountingIterator(text.data() + text.size(), &reached), &builder);
    // The lexer takes a zero byte for the end of the text, and would pass over what follows it.
    const auto zero = text.find('\0');
    if (parsed && zero == std::string_view::npos) return builder.take();
    if (parsed) {
      return Error{ErrorCode::invalid_argument, "not valid JSON: a zero byte",
                   position_text(text, zero, where, first_line), ""};
    }
  } catch (const std::exception& failure) {
    return Error{ErrorCode::internal, fmt::format("cannot read JSON: {}", failure.what()), where,
                 ""};
  }
  return Error{ErrorCode::invalid_argument, "not valid JSON: " + builder.error_message(),
               position_text(text, builder.error_offset(), where, first_line), ""};
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string dump_json_pretty(const Json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

JsonReader::JsonReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {}

const Json* JsonReader::find(const char* key) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

bool JsonReader::has(const char* key) const {
  const Json* found = find(key);
  return found != nullptr && !found->is_null();
}

Error JsonReader::wrong(const char* key, const char* expected, const Json* found) const {
  if (!object_.is_object()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("expected an object with \"{}\", found {}", key, kind_of(object_)),
                 where_, ""};
  }
  if (found == nullptr) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("\"{}\" is missing: expected {}", key, expected), where_, ""};
  }
  std::string shown = kind_of(*found);
  if (found->is_primitive() && !found->is_null()) {
    shown += " " + dump_json(*found).substr(0, message_bytes_max);
  }
  return Error{ErrorCode::invalid_argument,
               fmt::format("\"{}\": expected {}, found {}", key, expected, shown), where_, ""};
}

Result<std::string> JsonReader::string(const char* key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_string()) return wrong(key, "a string", found);
  return found->get<std::string>();
}

Result<std::int64_t> JsonReader::integer(const char* key, std::int64_t min,
                                         std::int64_t max) const {
  const Json* found = find(key);
  const std::string expected = min == INT64_MIN && max == INT64_MAX
                                   ? "an integer"
                                   : fmt::format("an integer from {} to {}", min, max);
  if (found == nullptr || !found->is_number()) return wrong(key, expected.c_str(), found);
  std::int64_t value = 0;
  if (found->is_number_float()) {
    // Some writers print 1e6 or 4096.0; beyond 2^53 a double no longer says which integer it means.
    const double number = found->get<double>();
    if (std::trunc(number) != number || std::fabs(number) > 9007199254740992.0) {
      return wrong(key, expected.c_str(), found);
    }
    value = static_cast<std::int64_t>(number);
  } else if (found->is_number_unsigned() &&
             found->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    return wrong(key, expected.c_str(), found);
  } else {
    value = found->get<std::int64_t>();
  }
  if (value < min || value > max) return wrong(key, expected.c_str(), found);
  return value;
}

Result<double> JsonReader::number(const char* key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_number()) return wrong(key, "a number", found);
  const double value = found->get<double>();
  if (!std::isfinite(value)) return wrong(key, "a finite number", found);
  return value;
}

Result<bool> JsonReader::boolean(const char* key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_boolean()) return wrong(key, "true or false", found);
  return found->get<bool>();
}

Result<const Json*> JsonReader::object(const char* key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_object()) return wrong(key, "an object", found);
  return found;
}

Result<const Json*> JsonReader::array(const char* key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_array()) return wrong(key, "an array", found);
  return found;
}

Result<std::string> JsonReader::string_or(const char* key, std::string fallback) const {
  if (object_.is_object() && !has(key)) return fallback;
  return string(key);
}

Result<std::int64_t> JsonReader::integer_or(const char* key, std::int64_t fallback,
                                            std::int64_t min, std::int64_t max) const {
  if (object_.is_object() && !has(key)) return fallback;
  return integer(key, min, max);
}

Result<double> JsonReader::number_or(const char* key, double fallback) const {
  if (object_.is_object() && !has(key)) return fallback;
  return number(key);
}

Result<bool> JsonReader::boolean_or(const char* key, bool fallback) const {
  if (object_.is_object() && !has(key)) return fallback;
  return boolean(key);
}

}  // namespace nightshift
