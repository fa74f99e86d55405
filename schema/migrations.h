// The store's tables, as numbered steps. Knows SQL text only; coordinator/sqlite_store.cpp runs it.
//
//   meta      numbers about the store itself: server_epoch
//   jobs      one row a submit; spec_json is canonical, source_text is the job file as written
//   stages    the current state of each stage; guarded by (state, attempt)
//   attempts  every run of a stage, with its end; never overwritten, only ended once
//   metrics, red_lines, notes   what an attempt measured and said
//   events    what happened, as log lines
//   workers   who was ever here, and its last session
//   outbox    messages to people, written with the change that they tell about
//
// A step is never changed once released; a new one is appended. The file's user_version is the
// number of the last step that it has.
#pragma once

#include <string_view>
#include <vector>

namespace nightshift {

struct Migration {
  int version = 0;
  std::string_view name;
  const char* sql = nullptr;
};

// In order, versions 1, 2, ...
const std::vector<Migration>& migrations();

}  // namespace nightshift
