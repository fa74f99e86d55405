#include "worker/fetch_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "worker/beneath.h"
#include "worker/checkpoint_seal.h"
#include "worker/event_log.h"
#include "worker/probes.h"

namespace nightshift {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t spare_bytes = 1 << 20;  // for what a file system keeps beside the files

// Below `folder`, in blocks as they lie on the disk; what cannot be seen counts nothing.
std::int64_t bytes_below(const std::string& folder) {
  std::int64_t bytes = 0;
  std::error_code failed;
  fs::recursive_directory_iterator it(folder, failed);
  for (const fs::recursive_directory_iterator end; !failed && it != end; it.increment(failed)) {
    struct stat info {};
    if (::lstat(it->path().c_str(), &info) == 0 && S_ISREG(info.st_mode)) bytes += info.st_size;
  }
  return bytes;
}

struct Copy {
  std::string path;
  std::string digest;
  std::int64_t used_ns = 0;
};

std::vector<Copy> copies_in(const std::string& fetched) {
  std::vector<Copy> copies;
  const auto names = list_folder(fetched);
  if (!names) return copies;
  for (const std::string& name : *names) {
    struct stat info {};
    const std::string path = fetched + "/" + name;
    if (::lstat(path.c_str(), &info) != 0) continue;
    copies.push_back({path, name.substr(0, name.find('.')),
                      info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec});
  }
  std::sort(copies.begin(), copies.end(),
            [](const Copy& a, const Copy& b) { return a.used_ns < b.used_ns; });
  return copies;
}

Status check_digest(const std::string& digest) {
  if (is_digest(digest)) return {};
  return Error{ErrorCode::invalid_argument, "is not a digest of 32 hex digits", digest, ""};
}

Status check_names(const Manifest& manifest, const std::string& where) {
  for (const ManifestEntry& entry : manifest.files) {
    if (entry.path != manifest_name && !entry.path.starts_with(std::string(manifest_name) + "/")) {
      continue;
    }
    return Error{ErrorCode::corrupt, "the manifest names itself", where, ""};
  }
  return {};
}

}  // namespace

bool is_digest(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

FetchStore::FetchStore(std::string root, std::int64_t quota_bytes, CheckedFolders& checked)
    : free_bytes([root] { return disk_free(root); }),
      root_(std::move(root)),
      fetched_(root_ + "/fetched"),
      quota_bytes_(quota_bytes),
      checked_(checked) {}

void FetchStore::open() {
  empty_dropped(root_);
}

Result<PartOpened> FetchStore::look_at_part(const std::string& digest) {
  NS_TRY(check_digest(digest));
  PartOpened opened;
  const std::string folder = part_folder(digest);
  auto manifest = read_manifest(folder);
  if (!manifest || manifest->digest() != digest) {
    // Nothing there, or nothing to go on from: files without a manifest mean nothing.
    NS_TRY(drop_part(digest));
    return opened;
  }
  for (const ManifestEntry& entry : manifest->files) {
    auto file = open_beneath(folder, entry.path, O_RDWR);
    if (!file) {
      if (file.error().code == ErrorCode::not_found) continue;
      NS_TRY(drop_part(digest));
      return opened;
    }
    NS_TRY_ASSIGN(const FileStamp stamp, stamp_of(*file, folder + "/" + entry.path));
    if (stamp.bytes <= entry.bytes) {
      opened.have[entry.path] = stamp.bytes;
    } else if (::ftruncate(file->get(), 0) != 0) {
      return errno_error(errno, "empty the file", folder + "/" + entry.path);
    }
  }
  opened.manifest = std::move(*manifest);
  return opened;
}

PartOpened FetchStore::open_part(const OpenPart& action) {
  auto looked = look_at_part(action.digest);
  PartOpened opened;
  if (looked) {
    opened = std::move(*looked);
  } else {
    opened.status = looked.error();
  }
  opened.fetch = action.fetch;
  return opened;
}

Status FetchStore::keep(const KeepManifest& action) {
  NS_TRY(check_digest(action.digest));
  const std::string where = "the manifest of " + action.digest;
  auto manifest = manifest_from_json(action.text, where);
  if (!manifest) {
    manifest.error().code = ErrorCode::corrupt;
    return std::move(manifest.error());
  }
  NS_TRY(check_names(*manifest, where));
  if (manifest->digest() != action.digest) {
    return Error{ErrorCode::corrupt, "it is the one of " + manifest->digest(), where, ""};
  }
  NS_TRY(make_room(action.digest, manifest->total_bytes(), action.in_use));
  const std::string folder = part_folder(action.digest);
  NS_TRY(make_folders(folder));
  NS_TRY(write_file_durable(folder + "/" + manifest_name, action.text));
  // No piece is asked for of an empty file.
  for (const ManifestEntry& entry : manifest->files) {
    if (entry.bytes > 0) continue;
    NS_TRY_ASSIGN(const UniqueFd file,
                  open_beneath(folder, entry.path, O_WRONLY | O_CREAT | O_TRUNC));
  }
  return {};
}

PartOpened FetchStore::keep_manifest(const KeepManifest& action) {
  if (const Status kept = keep(action); !kept) {
    PartOpened opened;
    opened.fetch = action.fetch;
    opened.status = kept.error();
    return opened;
  }
  return open_part({action.fetch, action.digest});
}

Status FetchStore::write(const WritePiece& action) {
  NS_TRY(check_digest(action.digest));
  const std::string folder = part_folder(action.digest);
  const std::string where = folder + "/" + action.file;
  NS_TRY_ASSIGN(const UniqueFd file, open_beneath(folder, action.file, O_WRONLY | O_CREAT));
  NS_TRY_ASSIGN(const FileStamp stamp, stamp_of(file, where));
  if (stamp.bytes != action.offset) {
    return Error{ErrorCode::internal,
                 "has " + std::to_string(stamp.bytes) + " bytes, a piece from " +
                     std::to_string(action.offset) + " was to be added",
                 where, ""};
  }
  for (std::size_t done = 0; done < action.bytes.size();) {
    const ssize_t wrote =
        ::pwrite(file.get(), action.bytes.data() + done, action.bytes.size() - done,
                 action.offset + static_cast<std::int64_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno_error(errno, "write", where);
    done += static_cast<std::size_t>(wrote);
  }
  return {};
}

PieceWritten FetchStore::write_piece(const WritePiece& action) {
  return {action.fetch, write(action)};
}

Result<std::vector<std::string>> FetchStore::seal_part(const std::string& digest) {
  NS_TRY(check_digest(digest));
  const std::string folder = part_folder(digest);
  NS_TRY_ASSIGN(const Manifest manifest, read_manifest(folder));
  NS_TRY_ASSIGN(std::vector<std::string> bad, differing_files(folder, manifest));
  for (const std::string& name : bad) {
    log_event("fetched_file_corrupt", {{"file", folder + "/" + name}});
    if (auto file = open_beneath(folder, name, O_WRONLY)) {
      if (::ftruncate(file->get(), 0) != 0) return errno_error(errno, "empty the file", name);
    } else if (file.error().code != ErrorCode::not_found) {
      return file.error();
    }
  }
  if (!bad.empty()) return bad;
  std::set<std::string> folders = {folder};
  for (const ManifestEntry& entry : manifest.files) {
    NS_TRY_ASSIGN(const UniqueFd file, open_beneath(folder, entry.path, O_RDONLY));
    const std::string path = folder + "/" + entry.path;
    if (::fsync(file.get()) != 0) return errno_error(errno, "fsync", path);
    for (std::string at = parent_folder(path); at.size() > folder.size(); at = parent_folder(at)) {
      folders.insert(at);
    }
  }
  for (const std::string& at : folders) NS_TRY(fsync_path(at));
  const std::string place = copy_folder(digest);
  NS_TRY(drop_folder(root_, place));
  NS_TRY(rename_durable(folder, place));
  checked_.note_whole(place, manifest);
  touch(digest);
  return bad;
}

PartSealed FetchStore::seal(const SealPart& action) {
  PartSealed sealed;
  sealed.fetch = action.fetch;
  auto bad = seal_part(action.digest);
  if (bad) {
    sealed.bad = std::move(*bad);
  } else {
    sealed.status = bad.error();
  }
  return sealed;
}

Status FetchStore::drop_part(const std::string& digest) {
  NS_TRY(check_digest(digest));
  return drop_folder(root_, part_folder(digest));
}

Status FetchStore::drop_copy(const std::string& digest) {
  NS_TRY(check_digest(digest));
  return drop_folder(root_, copy_folder(digest));
}

void FetchStore::touch(const std::string& digest) {
  if (is_digest(digest)) ::utimensat(AT_FDCWD, copy_folder(digest).c_str(), nullptr, 0);
}

std::int64_t FetchStore::held_bytes() const {
  return bytes_below(root_ + "/checkpoints") + bytes_below(fetched_);
}

bool FetchStore::remove_oldest(const std::set<std::string>& in_use,
                               const std::function<bool()>& is_enough) {
  for (const Copy& copy : copies_in(fetched_)) {
    if (is_enough()) return true;
    if (in_use.contains(copy.digest)) continue;
    const Status dropped = drop_folder(root_, copy.path);
    log_event("fetched_copy_removed", {{"folder", copy.path},
                                       {"error", dropped ? "" : dropped.error().line()}});
  }
  return is_enough();
}

// The quota yields to an order at hand; the disk does not.
Status FetchStore::make_room(const std::string& digest, std::int64_t bytes,
                             const std::set<std::string>& in_use) {
  std::set<std::string> kept = in_use;
  kept.insert(digest);
  if (quota_bytes_ > 0) {
    remove_oldest(kept, [&] { return held_bytes() + bytes <= quota_bytes_; });
  }
  const auto has_room = [&] {
    const auto free = free_bytes();
    return !free || *free >= bytes + spare_bytes;
  };
  if (remove_oldest(kept, has_room)) return {};
  return Error{ErrorCode::out_of_disk,
               "needs " + std::to_string(bytes >> 20) + " MiB, the disk has " +
                   std::to_string(free_bytes().value_or(0) >> 20) + " MiB free",
               fetched_, "free some room, or give the worker another --root"};
}

void FetchStore::trim(const std::set<std::string>& in_use) {
  if (quota_bytes_ <= 0) return;
  remove_oldest(in_use, [&] { return held_bytes() <= quota_bytes_; });
}

}  // namespace nightshift
