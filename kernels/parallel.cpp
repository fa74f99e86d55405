#include "kernels/parallel.h"

#include <atomic>

#include "kernels/thread_pool.h"

namespace nightshift::kernels {

void run_range(Context& context, int count, int grain,
               void (*body)(const void* argument, int begin, int end), const void* argument) {
  if (count <= 0) return;
  if (count <= grain || context.pool->threads() == 1) {
    body(argument, 0, count);
    return;
  }
  context.pool->parallel_for(count, grain,
                             [body, argument](int begin, int end) { body(argument, begin, end); });
}

int lane_count(const Context& context) { return context.pool->threads(); }

void run_tasks(Context& context, int tasks, int lanes,
               void (*body)(const void* argument, int task, int lane), const void* argument) {
  if (lanes > tasks) lanes = tasks;
  if (lanes <= 1) {
    for (int task = 0; task < tasks; ++task) body(argument, task, 0);
    return;
  }
  std::atomic<int> next{0};
  context.pool->parallel_for(lanes, 1, [&](int begin, int end) {
    for (int lane = begin; lane < end; ++lane) {
      for (int task = next.fetch_add(1, std::memory_order_relaxed); task < tasks;
           task = next.fetch_add(1, std::memory_order_relaxed)) {
        body(argument, task, lane);
      }
    }
  });
}

}  // namespace nightshift::kernels
