#include "worker/checkpoint_check.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "schema/content_hash.h"
#include "worker/beneath.h"
#include "worker/checkpoint_seal.h"

namespace nightshift {

namespace {

// How all files look from outside; absent when one is missing or has another size.
Result<std::optional<std::string>> looks_of(const std::string& folder, const Manifest& manifest) {
  ContentHasher hasher;
  hasher.add_field(manifest.digest());
  for (const ManifestEntry& entry : manifest.files) {
    const auto file = open_beneath(folder, entry.path, O_RDONLY);
    if (!file) {
      const ErrorCode code = file.error().code;
      if (code == ErrorCode::not_found || code == ErrorCode::corrupt) {
        return std::optional<std::string>();
      }
      return file.error();
    }
    NS_TRY_ASSIGN(const FileStamp stamp, stamp_of(*file, folder + "/" + entry.path));
    if (stamp.bytes != entry.bytes) return std::optional<std::string>();
    hasher.add_field(stamp.text);
  }
  return std::optional(hasher.hex());
}

Result<bool> is_same(const std::string& folder, const ManifestEntry& entry) {
  const std::string where = folder + "/" + entry.path;
  const auto file = open_beneath(folder, entry.path, O_RDONLY);
  if (!file) {
    const ErrorCode code = file.error().code;
    if (code == ErrorCode::not_found || code == ErrorCode::corrupt) return false;
    return file.error();
  }
  NS_TRY_ASSIGN(const FileStamp stamp, stamp_of(*file, where));
  if (stamp.bytes != entry.bytes) return false;
  NS_TRY_ASSIGN(const std::string hash, hash_open_file(*file, where));
  return hash == entry.hash;
}

}  // namespace

Result<Manifest> read_manifest(const std::string& folder) {
  const std::string where = folder + "/" + manifest_name;
  NS_TRY_ASSIGN(const UniqueFd file, open_beneath(folder, manifest_name, O_RDONLY));
  NS_TRY_ASSIGN(const FileStamp stamp, stamp_of(file, where));
  if (stamp.bytes > manifest_bytes_max) {
    return Error{ErrorCode::corrupt, "is longer than a manifest can be", where, ""};
  }
  std::string text(static_cast<std::size_t>(stamp.bytes), '\0');
  for (std::size_t have = 0; have < text.size();) {
    const ssize_t got = ::pread(file.get(), text.data() + have, text.size() - have,
                                static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "read", where);
    if (got == 0) return Error{ErrorCode::corrupt, "became shorter while it was read", where, ""};
    have += static_cast<std::size_t>(got);
  }
  auto manifest = manifest_from_json(text, where);
  if (!manifest) manifest.error().code = ErrorCode::corrupt;
  return manifest;
}

Result<std::vector<std::string>> differing_files(const std::string& folder,
                                                 const Manifest& manifest) {
  std::vector<std::string> names;
  for (const ManifestEntry& entry : manifest.files) {
    NS_TRY_ASSIGN(const bool same, is_same(folder, entry));
    if (!same) names.push_back(entry.path);
  }
  return names;
}

Status CheckedFolders::verify(const std::string& folder, const std::string& digest) {
  NS_TRY_ASSIGN(const Manifest manifest, read_manifest(folder));
  if (manifest.digest() != digest) {
    return Error{ErrorCode::conflict,
                 "is another checkpoint (" + manifest.digest() + ") than was asked for (" + digest +
                     ")",
                 folder, ""};
  }
  // Before the content: a change in between is seen the next time.
  NS_TRY_ASSIGN(const std::optional<std::string> looks, looks_of(folder, manifest));
  const auto known = whole_.find(folder);
  if (looks && known != whole_.end() && known->second == *looks) return {};
  ++folders_read_;
  NS_TRY_ASSIGN(const std::vector<std::string> bad, differing_files(folder, manifest));
  if (bad.empty() && looks) {
    whole_[folder] = *looks;
    return {};
  }
  whole_.erase(folder);
  return Error{ErrorCode::corrupt, "is not what its manifest says",
               folder + "/" + (bad.empty() ? std::string(manifest_name) : bad.front()),
               "run the stage that made it again"};
}

void CheckedFolders::note_whole(const std::string& folder, const Manifest& manifest) {
  if (const auto looks = looks_of(folder, manifest); looks && *looks) whole_[folder] = **looks;
}

}  // namespace nightshift
