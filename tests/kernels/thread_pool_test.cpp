#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/thread_pool.h"

namespace nightshift::kernels {
namespace {

using Piece = std::pair<int, int>;

std::vector<Piece> pieces_of(ThreadPool& pool, int count, int grain) {
  std::mutex mutex;
  std::vector<Piece> pieces;
  pool.parallel_for(count, grain, [&](int begin, int end) {
    const std::lock_guard<std::mutex> lock(mutex);
    pieces.emplace_back(begin, end);
  });
  return pieces;
}

}  // namespace

TEST_CASE("thread pool: every index is visited once, whatever count, grain and threads") {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int count : {0, 1, 2, 7, 100, 1000}) {
      for (int grain : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> visits(count);
        pool.parallel_for(count, grain, [&](int begin, int end) {
          for (int i = begin; i < end; ++i) visits[i].fetch_add(1);
        });
        bool once = true;
        for (const std::atomic<int>& visit : visits) once = once && visit.load() == 1;
        CHECK_MESSAGE(once, "threads " << threads << " count " << count << " grain " << grain);
      }
    }
  }
}

TEST_CASE("thread pool: pieces are at least as long as the grain, but the last") {
  ThreadPool pool(4);
  for (const Piece& piece : pieces_of(pool, 1003, 10)) {
    CHECK((piece.second - piece.first >= 10 || piece.second == 1003));
  }
}

TEST_CASE("thread pool: a count within one grain runs on the caller alone") {
  ThreadPool pool(4);
  std::thread::id where;
  pool.parallel_for(8, 8, [&](int, int) { where = std::this_thread::get_id(); });
  CHECK(where == std::this_thread::get_id());
}

TEST_CASE("thread pool: many short calls, with pauses long enough for the workers to sleep") {
  ThreadPool pool(3);
  long long total = 0;
  for (int round = 0; round < 2000; ++round) {
    std::atomic<int> sum{0};
    pool.parallel_for(16, 1, [&](int begin, int end) { sum.fetch_add(end - begin); });
    total += sum.load();
    if (round % 400 == 399) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(total == 2000 * 16);
}

TEST_CASE("thread pool: NIGHTSHIFT_THREADS decides, nonsense is ignored") {
  setenv("NIGHTSHIFT_THREADS", "3", 1);
  CHECK(ThreadPool::default_threads() == 3);
  setenv("NIGHTSHIFT_THREADS", "many", 1);
  CHECK(ThreadPool::default_threads() >= 1);
  CHECK(ThreadPool::default_threads() <= 1024);
  setenv("NIGHTSHIFT_THREADS", "-2", 1);
  CHECK(ThreadPool::default_threads() >= 1);
  unsetenv("NIGHTSHIFT_THREADS");
}

TEST_CASE("thread pool: fewer than one thread is one") {
  ThreadPool pool(0);
  CHECK(pool.threads() == 1);
  int sum = 0;
  pool.parallel_for(5, 1, [&](int begin, int end) { sum += end - begin; });
  CHECK(sum == 5);
}

}  // namespace nightshift::kernels
