#include "coordinator/sqlite_store_db.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

namespace nightshift {

namespace {

struct Meaning {
  ErrorCode code;
  const char* hint;
};

Meaning meaning_of(int code, int system_errno) {
  const bool no_space = system_errno == ENOSPC || system_errno == EDQUOT;
  switch (code & 0xff) {
    case SQLITE_FULL: return {ErrorCode::out_of_disk, "free some space on that disk"};
    case SQLITE_IOERR:
      if (no_space) return {ErrorCode::out_of_disk, "free some space on that disk"};
      return {ErrorCode::io, "look at the disk and at the kernel's log"};
    case SQLITE_READONLY:
      return {ErrorCode::io, "the file or its folder is read-only for this user"};
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return {ErrorCode::io,
              "the folder must exist, and it and the file must be writable for this user"};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {ErrorCode::unavailable, "another coordinator uses it: stop that one"};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {ErrorCode::corrupt, "move the file away; restore a copy or start anew"};
    case SQLITE_NOMEM: return {ErrorCode::out_of_memory, ""};
    case SQLITE_CONSTRAINT: return {ErrorCode::conflict, ""};
    default: return {ErrorCode::internal, ""};
  }
}

}  // namespace

Result<SqliteDb> SqliteDb::open(const std::string& path, std::int64_t busy_timeout_ms) {
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
      nullptr);
  if (handle == nullptr) return Error{ErrorCode::out_of_memory, "cannot open the store", path, ""};
  SqliteDb db(handle, path);
  if (code != SQLITE_OK) return db.error(code, "open the store");
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, static_cast<int>(busy_timeout_ms));
  if (sqlite3_db_readonly(handle, "main") == 1) return db.error(SQLITE_READONLY, "open the store");
  return db;
}

SqliteDb::SqliteDb(SqliteDb&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), path_(std::move(other.path_)) {}

SqliteDb::~SqliteDb() {
  if (handle_ != nullptr) sqlite3_close_v2(handle_);
}

Error SqliteDb::error(int code, std::string_view doing) const {
  const Meaning meaning = meaning_of(code, sqlite3_system_errno(handle_));
  const bool told = sqlite3_errcode(handle_) == (code & 0xff) ||
                    sqlite3_extended_errcode(handle_) == code;
  return {
      meaning.code,
      fmt::format("cannot {}: {}", doing, told ? sqlite3_errmsg(handle_) : sqlite3_errstr(code)),
      path_, meaning.hint};
}

Status SqliteDb::execute(const char* sql, std::string_view doing) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return error(code, doing);
  return {};
}

Result<std::string> SqliteDb::query_text(const char* sql, std::string_view doing) {
  SqliteStatement statement;
  NS_TRY(statement.prepare(*this, sql));
  NS_TRY_ASSIGN(const bool found, statement.step(doing));
  return found ? statement.text(0) : std::string();
}

Status SqliteDb::set_pragma(const std::string& name, const std::string& value,
                            const std::string& wanted) {
  const std::string doing = fmt::format("set {} to {}", name, value);
  NS_TRY(execute(fmt::format("PRAGMA {} = {}", name, value).c_str(), doing));
  NS_TRY_ASSIGN(const std::string got,
                query_text(fmt::format("PRAGMA {}", name).c_str(), "read back " + name));
  if (got == wanted) return {};
  return Error{ErrorCode::unsupported, fmt::format("{} is '{}' after it was set to {}", name, got,
                                                   value),
               path_, "put the store on a local disk"};
}

Status SqliteStatement::prepare(SqliteDb& db, const char* sql) {
  db_ = &db;
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v3(db.handle(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  statement_.reset(statement);
  if (code != SQLITE_OK) return db.error(code, fmt::format("prepare '{}'", sql));
  return {};
}

Result<int> SqliteStatement::run(std::string_view doing) {
  int code = SQLITE_ROW;
  while (code == SQLITE_ROW) code = sqlite3_step(raw());
  if (code != SQLITE_DONE) {
    Error failed = db_->error(code, doing);
    sqlite3_reset(raw());
    return failed;
  }
  const int changed = db_->changed_rows();
  sqlite3_reset(raw());
  return changed;
}

Result<bool> SqliteStatement::step(std::string_view doing) {
  const int code = sqlite3_step(raw());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    sqlite3_reset(raw());
    return false;
  }
  Error failed = db_->error(code, doing);
  sqlite3_reset(raw());
  return failed;
}

std::string SqliteStatement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(raw(), column));
  const int size = sqlite3_column_bytes(raw(), column);
  return bytes == nullptr ? std::string() : std::string(bytes, static_cast<std::size_t>(size));
}

}  // namespace nightshift
