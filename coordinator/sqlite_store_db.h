// SQLite as values and Results: a connection and its prepared statements. Only sqlite_store*.cpp
// includes it. Errors carry the operation, the path and what an operator can do.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace nightshift {

class SqliteDb {
 public:
  static Result<SqliteDb> open(const std::string& path, std::int64_t busy_timeout_ms);
  SqliteDb(SqliteDb&& other) noexcept;
  SqliteDb& operator=(SqliteDb&& other) = delete;
  ~SqliteDb();

  // Runs SQL text without results.
  Status execute(const char* sql, std::string_view doing);
  // The first column of the first row; empty text when there is no row.
  Result<std::string> query_text(const char* sql, std::string_view doing);
  // Sets a pragma and reads it back: `wanted` is what SQLite must then say.
  Status set_pragma(const std::string& name, const std::string& value, const std::string& wanted);

  Error error(int code, std::string_view doing) const;
  sqlite3* handle() const { return handle_; }
  int changed_rows() const { return sqlite3_changes(handle_); }
  bool in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }

 private:
  SqliteDb(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  sqlite3* handle_ = nullptr;
  std::string path_;
};

// A statement, prepared once. Bind in order, then run() or step() until false; both leave it ready
// for the next use.
class SqliteStatement {
 public:
  Status prepare(SqliteDb& db, const char* sql);

  template <typename... Values>
  SqliteStatement& bind(const Values&... values) {
    int position = 0;
    (bind_one(++position, values), ...);
    return *this;
  }
  // Runs to the end; the number of changed rows.
  Result<int> run(std::string_view doing);
  // True: a row can be read. False: there is none left.
  Result<bool> step(std::string_view doing);

  std::int64_t integer(int column) const { return sqlite3_column_int64(raw(), column); }
  double number(int column) const { return sqlite3_column_double(raw(), column); }
  std::string text(int column) const;
  bool is_null(int column) const { return sqlite3_column_type(raw(), column) == SQLITE_NULL; }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  sqlite3_stmt* raw() const { return statement_.get(); }
  void bind_one(int position, std::int64_t value) { sqlite3_bind_int64(raw(), position, value); }
  void bind_one(int position, std::int32_t value) { sqlite3_bind_int64(raw(), position, value); }
  void bind_one(int position, bool value) { sqlite3_bind_int64(raw(), position, value ? 1 : 0); }
  void bind_one(int position, double value) { sqlite3_bind_double(raw(), position, value); }
  void bind_one(int position, std::nullptr_t) { sqlite3_bind_null(raw(), position); }
  void bind_one(int position, std::string_view value) {
    // The text outlives the step: callers bind from rows that they hold.
    sqlite3_bind_text64(raw(), position, value.data() == nullptr ? "" : value.data(), value.size(),
                        SQLITE_STATIC, SQLITE_UTF8);
  }
  void bind_one(int position, const std::string& value) {
    bind_one(position, std::string_view(value));
  }
  void bind_one(int position, const char* value) { bind_one(position, std::string_view(value)); }

  SqliteDb* db_ = nullptr;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

}  // namespace nightshift
