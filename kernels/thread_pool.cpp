#include "kernels/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

namespace nightshift::kernels {
namespace {

// The gate is one word, so that opening a job, joining it and closing it cannot interleave:
// generation in the upper half, `open` bit, and the number of workers inside the job.
// A worker that wakes too late finds the gate closed and never touches the job; the caller waits
// only for workers that did join, not for those that the system has not scheduled.
constexpr std::uint64_t open_bit = std::uint64_t{1} << 31;
constexpr std::uint64_t running_mask = open_bit - 1;
constexpr int generation_shift = 32;

constexpr int pauses_between_checks = 64;
constexpr std::chrono::microseconds spin_time{100};

std::uint64_t generation_of(std::uint64_t gate) { return gate >> generation_shift; }

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    const int cpus = CPU_COUNT(&set);
    if (cpus > 0) return cpus;
  }
  const unsigned cpus = std::thread::hardware_concurrency();
  return cpus > 0 ? static_cast<int>(cpus) : 1;
}

}  // namespace

struct ThreadPool::State {
  alignas(64) std::atomic<std::uint64_t> gate{0};
  alignas(64) std::atomic<int> next{0};
  alignas(64) const std::function<void(int, int)>* body = nullptr;
  int count = 0;
  int grain = 1;
  int threads = 1;
  bool may_spin = true;
  alignas(64) std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> workers;

  bool has_work(std::uint64_t seen) const {
    const std::uint64_t now = gate.load(std::memory_order_seq_cst);
    return ((now & open_bit) != 0 && generation_of(now) != seen) ||
           stop.load(std::memory_order_relaxed);
  }

  void run_pieces();
  void wait_for_work(std::uint64_t seen);
  void work();
};

// Guided: large pieces first, small ones at the end, so that an unlucky thread costs little.
void ThreadPool::State::run_pieces() {
  int begin = next.load(std::memory_order_relaxed);
  while (begin < count) {
    int size = (count - begin) / (2 * threads);
    if (size < grain) size = grain;
    const int end = size < count - begin ? begin + size : count;
    if (next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) {
      (*body)(begin, end);
      begin = next.load(std::memory_order_relaxed);
    }
  }
}

void ThreadPool::State::wait_for_work(std::uint64_t seen) {
  if (may_spin) {
    const auto give_up = std::chrono::steady_clock::now() + spin_time;
    do {
      for (int i = 0; i < pauses_between_checks; ++i) {
        if (has_work(seen)) return;
        pause_cpu();
      }
    } while (std::chrono::steady_clock::now() < give_up);
  }
  std::unique_lock<std::mutex> lock(mutex);
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  wake.wait(lock, [&] { return has_work(seen); });
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void ThreadPool::State::work() {
  std::uint64_t seen = 0;
  for (;;) {
    wait_for_work(seen);
    if (stop.load(std::memory_order_relaxed)) return;
    std::uint64_t now = gate.load(std::memory_order_relaxed);
    bool joined = false;
    while (!joined && (now & open_bit) != 0 && generation_of(now) != seen) {
      joined = gate.compare_exchange_weak(now, now + 1, std::memory_order_acquire);
    }
    if (!joined) continue;
    seen = generation_of(now);
    run_pieces();
    gate.fetch_sub(1, std::memory_order_release);
  }
}

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  state_->threads = threads < 1 ? 1 : threads;
  state_->may_spin = state_->threads <= usable_cpus();
  for (int i = 1; i < state_->threads; ++i) {
    state_->workers.emplace_back([state = state_.get()] { state->work(); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stop.store(true, std::memory_order_seq_cst);
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return state_->threads; }

int ThreadPool::default_threads() {
  if (const char* text = std::getenv("NIGHTSHIFT_THREADS")) {
    char* end = nullptr;
    const long threads = std::strtol(text, &end, 10);
    constexpr long most = 1024;
    if (end != text && *end == '\0' && threads >= 1 && threads <= most) {
      return static_cast<int>(threads);
    }
  }
  return usable_cpus();
}

void ThreadPool::parallel_for(int count, int grain,
                              const std::function<void(int begin, int end)>& body) {
  if (count <= 0) return;
  State& state = *state_;
  if (grain < 1) grain = 1;
  if (state.threads == 1 || count <= grain) {
    body(0, count);
    return;
  }
  state.body = &body;
  state.count = count;
  state.grain = grain;
  state.next.store(0, std::memory_order_relaxed);
  const std::uint64_t generation = generation_of(state.gate.load(std::memory_order_relaxed)) + 1;
  state.gate.store((generation << generation_shift) | open_bit, std::memory_order_seq_cst);
  if (state.sleepers.load(std::memory_order_seq_cst) > 0) {
    { const std::lock_guard<std::mutex> lock(state.mutex); }
    state.wake.notify_all();
  }
  state.run_pieces();
  std::uint64_t now = state.gate.fetch_and(~open_bit, std::memory_order_acq_rel);
  int pauses = 0;
  while ((now & running_mask) != 0) {
    if (!state.may_spin || ++pauses > pauses_between_checks * 256) {
      std::this_thread::yield();
    } else {
      pause_cpu();
    }
    now = state.gate.load(std::memory_order_acquire);
  }
}

}  // namespace nightshift::kernels
