#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "schema/json.h"
#include "stages/engine/checkpoint.h"
#include "stages/engine/serving.h"
#include "stages/night/measure.h"
#include "stages/night/stages.h"

namespace nightshift {

namespace {

struct Range {
  int least = 0;
  int greatest = 0;
};

struct SoakParams {
  std::int64_t requests = 0;
  int concurrency = 0;
  Range input_tokens;
  Range output_tokens;
  double timeout_s = 0;
  std::string data;
};

Result<Range> range_from(const JsonReader& reader, const char* key) {
  NS_TRY_ASSIGN(const Json* pair, reader.array(key));
  if (pair->size() != 2 || !(*pair)[0].is_number_integer() || !(*pair)[1].is_number_integer()) {
    return Error{ErrorCode::invalid_argument, std::string(key) + " is not [least, greatest]",
                 "params of soak", ""};
  }
  const Range range{(*pair)[0].get<int>(), (*pair)[1].get<int>()};
  if (range.least < 1 || range.greatest < range.least) {
    return Error{ErrorCode::invalid_argument, std::string(key) + " is no range", "params of soak",
                 "1 <= least <= greatest"};
  }
  return range;
}

Result<SoakParams> params_from(const Json& json) {
  const JsonReader reader(json, "params of soak");
  SoakParams params;
  NS_TRY_ASSIGN(params.requests, reader.integer("requests", 1));
  NS_TRY_ASSIGN(const auto concurrency, reader.integer("concurrency", 1, 4096));
  params.concurrency = static_cast<int>(concurrency);
  NS_TRY_ASSIGN(params.input_tokens, range_from(reader, "input_tokens"));
  NS_TRY_ASSIGN(params.output_tokens, range_from(reader, "output_tokens"));
  NS_TRY_ASSIGN(const auto timeout_ms, reader.integer_or("timeout", 60'000, 1));
  params.timeout_s = static_cast<double>(timeout_ms) / 1e3;
  NS_TRY_ASSIGN(params.data, reader.string_or("data", ""));
  return params;
}

// Anonymous memory of this process, from /proc/self/statm (resident less shared pages).
double resident_bytes() {
  long pages = 0, resident = 0, shared = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld %ld", &pages, &resident, &shared) != 3) resident = shared = 0;
    std::fclose(file);
  }
  return static_cast<double>(resident - shared) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

// What the requests came to.
struct SoakResult {
  std::int64_t finished = 0;
  std::int64_t failed = 0;
  std::int64_t timed_out = 0;
  std::int64_t tokens = 0;
  double elapsed_s = 0;
  std::vector<double> ttft_ms, tpot_ms, e2e_ms;
  std::vector<std::pair<double, double>> memory;  // requests finished, resident bytes
  std::string first_error;
};

class Soak {
 public:
  Soak(Engine& engine, const SoakParams& params, const std::vector<TokenId>& stream,
       StageReporter& report)
      : params_(params),
        stream_(stream),
        report_(report),
        random_(20260101),
        loop_(engine, {.running_max = params.concurrency}) {}

  // Keeps `concurrency` requests in flight until all are finished.
  SoakResult run() {
    const auto begin = std::chrono::steady_clock::now();
    const auto clock = [begin] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    std::int64_t sent = 0;
    std::vector<ServeResult> finished;
    for (; sent < std::min<std::int64_t>(params_.concurrency, params_.requests); ++sent) {
      loop_.submit(make_request(sent), clock());
    }
    while (!loop_.idle()) {
      finished.clear();
      loop_.step(clock, finished);
      for (const ServeResult& result : finished) {
        take(result);
        if (sent < params_.requests) loop_.submit(make_request(sent++), clock());
      }
      if (!finished.empty()) {
        report_.progress(result_.finished, params_.requests, "requests",
                         static_cast<double>(result_.tokens) / clock(), "tok/s");
      }
    }
    result_.elapsed_s = clock();
    return std::move(result_);
  }

 private:
  int draw(const Range& range) {
    const auto width = static_cast<std::uint32_t>(range.greatest - range.least + 1);
    return range.least + static_cast<int>(random_() % width);
  }

  ServeRequest make_request(std::int64_t number) {
    ServeRequest request;
    request.id = static_cast<std::uint64_t>(number);
    const int length = draw(params_.input_tokens);
    std::size_t at = random_() % stream_.size();
    for (int n = 0; n < length; ++n, ++at) request.prompt.push_back(stream_[at % stream_.size()]);
    request.new_tokens_max = draw(params_.output_tokens);
    request.stop_at_eos = false;  // the length mix is the point
    request.seed = 1;
    return request;
  }

  void take(const ServeResult& result) {
    ++result_.finished;
    const double e2e_s = result.finished_s - result.arrived_s;
    if (!result.error.empty() || e2e_s > params_.timeout_s) {
      ++(result.error.empty() ? result_.timed_out : result_.failed);
      if (result_.first_error.empty()) {
        result_.first_error = "request " + std::to_string(result.id) + ": " +
                              (result.error.empty() ? "over its time limit" : result.error);
      }
      return;
    }
    const auto count = static_cast<double>(result.tokens.size());
    result_.tokens += static_cast<std::int64_t>(result.tokens.size());
    result_.e2e_ms.push_back(e2e_s * 1e3);
    result_.ttft_ms.push_back((result.first_token_s - result.arrived_s) * 1e3);
    if (count > 1) {
      result_.tpot_ms.push_back((result.finished_s - result.first_token_s) * 1e3 / (count - 1));
    }
    if (result_.finished % 50 == 0) {
      result_.memory.emplace_back(static_cast<double>(result_.finished), resident_bytes());
    }
  }

  const SoakParams& params_;
  const std::vector<TokenId>& stream_;
  StageReporter& report_;
  std::mt19937 random_;
  ServingLoop loop_;
  SoakResult result_;
};

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  const auto at =
      static_cast<std::size_t>(percent / 100.0 * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

// Least squares over the second half of the run (the first one still warms up), in bytes for each
// thousand requests.
double memory_slope(const std::vector<std::pair<double, double>>& samples) {
  const std::size_t from = samples.size() / 2;
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (std::size_t i = from; i < samples.size(); ++i) {
    n += 1;
    x += samples[i].first;
    y += samples[i].second;
    xx += samples[i].first * samples[i].first;
    xy += samples[i].first * samples[i].second;
  }
  const double spread = n * xx - x * x;
  return spread > 0 ? (n * xy - x * y) / spread * 1000.0 : 0;
}

void report_soak(const SoakResult& soak, const std::string& digest, StageReporter& report) {
  const auto metric = [&](const char* name, double value, const char* unit,
                          const char* group = "") {
    report.metric(name, value, unit, digest, group);
  };
  metric("soak_requests", static_cast<double>(soak.finished), "requests");
  metric("soak_failed", static_cast<double>(soak.failed), "requests");
  metric("soak_timed_out", static_cast<double>(soak.timed_out), "requests");
  metric("soak_throughput_tok_s", static_cast<double>(soak.tokens) / soak.elapsed_s, "tok/s");
  metric("soak_memory_slope", memory_slope(soak.memory), "bytes per 1000 requests");
  const auto latency = [&](const char* name, const std::vector<double>& values) {
    metric(name, percentile(values, 50), "ms", "p50");
    metric(name, percentile(values, 95), "ms", "p95");
    metric(name, percentile(values, 99), "ms", "p99");
  };
  latency("soak_ttft_ms", soak.ttft_ms);
  latency("soak_tpot_ms", soak.tpot_ms);
  latency("soak_e2e_ms", soak.e2e_ms);
}

}  // namespace

Result<StageEnd> run_soak(const StageContext& context) {
  NS_TRY_ASSIGN(const Json json, parse_json(context.order.params_json, "params of soak"));
  NS_TRY_ASSIGN(const SoakParams params, params_from(json));
  NS_TRY_ASSIGN(const std::string input, context.input());
  NS_TRY_ASSIGN(const TextModel text, TextModel::open(input));
  QualitySpec prompts;
  NS_TRY_ASSIGN(prompts, quality_spec_from(json, "params of soak"));
  if (!params.data.empty()) prompts.heldout = {{"data", params.data}};
  NS_TRY_ASSIGN(const auto stream, bench_stream(text, prompts, text.tokenizer().size()));

  NS_TRY(carry_files(input, context.out, Carry::link));
  NS_TRY_ASSIGN(CheckpointMeta meta, read_checkpoint_meta(input));
  meta.stage = context.order.stage;
  NS_TRY(write_checkpoint_meta(context.out, meta));

  EngineOptions options;
  options.logit_rows_max = params.concurrency;
  options.step_rows_max = std::max(options.step_rows_max, params.concurrency);
  const std::int64_t longest = params.input_tokens.greatest + params.output_tokens.greatest;
  options.kv_tokens = params.concurrency * (longest + meta.kv.block_tokens);
  NS_TRY_ASSIGN(auto engine, Engine::load(context.out, options));
  NS_TRY_ASSIGN(const std::string digest, model_digest(context.out, meta));
  context.report.metric("model", 1, "", digest);
  context.report.phase("soak");
  const SoakResult soak = Soak(*engine, params, stream, context.report).run();
  report_soak(soak, digest, context.report);

  RedLineResult none_failed{"soak_failed",
                            "0 requests",
                            0,
                            static_cast<double>(soak.failed + soak.timed_out),
                            false,
                            soak.failed + soak.timed_out == 0,
                            std::to_string(soak.finished) + " requests"};
  if (!soak.first_error.empty()) none_failed.detail += ", first: " + soak.first_error;
  context.report.red_line(none_failed);
  return none_failed.pass ? StageEnd::ok : StageEnd::red_line;
}

}  // namespace nightshift
