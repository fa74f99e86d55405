// Copies of other workers' checkpoints on this disk. Knows files, manifests and the quota; must not
// know how pieces travel. Not for two threads at a time.
//
//   ROOT/fetched/DIGEST/        whole: compared with its manifest, on the disk, renamed into place
//   ROOT/fetched/DIGEST.part/   under way: manifest.json first, then files, each from its beginning
//   ROOT/dropped/               on its way out
//
// A kill leaves a part whose files are beginnings of the right ones, so their lengths say what need
// not be fetched again; what a power cut makes of it, the hash finds. Nobody but this worker knows
// of the copies: they go, oldest first, when own checkpoints and copies exceed the quota, or when
// another one needs their room.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "schema/result.h"
#include "worker/checkpoint_check.h"
#include "worker/input_actions.h"

namespace nightshift {

// A digest as a folder's name: 32 hex digits and nothing else.
bool is_digest(const std::string& text);

class FetchStore {
 public:
  // `quota_bytes`: for own checkpoints and copies together; 0: no limit.
  FetchStore(std::string root, std::int64_t quota_bytes, CheckedFolders& checked);

  // What a crash left half removed.
  void open();

  PartOpened open_part(const OpenPart& action);
  PartOpened keep_manifest(const KeepManifest& action);
  PieceWritten write_piece(const WritePiece& action);
  // Files that differ from the manifest are removed and named; fetched again, the part is whole.
  PartSealed seal(const SealPart& action);
  Status drop_part(const std::string& digest);
  Status drop_copy(const std::string& digest);
  // Copies that no digest of `in_use` names go until own and copies are inside the quota.
  void trim(const std::set<std::string>& in_use);
  // It was used now: not the oldest any more.
  void touch(const std::string& digest);

  std::string copy_folder(const std::string& digest) const { return fetched_ + "/" + digest; }

  // Free bytes of the disk; a test puts its own here.
  std::function<std::optional<std::int64_t>()> free_bytes;

 private:
  std::string part_folder(const std::string& digest) const { return copy_folder(digest) + ".part"; }
  Result<PartOpened> look_at_part(const std::string& digest);
  Status keep(const KeepManifest& action);
  Status write(const WritePiece& action);
  Result<std::vector<std::string>> seal_part(const std::string& digest);
  Status make_room(const std::string& digest, std::int64_t bytes,
                   const std::set<std::string>& in_use);
  // Until `is_enough`; false when there was nothing left to remove.
  bool remove_oldest(const std::set<std::string>& in_use, const std::function<bool()>& is_enough);
  std::int64_t held_bytes() const;

  std::string root_;
  std::string fetched_;
  std::int64_t quota_bytes_;
  CheckedFolders& checked_;
};

}  // namespace nightshift
