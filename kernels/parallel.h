// Parallel loops by function pointer, so that files compiled for an instruction set need none of
// std::function's inline code. Knows Context; must not know what runs.
#pragma once

#include "kernels/kernels.h"

namespace nightshift::kernels {

// ThreadPool::parallel_for with a plain function.
void run_range(Context& context, int count, int grain,
               void (*body)(const void* argument, int begin, int end), const void* argument);

// Runs tasks 0 .. tasks-1, handed out in that order. At any time each lane in [0, lanes) runs at
// most one task, so scratch memory may be split by lane. lanes: lane_count(context).
int lane_count(const Context& context);
void run_tasks(Context& context, int tasks, int lanes,
               void (*body)(const void* argument, int task, int lane), const void* argument);

// The caller's lambda names these instances, so no two instruction sets share one.
template <class Body>
void for_range(Context& context, int count, int grain, const Body& body) {
  run_range(
      context, count, grain,
      [](const void* argument, int begin, int end) {
        (*static_cast<const Body*>(argument))(begin, end);
      },
      &body);
}

template <class Body>
void for_tasks(Context& context, int tasks, int lanes, const Body& body) {
  run_tasks(
      context, tasks, lanes,
      [](const void* argument, int task, int lane) {
        (*static_cast<const Body*>(argument))(task, lane);
      },
      &body);
}

}  // namespace nightshift::kernels
