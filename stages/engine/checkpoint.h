// A checkpoint folder: complete and loadable by itself. Knows its files; must not know stages.
//
// config.json, generation_config.json, tokenizer.json, tokenizer_config.json, *.safetensors as in a
// Hugging Face directory, and nightshift.json (checkpoint_meta.h). Files that a stage does not
// change are hard-linked from the checkpoint before it where the file system allows, else copied.
#pragma once

#include <cstdint>
#include <string>

#include "schema/result.h"
#include "stages/engine/checkpoint_meta.h"

namespace nightshift {

// nightshift.json of `folder`; a folder without one is a plain model: an empty meta.
Result<CheckpointMeta> read_checkpoint_meta(const std::string& folder);

// XXH3-128 over config.json, all safetensors files and what nightshift.json says about the
// computation. Two checkpoints with the same digest compute the same numbers.
Result<std::string> model_digest(const std::string& folder, const CheckpointMeta& meta);

// Links are for files that nobody writes again (checkpoints); a user's own folder is copied.
enum class Carry { link, copy };

// Brings the model's files from one folder into another (which exists), all but nightshift.json and
// manifest.json; `weights` false leaves the safetensors files and their index out.
Status carry_files(const std::string& from, const std::string& to, Carry how, bool weights = true);

// Writes nightshift.json (temporary, fsync, rename).
Status write_checkpoint_meta(const std::string& folder, const CheckpointMeta& meta);

// Bytes of all safetensors files.
Result<std::int64_t> weight_bytes_on_disk(const std::string& folder);

}  // namespace nightshift
