// The access file: how a worker or a CLI finds its coordinator and proves who it is. Knows JSON and
// file modes; must not know sockets.
#pragma once

#include <string>

#include "schema/result.h"

namespace nightshift {

// Keys are CURVE keys in Z85 text (40 characters). The file belongs to its user alone (mode 0600):
// whoever reads it is admitted.
struct Access {
  std::string endpoint;  // "ipc:///home/u/.nightshift/coordinator.sock", "tcp://127.0.0.1:7654"
  std::string server_public;
  std::string client_public;
  std::string client_secret;
};

// Refuses a file that others may read, naming the chmod that mends it.
Result<Access> read_access(const std::string& path);
// Temporary file, mode 0600, fsync, rename.
Status write_access(const std::string& path, const Access& access);

}  // namespace nightshift
