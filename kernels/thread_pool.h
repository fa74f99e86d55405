// Threads for the kernels: splits an index range, runs it, waits. Knows nothing of mathematics.
#pragma once

#include <functional>
#include <memory>

namespace nightshift::kernels {

// A fixed set of threads, the caller being one of them. Workers spin briefly between calls and then
// sleep, so that shared cores do not melt. Not reentrant: one parallel_for at a time.
class ThreadPool {
 public:
  // threads >= 1. default_threads(): NIGHTSHIFT_THREADS if set, else the CPUs this process may use.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  static int default_threads();

  // Calls body(begin, end) over disjoint pieces of [0, count), each at least `grain` long but the
  // last; returns when all are done. Small counts run on the caller alone. Threads take pieces
  // dynamically, so `body` must not care which thread runs what.
  void parallel_for(int count, int grain, const std::function<void(int begin, int end)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nightshift::kernels
