// A checkpoint of K3-nano in a temporary folder, removed at the end of its life. For tests.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

#include "stages/engine/checkpoint.h"
#include "tests/stages/reference_data.h"

namespace nightshift::testing {

class CheckpointFolder {
 public:
  CheckpointFolder(const std::string& name, const std::function<void(CheckpointMeta&)>& change)
      : path_((std::filesystem::temp_directory_path() /
               ("nightshift-test-" + std::to_string(::getpid()) + "-" + name))
                  .string()) {
    std::filesystem::create_directories(path_);
    REQUIRE(carry_files(k3_nano, path_, Carry::copy).ok());
    CheckpointMeta meta;
    change(meta);
    REQUIRE(write_checkpoint_meta(path_, meta).ok());
  }
  ~CheckpointFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace nightshift::testing
