// The serving loop: requests come and go, each step mixes decoding and prefill (continuous
// batching). Knows engines, queues and sampling; must not know text, tasks or wall clocks (`now_s`
// is an argument).
//
// A request is admitted when a place and all KV blocks that it can need are free, in order of
// arrival; running requests give one row each to a step and the rest of the step's rows go to
// prompts in pieces, so neither starves the other. A bad request gets an error of its own and
// disturbs no neighbour.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "schema/result.h"
#include "stages/engine/engine.h"

namespace nightshift {

struct ServeRequest {
  std::uint64_t id = 0;
  std::vector<std::int32_t> prompt;
  int new_tokens_max = 0;
  kernels::SampleParams sampling;
  std::uint64_t seed = 0;
  bool stop_at_eos = true;
};

struct ServeResult {
  std::uint64_t id = 0;
  std::vector<std::int32_t> tokens;
  std::string error;     // not empty: refused or failed, nothing was generated after it
  double arrived_s = 0;  // of the caller's clock
  double first_token_s = 0;
  double finished_s = 0;
};

struct ServingOptions {
  int running_max = 32;        // at most logit_rows_max of the engine
  int prefill_rows_max = 512;  // of one step; the trade-off of TTFT against throughput
};

struct ServingCounters {
  std::int64_t steps = 0;
  std::int64_t decode_rows = 0;
  std::int64_t prefill_rows = 0;
  std::int64_t blocked_on_kv = 0;  // steps at which a request waited for blocks
};

class ServingLoop {
 public:
  ServingLoop(Engine& engine, const ServingOptions& options);
  ~ServingLoop();
  ServingLoop(const ServingLoop&) = delete;
  ServingLoop& operator=(const ServingLoop&) = delete;

  void submit(ServeRequest request, double now_s);
  // Takes a waiting or running request out; its blocks are free at once. False: not here.
  bool cancel(std::uint64_t id);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  std::size_t running() const { return running_.size(); }

  // Admits, runs one step, samples. Appends what finished (or was refused) to `finished`.
  // `clock` is read after the step.
  template <typename Clock>
  void step(Clock&& clock, std::vector<ServeResult>& finished) {
    admit(finished, clock());
    build();
    if (batch_.rows() == 0) return;
    const float* logits = engine_.run(batch_);
    draw(logits, clock(), finished);
  }
  const ServingCounters& counters() const { return counters_; }

 private:
  struct Live {
    ServeRequest request;
    ServeResult result;
    SequenceId sequence;
    std::size_t prefilled = 0;
  };
  std::string refusal(const ServeRequest& request) const;
  void admit(std::vector<ServeResult>& finished, double now_s);
  void build();
  void draw(const float* logits, double now_s, std::vector<ServeResult>& finished);
  bool take(Live& live, std::int32_t token, double now_s);

  Engine& engine_;
  ServingOptions options_;
  std::deque<Live> waiting_;
  std::vector<Live> running_;
  Batch batch_;
  std::vector<std::size_t> owners_;  // index in running_ of each logit row
  ServingCounters counters_;
};

}  // namespace nightshift
