#include "schema/codec.h"

#include "schema/text.h"

namespace nightshift::codec {
namespace {

std::string range_text(std::int64_t min, std::int64_t max) {
  if (max == INT64_MAX) return "a whole number, at least " + std::to_string(min);
  return "a whole number from " + std::to_string(min) + " to " + std::to_string(max);
}

}  // namespace

// ---- Writer ---------------------------------------------------------------------------------

void Writer::put(const char* key, Json value) {
  const bool is_nothing = value.is_number()    ? value == 0
                          : value.is_boolean() ? value == false
                          : value.is_string()  ? value.get_ref<const std::string&>().empty()
                                               : value.empty();
  if (std::exchange(may_miss_, false) && is_nothing) return;
  out_[key] = std::move(value);
}

void Writer::name(const char* key, const std::string& value) {
  put(key, to_utf8(value));
}
void Writer::stage_name(const char* key, const std::string& value) { name(key, value); }
void Writer::text(const char* key, const std::string& value, std::size_t) { name(key, value); }

void Writer::prose(const char* key, const std::string& value, std::size_t bytes_max) {
  put(key, clip_utf8(value, bytes_max));
}

void Writer::bytes(const char* key, const std::string& value, std::size_t) {
  out_[key] = Json::binary({value.begin(), value.end()});
}

void Writer::integer(const char* key, std::int64_t value, std::int64_t, std::int64_t) {
  put(key, value);
}

void Writer::number(const char* key, double value) {
  put(key, value);
}
void Writer::flag(const char* key, bool value) {
  put(key, value);
}

void Writer::json_text(const char* key, const std::string& value) {
  Result<Json> parsed = parse_json(value, key);
  // Text that is no JSON is our own bug; as a string the other side refuses it with the key.
  put(key, parsed ? std::move(*parsed) : Json(to_utf8(value)));
}

void Writer::names(const char* key, const std::vector<std::string>& value, std::size_t) {
  Json array = Json::array();
  for (const std::string& item : value) array.push_back(to_utf8(item));
  put(key, std::move(array));
}

void Writer::integers(const char* key, const std::vector<int>& value, std::int64_t, std::int64_t) {
  put(key, value);
}

void Writer::stage_names(const char* key, const std::vector<std::string>& value) {
  names(key, value);
}

void Writer::text_map(const char* key, const std::map<std::string, std::string>& value,
                      std::size_t) {
  Json object = Json::object();
  for (const auto& [name, text] : value) object[to_utf8(name)] = to_utf8(text);
  put(key, std::move(object));
}

void Writer::number_map(const char* key, const std::map<std::string, double>& value) {
  Json object = Json::object();
  for (const auto& [name, number] : value) object[to_utf8(name)] = number;
  put(key, std::move(object));
}

// ---- Reader ---------------------------------------------------------------------------------

Reader::Reader(const Json& value, ReadState& state, const Reader* up, const char* key,
               std::size_t index)
    : value_(value), state_(state), up_(up), key_(key), index_(index) {
  if (ok() && !value.is_object()) {
    const std::string here = place();
    state_.error = Error{ErrorCode::invalid_argument,
                         (here.empty() ? "" : here + ": ") + "expected a map of fields, found " +
                             value.type_name(),
                         state_.where, ""};
  }
}

std::string Reader::place() const {
  if (!up_) return "";
  std::string text = up_->place();
  if (!text.empty()) text += '.';
  text += key_;
  if (index_ != no_index) text += "[" + std::to_string(index_) + "]";
  return text;
}

void Reader::refuse(const char* key, const std::string& problem) {
  if (!ok()) return;
  const std::string here = place();
  state_.error = Error{ErrorCode::invalid_argument,
                       (here.empty() ? "" : here + ".") + key + ": " + problem, state_.where, ""};
}

void Reader::wrong(const char* key, const std::string& expected, const Json& found) {
  refuse(key, "expected " + expected + ", found " + found.type_name());
}

bool Reader::has(const char* key) const {
  const auto it = value_.find(key);
  return it != value_.end() && !it->is_null();
}

const Json* Reader::find(const char* key) {
  const bool may_miss = std::exchange(may_miss_, false);
  if (!ok()) return nullptr;
  const auto it = value_.find(key);
  if (it != value_.end() && !(may_miss && it->is_null())) return &*it;
  if (!may_miss) refuse(key, "is missing");
  return nullptr;
}

const Json* Reader::find_array(const char* key) {
  const Json* found = find(key);
  if (!found) return nullptr;
  if (!found->is_array()) {
    wrong(key, "a list", *found);
    return nullptr;
  }
  if (found->size() > wire::list_items_max) {
    refuse(key, std::to_string(found->size()) + " items, the most is " +
                    std::to_string(wire::list_items_max));
    return nullptr;
  }
  return found;
}

const Json* Reader::find_map(const char* key) {
  const Json* found = find(key);
  if (!found) return nullptr;
  if (!found->is_object()) {
    wrong(key, "a map", *found);
    return nullptr;
  }
  if (found->size() > wire::list_items_max) {
    refuse(key, std::to_string(found->size()) + " entries, the most is " +
                    std::to_string(wire::list_items_max));
    return nullptr;
  }
  return found;
}

bool Reader::is_text(const char* key, const Json& item, std::size_t bytes_max) {
  if (!item.is_string()) {
    wrong(key, "text", item);
    return false;
  }
  const std::string& text = item.get_ref<const std::string&>();
  if (text.size() > bytes_max) {
    refuse(key, "text of " + std::to_string(text.size()) + " bytes, the most is " +
                    std::to_string(bytes_max));
    return false;
  }
  if (!is_utf8(text)) {
    refuse(key, "text is not valid UTF-8");
    return false;
  }
  return true;
}

void Reader::read_text(const char* key, std::string& value, std::size_t bytes_max) {
  const Json* found = find(key);
  if (found && is_text(key, *found, bytes_max)) value = found->get_ref<const std::string&>();
}

void Reader::name(const char* key, std::string& value) {
  read_text(key, value, wire::name_bytes_max);
  if (ok() && !is_name(value, wire::name_bytes_max)) {
    refuse(key, "a name has 1 to " + std::to_string(wire::name_bytes_max) +
                    " bytes and no control characters");
  }
}

void Reader::stage_name(const char* key, std::string& value) {
  read_text(key, value, wire::name_bytes_max);
  if (ok() && !is_stage_name(value)) {
    refuse(key, "a stage name has 1 to 64 of a-z, 0-9, _ and -");
  }
}

void Reader::text(const char* key, std::string& value, std::size_t bytes_max) {
  read_text(key, value, bytes_max);
}

void Reader::prose(const char* key, std::string& value, std::size_t bytes_max) {
  read_text(key, value, bytes_max);
}

void Reader::bytes(const char* key, std::string& value, std::size_t bytes_max) {
  const Json* found = find(key);
  if (!found) return;
  if (!found->is_binary()) return wrong(key, "bytes", *found);
  const auto& raw = found->get_binary();
  if (raw.size() > bytes_max) {
    return refuse(key, std::to_string(raw.size()) + " bytes, the most is " +
                           std::to_string(bytes_max));
  }
  value.assign(raw.begin(), raw.end());
}

void Reader::read_integer(const char* key, std::int64_t& value, std::int64_t min,
                          std::int64_t max) {
  const Json* found = find(key);
  if (!found) return;
  std::int64_t whole = 0;
  if (found->is_number_unsigned()) {
    const auto positive = found->get<std::uint64_t>();
    if (positive > INT64_MAX)
      return refuse(key, "is out of range, expected " + range_text(min, max));
    whole = static_cast<std::int64_t>(positive);
  } else if (found->is_number_integer()) {
    whole = found->get<std::int64_t>();
  } else if (found->is_number_float() && state_.lenient) {
    // Scripts that divide write 3.0 for 3.
    const double number = found->get<double>();
    if (!(std::abs(number) < 9e15) || number != std::floor(number)) {
      return refuse(key, "is not whole, expected " + range_text(min, max));
    }
    whole = static_cast<std::int64_t>(number);
  } else {
    return wrong(key, range_text(min, max), *found);
  }
  if (whole < min || whole > max) {
    return refuse(key,
                  std::to_string(whole) + " is out of range, expected " + range_text(min, max));
  }
  value = whole;
}

void Reader::number(const char* key, double& value) {
  const Json* found = find(key);
  if (!found) return;
  if (!found->is_number()) return wrong(key, "a number", *found);
  const double number = found->get<double>();
  if (!std::isfinite(number)) return refuse(key, "is not a finite number");
  value = number;
}

void Reader::flag(const char* key, bool& value) {
  const Json* found = find(key);
  if (!found) return;
  if (!found->is_boolean()) return wrong(key, "true or false", *found);
  value = found->get<bool>();
}

void Reader::json_text(const char* key, std::string& value) {
  const Json* found = find(key);
  if (!found) return;
  if (!found->is_object()) return wrong(key, "a map", *found);
  value = dump_json(*found);
  if (value.size() > wire::text_bytes_max) {
    refuse(key, "takes " + std::to_string(value.size()) + " bytes, the most is " +
                    std::to_string(wire::text_bytes_max));
  }
}

void Reader::names(const char* key, std::vector<std::string>& value, std::size_t bytes_max) {
  value.clear();
  const Json* found = find_array(key);
  if (!found) return;
  for (const Json& item : *found) {
    if (!is_text(key, item, bytes_max)) return;
    value.push_back(item.get_ref<const std::string&>());
  }
}

void Reader::integers(const char* key, std::vector<int>& value, std::int64_t min,
                      std::int64_t max) {
  value.clear();
  const Json* found = find_array(key);
  if (!found) return;
  for (const Json& item : *found) {
    const bool whole = item.is_number_integer();
    if (!whole || item.get<std::int64_t>() < min || item.get<std::int64_t>() > max) {
      return refuse(key, "holds something else than " + range_text(min, max));
    }
    value.push_back(item.get<int>());
  }
}

void Reader::stage_names(const char* key, std::vector<std::string>& value) {
  names(key, value);
  for (const std::string& item : value) {
    if (!is_stage_name(item)) return refuse(key, "a stage name has 1 to 64 of a-z, 0-9, _ and -");
  }
}

void Reader::text_map(const char* key, std::map<std::string, std::string>& value,
                      std::size_t bytes_max) {
  value.clear();
  const Json* found = find_map(key);
  if (!found) return;
  for (const auto& [name, item] : found->items()) {
    if (name.size() > path_bytes_max || !is_utf8(name)) {
      return refuse(key, "a key is too long or not valid UTF-8");
    }
    if (!is_text(key, item, bytes_max)) return;
    value.emplace(name, item.get_ref<const std::string&>());
  }
}

void Reader::number_map(const char* key, std::map<std::string, double>& value) {
  value.clear();
  const Json* found = find_map(key);
  if (!found) return;
  for (const auto& [name, item] : found->items()) {
    if (!is_name(name, wire::name_bytes_max)) return refuse(key, "a key is not a name");
    if (!item.is_number()) return wrong(key, "numbers", item);
    const double number = item.get<double>();
    if (!std::isfinite(number)) return refuse(key, "has a number that is not finite");
    value.emplace(name, number);
  }
}

}  // namespace nightshift::codec
