// What the worker's tests share: temporary folders, orders, waiting, processes that must be gone.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "schema/messages.h"
#include "worker/process.h"

namespace nightshift::test {

// Removed with everything in it at the end of the test.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

AttemptRef make_ref(std::int64_t job, const std::string& stage, std::int32_t attempt);
AssignAttempt make_order(const AttemptRef& ref, std::int64_t epoch = 1);

void write_text(const std::string& path, const std::string& text);
std::string read_text(const std::string& path);  // empty when absent

// Looks every few milliseconds, at most half a minute.
bool eventually(const std::function<bool()>& condition);
// Neither running nor a zombie.
bool is_gone(pid_t pid);
// A number that a script has written; 0 while it is not there.
pid_t pid_in(const std::string& path);

// Of the program under test, beside the test's own binary.
std::string worker_program();

// A shell script run as a stage would be, with its log and events.
struct ScriptRun {
  explicit ScriptRun(const std::string& folder);
  // Starts `sh -c script` with FOLDER in its environment.
  void start(const std::string& script);
  bool run_until_empty();  // at most half a minute
  void poll();
  template <typename Event>
  const Event* find() const {
    for (const ProcessEvent& event : events) {
      if (const auto* found = std::get_if<Event>(&event)) return found;
    }
    return nullptr;
  }
  std::vector<std::string> report_lines() const;

  std::string folder;
  ProcessFamily family;
  std::unique_ptr<StageProcess> process;
  std::vector<ProcessEvent> events;
};

}  // namespace nightshift::test
