// The fields of a struct, written once and used in both directions. Private to schema/*.cpp. Knows
// JSON values and bounds; must not know any particular struct (codec_fields.h has those).
//
//   template <class A> void fields(A& a, Ref<A, BenchSpec> bench) {
//     a.integer("batch", bench.batch, 1, 65'536);
//   }
//
// Writer makes a JSON object of it; Reader fills the struct from an object that a peer or a file
// sent, keeps the first error with its place ("message heartbeat: attempts[2].ref.attempt: ...")
// and does nothing after it. The Reader allocates only for values that it has accepted.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schema/json.h"
#include "schema/messages.h"
#include "schema/result.h"

namespace nightshift::codec {

inline constexpr std::size_t path_bytes_max = 4096;
inline constexpr std::size_t prose_bytes_max = 64 * 1024;   // a reason, a note, the tail of a log
inline constexpr std::int64_t any_count = INT64_MAX;

template <class A, class T>
using Ref = typename A::template ref<T>;

class Writer {
 public:
  template <class T>
  using ref = const T&;

  // Sparse: a value of a key marked may_miss() that is 0, false or empty is left out, as long as
  // the struct's own default is the same; a lenient reader understands both.
  explicit Writer(bool sparse = false) : sparse_(sparse) {}

  Json take() { return std::move(out_); }

  Writer& may_miss() {
    may_miss_ = sparse_;
    return *this;
  }
  void name(const char* key, const std::string& value);
  void stage_name(const char* key, const std::string& value);
  void text(const char* key, const std::string& value,
            std::size_t bytes_max = wire::name_bytes_max);
  // For people: clipped to bytes_max, so that a long log line never makes a result unsendable.
  void prose(const char* key, const std::string& value, std::size_t bytes_max = prose_bytes_max);
  void bytes(const char* key, const std::string& value, std::size_t bytes_max);
  void integer(const char* key, std::int64_t value, std::int64_t min = 0,
               std::int64_t max = any_count);
  void number(const char* key, double value);
  void flag(const char* key, bool value);
  // A JSON object kept as text in the struct.
  void json_text(const char* key, const std::string& value);
  void names(const char* key, const std::vector<std::string>& value,
             std::size_t bytes_max = wire::name_bytes_max);
  void stage_names(const char* key, const std::vector<std::string>& value);
  void integers(const char* key, const std::vector<int>& value, std::int64_t min,
                std::int64_t max);
  void text_map(const char* key, const std::map<std::string, std::string>& value,
                std::size_t bytes_max = path_bytes_max);
  void number_map(const char* key, const std::map<std::string, double>& value);

  template <class E, class From>
  void choice(const char* key, E value, const char* (*to)(E), From) {
    put(key, to(value));
  }
  template <class E, class From>
  void optional_choice(const char* key, const std::optional<E>& value, const char* (*to)(E), From) {
    if (value) put(key, to(*value));
    may_miss_ = false;
  }
  template <class T>
  void object(const char* key, const T& value) {
    const bool may_miss = std::exchange(may_miss_, false);
    Writer inner(sparse_);
    fields(inner, value);
    may_miss_ = may_miss;
    put(key, inner.take());
  }
  template <class T>
  void optional(const char* key, const std::optional<T>& value) {
    if (value) object(key, *value);
    may_miss_ = false;
  }
  template <class T>
  void list(const char* key, const std::vector<T>& value) {
    Json array = Json::array();
    for (const T& item : value) {
      Writer inner(sparse_);
      fields(inner, item);
      array.push_back(inner.take());
    }
    put(key, std::move(array));
  }

 private:
  void put(const char* key, Json value);

  Json out_ = Json::object();
  bool sparse_ = false;
  bool may_miss_ = false;
};

// What the readers of one text or body share.
struct ReadState {
  std::string where;                  // "message heartbeat", a path
  bool lenient = false;               // keys marked may_miss() may be absent
  std::optional<Error> error;         // the first one
};

class Reader {
 public:
  template <class T>
  using ref = T&;

  Reader(const Json& value, ReadState& state) : Reader(value, state, nullptr, "", 0) {}

  bool ok() const { return !state_.error; }
  // The struct's own rule is broken: names the field and what is wrong with it.
  void refuse(const char* key, const std::string& problem);

  // The next key may be absent when the state is lenient; the struct's default stays.
  Reader& may_miss() {
    may_miss_ = state_.lenient;
    return *this;
  }
  void name(const char* key, std::string& value);
  void stage_name(const char* key, std::string& value);
  void text(const char* key, std::string& value, std::size_t bytes_max = wire::name_bytes_max);
  void prose(const char* key, std::string& value, std::size_t bytes_max = prose_bytes_max);
  void bytes(const char* key, std::string& value, std::size_t bytes_max);
  template <class I>
  void integer(const char* key, I& value, std::int64_t min = 0,
               std::int64_t max = sizeof(I) < 8 ? INT32_MAX : INT64_MAX) {
    std::int64_t wide = value;
    read_integer(key, wide, min, max);
    value = static_cast<I>(wide);
  }
  void number(const char* key, double& value);
  void flag(const char* key, bool& value);
  void json_text(const char* key, std::string& value);
  void names(const char* key, std::vector<std::string>& value,
             std::size_t bytes_max = wire::name_bytes_max);
  void stage_names(const char* key, std::vector<std::string>& value);
  void integers(const char* key, std::vector<int>& value, std::int64_t min, std::int64_t max);
  void text_map(const char* key, std::map<std::string, std::string>& value,
                std::size_t bytes_max = path_bytes_max);
  void number_map(const char* key, std::map<std::string, double>& value);

  template <class E, class From>
  void choice(const char* key, E& value, const char* (*)(E), From from) {
    const Json* found = find(key);
    if (!found) return;
    std::optional<E> known;
    if (found->is_string()) known = from(found->get_ref<const std::string&>());
    if (!known) return refuse(key, "is not one of the known words");
    value = *known;
  }
  template <class E, class From>
  void optional_choice(const char* key, std::optional<E>& value, const char* (*to)(E), From from) {
    if (!has(key)) return value.reset();
    choice(key, value.emplace(), to, from);
  }
  template <class T>
  void object(const char* key, T& value) {
    const Json* found = find(key);
    if (!found) return;
    Reader inner(*found, state_, this, key, no_index);
    if (inner.ok()) fields(inner, value);
  }
  template <class T>
  void optional(const char* key, std::optional<T>& value) {
    if (!has(key)) return value.reset();
    object(key, value.emplace());
  }
  template <class T>
  void list(const char* key, std::vector<T>& value) {
    value.clear();
    const Json* found = find_array(key);
    if (!found) return;
    value.reserve(found->size());
    for (std::size_t i = 0; i < found->size() && ok(); ++i) {
      Reader inner((*found)[i], state_, this, key, i);
      if (inner.ok()) fields(inner, value.emplace_back());
    }
  }

 private:
  static constexpr std::size_t no_index = SIZE_MAX;

  Reader(const Json& value, ReadState& state, const Reader* up, const char* key,
         std::size_t index);
  std::string place() const;
  void wrong(const char* key, const std::string& expected, const Json& found);
  // Null when it is absent (which is an error unless it may miss) or an earlier error exists.
  const Json* find(const char* key);
  const Json* find_array(const char* key);
  const Json* find_map(const char* key);
  bool has(const char* key) const;
  void read_integer(const char* key, std::int64_t& value, std::int64_t min, std::int64_t max);
  void read_text(const char* key, std::string& value, std::size_t bytes_max);
  bool is_text(const char* key, const Json& item, std::size_t bytes_max);

  const Json& value_;
  ReadState& state_;
  const Reader* up_;
  const char* key_;
  std::size_t index_;
  bool may_miss_ = false;
};

template <class T>
Json write_object(const T& value, bool sparse = false) {
  Writer writer(sparse);
  fields(writer, value);
  return writer.take();
}

template <class T>
Result<T> read_object(const Json& json, const std::string& where, bool lenient = false) {
  ReadState state{where, lenient, std::nullopt};
  T value;
  Reader reader(json, state);
  if (reader.ok()) fields(reader, value);
  if (state.error) return std::move(*state.error);
  return value;
}

}  // namespace nightshift::codec
