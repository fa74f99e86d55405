#include "schema/result.h"

#include <cerrno>
#include <cstring>

namespace nightshift {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::conflict: return "conflict";
    case ErrorCode::unavailable: return "unavailable";
    case ErrorCode::out_of_disk: return "out_of_disk";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::corrupt: return "corrupt";
    case ErrorCode::io: return "io";
    case ErrorCode::internal: return "internal";
  }
  return "internal";
}

std::string Error::line() const {
  std::string text;
  if (!where.empty()) text += where + ": ";
  text += what;
  if (!hint.empty()) text += " (" + hint + ")";
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

Error errno_error(int saved_errno, std::string doing, std::string where) {
  ErrorCode code = ErrorCode::io;
  std::string hint;
  switch (saved_errno) {
    case ENOSPC:
    case EDQUOT:
      code = ErrorCode::out_of_disk;
      hint = "free some space there, or choose another folder";
      break;
    case ENOENT: code = ErrorCode::not_found; break;
    case ENOMEM: code = ErrorCode::out_of_memory; break;
    default: break;
  }
  return Error{code, "cannot " + doing + ": " + std::strerror(saved_errno), std::move(where),
               std::move(hint)};
}

}  // namespace nightshift
