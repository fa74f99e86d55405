#include "stages/model_io/weight_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "schema/json.h"
#include "stages/model_io/files.h"

namespace nightshift {
namespace {

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";
constexpr std::uint64_t index_bytes_max = 256u << 20;

// Names of regular files in the folder, sorted; empty where the folder cannot be read.
std::vector<std::string> list_files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  std::filesystem::directory_iterator at(folder, failure);
  for (; !failure && at != std::filesystem::directory_iterator(); at.increment(failure)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// What lies there instead of safetensors, to say so.
std::string other_weights(const std::string& folder) {
  for (const auto& name : list_files(folder)) {
    for (const char* end : {".safetensors", ".bin", ".pt", ".pth", ".gguf"}) {
      if (ends_with(name, end)) return name;
    }
  }
  return "";
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

Result<WeightFiles> WeightFiles::open(const std::string& folder) {
  std::error_code failure;
  if (!std::filesystem::is_directory(folder, failure)) {
    return Error{ErrorCode::not_found, "there is no such model folder", folder, ""};
  }
  WeightFiles weights;
  weights.folder_ = folder;
  const std::string index = join_path(folder, index_name);
  const std::string single = join_path(folder, single_name);
  if (file_exists(index)) {
    NS_TRY(weights.open_index(index));
  } else if (file_exists(single)) {
    NS_TRY(weights.open_single(single));
  } else {
    const std::string other = other_weights(folder);
    return Error{ErrorCode::not_found,
                 fmt::format("no weights: neither {} nor {} is there{}", single_name, index_name,
                             other.empty() ? "" : ", only " + other),
                 folder, "point the job at a Hugging Face model folder"};
  }
  weights.sort_by_name();
  return weights;
}

Status WeightFiles::open_single(const std::string& path) {
  NS_TRY_ASSIGN(auto file, SafetensorsFile::open(path));
  files_.push_back(std::move(file));
  for (const auto& view : files_.back().tensors()) NS_TRY(take(files_.back(), view.name));
  note_strays({single_name});
  return {};
}

Status WeightFiles::open_index(const std::string& path) {
  NS_TRY_ASSIGN(const std::string text, read_file(path, index_bytes_max));
  NS_TRY_ASSIGN(const Json index, parse_json(text, path));
  NS_TRY_ASSIGN(const Json* weight_map, JsonReader(index, path).object("weight_map"));
  if (weight_map->empty()) {
    return Error{ErrorCode::invalid_argument, "\"weight_map\" names no tensor", path, ""};
  }
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string() || !is_plain_name(shard.get<std::string>())) {
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("\"weight_map\": \"{}\" does not name a file of this folder", tensor), path,
          ""};
    }
    shards[shard.get<std::string>()].push_back(tensor);
  }
  // All are looked for before any is opened, so that a half-done download is told at once.
  std::vector<std::string> missing;
  std::vector<std::string> used;
  for (const auto& [shard, tensors] : shards) {
    used.push_back(shard);
    if (!file_exists(join_path(folder_, shard))) missing.push_back(shard);
  }
  if (!missing.empty()) {
    return Error{ErrorCode::not_found,
                 fmt::format("shard {} is missing ({} of {} shards are not there)", missing.front(),
                             missing.size(), shards.size()),
                 path, "download the model again"};
  }
  files_.reserve(shards.size());
  for (const auto& [shard, tensors] : shards) {
    NS_TRY_ASSIGN(auto file, SafetensorsFile::open(join_path(folder_, shard)));
    files_.push_back(std::move(file));
    for (const auto& tensor : tensors) NS_TRY(take(files_.back(), tensor));
    if (files_.back().tensors().size() > tensors.size()) {
      notes_.push_back(fmt::format("{}: ignored {} tensors that the index does not place there",
                                   shard, files_.back().tensors().size() - tensors.size()));
    }
  }
  const auto metadata = index.find("metadata");
  if (metadata != index.end() && metadata->is_object() && metadata->contains("total_size")) {
    const Json& total = (*metadata)["total_size"];
    if (total.is_number() && total.get<double>() != static_cast<double>(total_bytes_)) {
      notes_.push_back(fmt::format("{}: total_size says {} bytes, the tensors have {}", index_name,
                                   dump_json(total), total_bytes_));
    }
  }
  note_strays(used);
  return {};
}

Status WeightFiles::take(const SafetensorsFile& file, const std::string& name) {
  const TensorView* view = file.find(name);
  if (view == nullptr) {
    return Error{ErrorCode::corrupt,
                 fmt::format("tensor \"{}\" is not in this shard, where the index places it", name),
                 file.path(), "download the model again"};
  }
  tensors_.push_back(view);
  by_name_.emplace(name, view);
  total_bytes_ += view->bytes;
  return {};
}

void WeightFiles::note_strays(const std::vector<std::string>& used) {
  for (const auto& name : list_files(folder_)) {
    if (ends_with(name, ".safetensors") &&
        std::find(used.begin(), used.end(), name) == used.end()) {
      notes_.push_back(fmt::format("{}: ignored, a stray file beside {}", name, used.front()));
    }
  }
}

void WeightFiles::sort_by_name() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorView* a, const TensorView* b) { return a->name < b->name; });
}

const TensorView* WeightFiles::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : found->second;
}

}  // namespace nightshift
