// Result<T>: a value, or one Error that a person can act on.
// Knows only the standard library. Every fallible function between modules returns one of these;
// exceptions of third-party libraries end in the file that includes the library.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace nightshift {

// What kind of failure this is. The enumerators are equal to the stored and logged text.
enum class ErrorCode {
  invalid_argument,   // a file, peer or user sent something that can never work
  not_found,          // a named thing does not exist
  conflict,           // the state changed underneath (a guard did not match)
  unavailable,        // a peer or resource cannot be reached now; trying again may help
  out_of_disk,        // ENOSPC/EDQUOT
  out_of_memory,      // an allocation beyond the stated limit
  unsupported,        // valid, but not something this version can do
  corrupt,            // a stored thing fails its own checks
  io,                 // any other failure of the operating system
  internal,           // our own bug, reported and not asserted
};

const char* to_string(ErrorCode code);

// One failure, written for the person who has to fix it: what was attempted and went wrong, where
// (file:line:column, path, peer, stage), and what to do about it. `where` and `hint` may be empty.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string what;
  std::string where;
  std::string hint;

  // True when trying the same thing again, unchanged, may work.
  bool retryable() const {
    return code == ErrorCode::unavailable || code == ErrorCode::io || code == ErrorCode::conflict;
  }
  // One line: "where: what (hint)". Newlines inside the parts are replaced by spaces.
  std::string line() const;
};

// An Error from errno: "cannot <doing> : No space left on device"; ENOSPC/EDQUOT -> out_of_disk,
// ENOENT -> not_found, ENOMEM -> out_of_memory, others -> io.
Error errno_error(int saved_errno, std::string doing, std::string where);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Only after ok(): reading the wrong side is our own bug and throws std::bad_variant_access.
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return std::get<1>(state_); }
  Error& error() { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return error_.value(); }
  Error& error() { return error_.value(); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace nightshift

// Leaves the enclosing function with the error of `expr`, when it has one.
#define NS_TRY(expr)                                  \
  do {                                                \
    if (auto ns_status = (expr); !ns_status.ok())     \
      return std::move(ns_status.error());            \
  } while (false)

// `NS_TRY_ASSIGN(auto x, make_x())`: x is the value, or the enclosing function returns the error.
#define NS_TRY_ASSIGN(target, expr) \
  NS_TRY_ASSIGN_NAMED_(NS_CONCAT_(ns_result_, __LINE__), target, expr)
#define NS_TRY_ASSIGN_NAMED_(name, target, expr)        \
  auto name = (expr);                                   \
  if (!name.ok()) return std::move(name.error());       \
  target = std::move(name).value()
#define NS_CONCAT_(a, b) NS_CONCAT_INNER_(a, b)
#define NS_CONCAT_INNER_(a, b) a##b
