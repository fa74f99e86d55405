// P, D and TPOT of a checkpoint, its peak memory, and where the time goes. Knows engines and
// clocks; must not know tasks.
//
//   P     tokens generated a second at batch x input -> output: batch * output / the time from the
//         prompts entering the engine to the last token. Tokenising is outside the clock.
//   D     (TTFT) one request of `input` tokens entering the engine -> its first token drawn.
//   TPOT  the same request: time per further token.
//   peak  the most that the engine held at P: weights, KV cache, activations, scratch.
//
// `warmup` runs are left out; each figure is the median of `repeats`, with its least and greatest.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "schema/job_spec.h"
#include "schema/result.h"
#include "stages/night/stage_context.h"
#include "stages/text/tokenizer.h"

namespace nightshift {

struct Spread {
  double median = 0;
  double least = 0;
  double greatest = 0;
};
Spread spread_of(std::vector<double> values);

struct SpeedResult {
  Spread throughput_tok_s;
  Spread ttft_ms;
  Spread tpot_ms;
  double peak_memory_bytes = 0;
  std::map<std::string, double> memory_bytes;  // by MemoryUse, at the end of P
  double ops = 0;                              // of one step, sampling included
  double launches = 0;                         // kernel calls of one decode step
  std::map<std::string, double> time_share;    // by part, of one run of P
};

// `stream`: ids that the prompts are cut from.
Result<SpeedResult> measure_speed(const std::string& checkpoint, const BenchSpec& bench,
                                  const std::vector<TokenId>& stream, StageReporter& report);

// P, D and TPOT of two checkpoints side by side: both are loaded, and each run of the one is
// followed by a run of the other, so that what slows the machine meanwhile slows both. What
// relative red lines are judged on. Needs the memory of both.
struct SpeedFigures {
  Spread throughput_tok_s;
  Spread ttft_ms;
  Spread tpot_ms;
};
Result<std::array<SpeedFigures, 2>> compare_speed(const std::array<std::string, 2>& checkpoints,
                                                  const BenchSpec& bench,
                                                  const std::vector<TokenId>& stream,
                                                  StageReporter& report);

// Puts the figures into `numbers` and reports them as metrics of model `digest`.
void report_speed(const SpeedResult& speed, const std::string& digest, StageReporter& report,
                  Measurement& numbers);

}  // namespace nightshift
