#include "stages/engine/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "schema/content_hash.h"
#include "stages/model_io/files.h"

namespace nightshift {

namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t meta_bytes_max = 256u << 20;

// Names of the regular files in a folder, sorted.
Result<std::vector<std::string>> file_names(const std::string& folder) {
  std::error_code failed;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    if (it->is_regular_file(failed)) names.push_back(it->path().filename().string());
  }
  if (failed) return errno_error(failed.value(), "read folder", folder);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_weight_file(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

// What an engine needs beside the weights; a reference.json or a README stays behind.
bool is_model_file(const std::string& name) {
  static const char* const names[] = {
      "config.json",           "generation_config.json",  "tokenizer.json",
      "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
      "calibration.json"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Status carry_file(const std::string& from, const std::string& to, Carry how) {
  if (how == Carry::link && ::link(from.c_str(), to.c_str()) == 0) return {};
  std::error_code failed;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, failed);
  if (failed) return errno_error(failed.value(), "copy " + from, to);
  return {};
}

}  // namespace

Result<CheckpointMeta> read_checkpoint_meta(const std::string& folder) {
  const std::string path = join_path(folder, "nightshift.json");
  if (!file_exists(path)) return CheckpointMeta{};
  NS_TRY_ASSIGN(const std::string text, read_file(path, meta_bytes_max));
  return checkpoint_meta_from_json(text, path);
}

Result<std::string> model_digest(const std::string& folder, const CheckpointMeta& meta) {
  NS_TRY_ASSIGN(const auto names, file_names(folder));
  ContentHasher hasher;
  for (const std::string& name : names) {
    if (name != "config.json" && !is_weight_file(name)) continue;
    NS_TRY_ASSIGN(const std::string hash, hash_file(join_path(folder, name)));
    hasher.add_field(name);
    hasher.add_field(hash);
  }
  hasher.add_field(computation_text(meta));
  return hasher.hex();
}

Status carry_files(const std::string& from, const std::string& to, Carry how, bool weights) {
  NS_TRY_ASSIGN(const auto names, file_names(from));
  for (const std::string& name : names) {
    if (!is_model_file(name) && !(weights && is_weight_file(name))) continue;
    NS_TRY(carry_file(join_path(from, name), join_path(to, name), how));
  }
  return {};
}

Status write_checkpoint_meta(const std::string& folder, const CheckpointMeta& meta) {
  return write_file(join_path(folder, "nightshift.json"), to_json_text(meta));
}

Result<std::int64_t> weight_bytes_on_disk(const std::string& folder) {
  NS_TRY_ASSIGN(const auto names, file_names(folder));
  std::int64_t bytes = 0;
  for (const std::string& name : names) {
    if (!name.ends_with(".safetensors")) continue;
    std::error_code failed;
    bytes += static_cast<std::int64_t>(fs::file_size(join_path(folder, name), failed));
    if (failed) return errno_error(failed.value(), "look at", join_path(folder, name));
  }
  return bytes;
}

}  // namespace nightshift
