#include "worker/checkpoint_seal.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "schema/content_hash.h"
#include "worker/files.h"

namespace nightshift {

namespace {

namespace fs = std::filesystem;

struct Found {
  std::vector<std::string> files;    // relative, sorted
  std::vector<std::string> folders;  // relative, deepest first
};

Result<Found> find_all(const std::string& folder) {
  Found found;
  std::error_code failed;
  fs::recursive_directory_iterator it(folder, failed);
  for (const fs::recursive_directory_iterator end; !failed && it != end; it.increment(failed)) {
    const std::string path = it->path().string();
    const std::string name = path.substr(folder.size() + 1);
    const fs::file_status status = it->symlink_status(failed);
    if (failed) break;
    if (fs::is_directory(status)) {
      found.folders.push_back(name);
    } else if (fs::is_regular_file(status)) {
      if (name != manifest_name) found.files.push_back(name);
    } else {
      return Error{ErrorCode::unsupported, "a checkpoint holds plain files and folders only", path,
                   "copy what a link points to instead of linking it"};
    }
  }
  if (failed) return errno_error(failed.value(), "read the folder", folder);
  std::sort(found.files.begin(), found.files.end());
  std::sort(found.folders.rbegin(), found.folders.rend());
  return found;
}

Result<std::int64_t> file_size(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return errno_error(errno, "look at", path);
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::corrupt, "is not a plain file", path, ""};
  return static_cast<std::int64_t>(info.st_size);
}

}  // namespace

Result<Manifest> seal_checkpoint(const std::string& folder) {
  NS_TRY_ASSIGN(const Found found, find_all(folder));
  Manifest manifest;
  for (const std::string& name : found.files) {
    const std::string path = folder + "/" + name;
    NS_TRY_ASSIGN(std::string hash, hash_file(path));
    NS_TRY(fsync_path(path));
    NS_TRY_ASSIGN(const std::int64_t bytes, file_size(path));
    manifest.files.push_back({name, bytes, std::move(hash)});
  }
  for (const std::string& name : found.folders) NS_TRY(fsync_path(folder + "/" + name));
  NS_TRY(write_file_durable(folder + "/" + manifest_name, to_json_text(manifest)));
  return manifest;
}

Result<Manifest> check_checkpoint(const std::string& folder) {
  const std::string path = folder + "/" + manifest_name;
  NS_TRY_ASSIGN(const std::string text, read_file(path, 64 << 20));
  NS_TRY_ASSIGN(Manifest manifest, manifest_from_json(text, path));
  for (const ManifestEntry& entry : manifest.files) {
    const std::string file = folder + "/" + entry.path;
    NS_TRY_ASSIGN(const std::int64_t bytes, file_size(file));
    if (bytes != entry.bytes) {
      return Error{ErrorCode::corrupt,
                   "has " + std::to_string(bytes) + " bytes, its manifest says " +
                       std::to_string(entry.bytes),
                   file, "run the stage that made it again"};
    }
  }
  return manifest;
}

}  // namespace nightshift
