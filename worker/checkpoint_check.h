// Is a checkpoint what its manifest says, byte by byte? Knows manifests and files; must not know
// attempts. checkpoint_seal.h has the cheap look at names and sizes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "schema/result.h"
#include "schema/stage_contract.h"

namespace nightshift {

inline constexpr std::int64_t manifest_bytes_max = 64 << 20;

// The manifest of the checkpoint at `folder`. not_found: there is no checkpoint; corrupt: what is
// there is none.
Result<Manifest> read_manifest(const std::string& folder);

// The names of the manifest's files that are absent, or have another size or content. An error only
// where the disk could not be read.
Result<std::vector<std::string>> differing_files(const std::string& folder,
                                                 const Manifest& manifest);

// Reads each checkpoint once in the life of the worker, and again when size, inode or times of one
// of its files are others than then.
class CheckedFolders {
 public:
  // not_found: no checkpoint there. conflict: whole or not, it has another digest. corrupt: with
  // the name of the first file that differs.
  Status verify(const std::string& folder, const std::string& digest);
  // It was compared byte by byte just now.
  void note_whole(const std::string& folder, const Manifest& manifest);
  std::int64_t folders_read() const { return folders_read_; }

 private:
  std::map<std::string, std::string> whole_;  // folder -> what its files looked like
  std::int64_t folders_read_ = 0;
};

}  // namespace nightshift
