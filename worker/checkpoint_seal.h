// Makes a folder of a stage a checkpoint: every file hashed and on the disk. Knows files and
// manifests; must not know attempts or what the files mean.
#pragma once

#include <string>

#include "schema/result.h"
#include "schema/stage_contract.h"

namespace nightshift {

inline constexpr const char* manifest_name = "manifest.json";

// Hashes and fsyncs every regular file below `folder`, then the folders, and writes manifest.json
// beside them. A link, socket or device is refused: a checkpoint is complete by itself.
Result<Manifest> seal_checkpoint(const std::string& folder);

// Reads manifest.json and compares names and sizes with what lies there. Contents are not hashed
// again: that costs as much as loading the model.
Result<Manifest> check_checkpoint(const std::string& folder);

}  // namespace nightshift
