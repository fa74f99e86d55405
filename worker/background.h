// One thread for work that may block as long as a disk does, so that the loop never does. Knows
// threads and an eventfd; must not know what the work is.
#pragma once

#include <functional>
#include <memory>

namespace nightshift {

class BackgroundThread {
 public:
  // What to do afterwards, on the loop's thread.
  using Completion = std::function<void()>;
  using Work = std::function<Completion()>;

  BackgroundThread();
  // Waits a few seconds for the work at hand; a thread that a dead disk holds is left behind.
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // In order, one at a time. What the work captures must live without the poster.
  void post(Work work);
  // Readable when a completion waits.
  int fd() const;
  void run_completions();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace nightshift
