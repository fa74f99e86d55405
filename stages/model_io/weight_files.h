// The weights of a model folder, in one file or in shards. Knows the index of shards; must not know
// which tensors a model needs (model_config.h does).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "schema/result.h"
#include "stages/model_io/safetensors.h"

namespace nightshift {

// Everything is checked on opening, before any tensor is read: with model.safetensors.index.json
// every shard that it names must be there and hold what the index says; without it,
// model.safetensors. Views live as long as this object.
class WeightFiles {
 public:
  static Result<WeightFiles> open(const std::string& folder);

  const TensorView* find(std::string_view name) const;
  const std::vector<const TensorView*>& tensors() const { return tensors_; }  // by name
  std::uint64_t total_bytes() const { return total_bytes_; }                  // of the tensors
  const std::string& folder() const { return folder_; }
  // What was passed over and why, for the log: stray files, tensors outside the index, a wrong
  // total.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  WeightFiles() = default;
  Status open_single(const std::string& path);
  Status open_index(const std::string& path);
  Status take(const SafetensorsFile& file, const std::string& name);
  void note_strays(const std::vector<std::string>& used);
  void sort_by_name();

  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::vector<const TensorView*> tensors_;
  std::unordered_map<std::string, const TensorView*> by_name_;
  std::uint64_t total_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace nightshift
