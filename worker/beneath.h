// Files below a folder by names that a peer has given. Knows the operating system; must not know
// what the files mean. A name cannot lead out: no "..", no absolute path, and no link on the way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schema/result.h"
#include "worker/files.h"

namespace nightshift {

// Opens the plain file `name` (parts divided by '/') below `folder`; `flags` as of open(2).
// not_found: it or a folder on the way is absent. corrupt: a link, a device, a folder, or a name
// that is none. With O_CREAT the folders on the way are made.
Result<UniqueFd> open_beneath(const std::string& folder, std::string_view name, int flags);

// Size and times of an open file, in a form that is equal only for a file that nobody changed.
struct FileStamp {
  std::int64_t bytes = 0;
  std::string text;
};
Result<FileStamp> stamp_of(const UniqueFd& file, const std::string& where);

// The whole of an open file, from its first byte: XXH3-128 as schema/content_hash.h writes it.
Result<std::string> hash_open_file(const UniqueFd& file, const std::string& where);

// Takes a folder away in two steps, so that a crash leaves either all of it at its place or none:
// renamed into ROOT/dropped/, then removed there. Absent is fine.
Status drop_folder(const std::string& root, const std::string& path);
// What a crash left in ROOT/dropped/.
void empty_dropped(const std::string& root);

}  // namespace nightshift
