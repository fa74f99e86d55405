#include "schema/stage_contract.h"

#include <algorithm>

#include "schema/codec_fields.h"
#include "schema/content_hash.h"

namespace nightshift {

using codec::Ref;

template <class A>
void fields(A& a, Ref<A, ManifestEntry> m) {
  a.text("path", m.path, codec::path_bytes_max);
  a.integer("bytes", m.bytes);
  a.text("hash", m.hash);
}

template <class A>
void fields(A& a, Ref<A, Manifest> m) {
  a.list("files", m.files);
}

namespace {

// A path that stays inside the checkpoint: whoever copies files by a manifest writes where it says.
bool is_inside(std::string_view path) {
  if (path.empty() || path.front() == '/' || path.find('\0') != std::string_view::npos)
    return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

bool is_hash(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Status check_manifest(const Manifest& manifest, const std::string& where) {
  const auto corrupt = [&](const std::string& what) {
    return Error{ErrorCode::corrupt, what, where, "the checkpoint cannot be trusted: run it again"};
  };
  std::int64_t total = 0;
  const std::string* before = nullptr;
  for (const ManifestEntry& file : manifest.files) {
    if (!is_inside(file.path)) return corrupt("files: path `" + file.path + "` leaves the folder");
    if (!is_hash(file.hash)) return corrupt("files: `" + file.path + "` has no hash of 32 digits");
    if (before && *before >= file.path) {
      return corrupt("files: `" + file.path + "` is not in order, or there twice");
    }
    if (file.bytes > INT64_MAX - total) return corrupt("files: the sizes add up to too much");
    total += file.bytes;
    before = &file.path;
  }
  return {};
}

}  // namespace

std::string to_json_text(const StageOrder& order) {
  return dump_json_pretty(codec::write_object(order));
}

Result<StageOrder> stage_order_from_json(std::string_view text, const std::string& where) {
  NS_TRY_ASSIGN(const Json json, parse_json(text, where));
  return codec::read_object<StageOrder>(json, where);
}

std::string Manifest::digest() const {
  ContentHasher hasher;
  for (const ManifestEntry& file : files) {
    hasher.add_field(file.path);
    hasher.add_field(std::to_string(file.bytes));
    hasher.add_field(file.hash);
  }
  return hasher.hex();
}

std::int64_t Manifest::total_bytes() const {
  std::int64_t total = 0;
  for (const ManifestEntry& file : files) total += file.bytes;
  return total;
}

std::string to_json_text(const Manifest& manifest) {
  return dump_json_pretty(codec::write_object(manifest));
}

Result<Manifest> manifest_from_json(std::string_view text, const std::string& where) {
  NS_TRY_ASSIGN(const Json json, parse_json(text, where));
  NS_TRY_ASSIGN(Manifest manifest, codec::read_object<Manifest>(json, where));
  NS_TRY(check_manifest(manifest, where));
  return manifest;
}

}  // namespace nightshift
