#include "worker/background.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/files.h"

namespace nightshift {

struct BackgroundThread::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> waiting;
  std::vector<Completion> done;
  bool ending = false;
  bool ended = false;
  UniqueFd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

BackgroundThread::BackgroundThread() : shared_(std::make_shared<Shared>()) {
  // Signals are the loop's: a thread takes over the mask of its maker.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([shared = shared_] {
    std::unique_lock lock(shared->mutex);
    for (;;) {
      shared->changed.wait(lock, [&] { return shared->ending || !shared->waiting.empty(); });
      if (shared->waiting.empty()) break;
      Work work = std::move(shared->waiting.front());
      shared->waiting.pop_front();
      lock.unlock();
      Completion completion = work();
      work = nullptr;
      lock.lock();
      shared->done.push_back(std::move(completion));
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto wrote = ::write(shared->wake.get(), &one, sizeof one);
    }
    shared->ended = true;
    shared->changed.notify_all();
  }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

BackgroundThread::~BackgroundThread() {
  std::unique_lock lock(shared_->mutex);
  shared_->ending = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, std::chrono::seconds(5), [this] { return shared_->ended; });
}

void BackgroundThread::post(Work work) {
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting.push_back(std::move(work));
  shared_->changed.notify_all();
}

int BackgroundThread::fd() const {
  return shared_->wake.get();
}

void BackgroundThread::run_completions() {
  std::vector<Completion> done;
  {
    const std::lock_guard lock(shared_->mutex);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(shared_->wake.get(), &count, sizeof count);
    done.swap(shared_->done);
  }
  for (const Completion& completion : done) {
    if (completion) completion();
  }
}

}  // namespace nightshift
