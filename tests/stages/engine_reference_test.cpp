// The engine against right values that an independent PyTorch implementation computed in float64.
#include <doctest/doctest.h>

#include <cmath>

#include "stages/engine/generation.h"
#include "stages/engine/scoring.h"
#include "stages/engine/step_packer.h"
#include "stages/night/text_model.h"
#include "tests/stages/reference_data.h"

using namespace nightshift;
using namespace nightshift::testing;

namespace {

EngineOptions float32() {
  EngineOptions options;
  options.precision = kernels::Precision::f32;
  return options;
}

std::vector<std::int32_t> ids_of(const Json& prompt) {
  return prompt["ids"].get<std::vector<std::int32_t>>();
}

// Logits of every position of `ids`, [n, vocab].
std::vector<float> all_logits(Engine& engine, const std::vector<std::int32_t>& ids) {
  const auto vocab = static_cast<std::size_t>(engine.config().vocab_size);
  std::vector<float> logits(ids.size() * vocab);
  auto sequence = engine.cache().open(static_cast<int>(ids.size()));
  REQUIRE(sequence.ok());
  StepPacker packer(engine, [&](const float* rows, std::span<const std::size_t> tags) {
    for (std::size_t n = 0; n < tags.size(); ++n) {
      std::copy_n(rows + n * vocab, vocab,
                  logits.begin() + static_cast<std::ptrdiff_t>(tags[n] * vocab));
    }
  });
  packer.add(*sequence, ids, 0, 0);
  packer.flush();
  engine.cache().close(*sequence);
  return logits;
}

double log_sum_exp(const float* logits, std::size_t count) {
  double largest = -1e300, sum = 0;
  for (std::size_t n = 0; n < count; ++n) largest = std::max(largest, double(logits[n]));
  for (std::size_t n = 0; n < count; ++n) sum += std::exp(double(logits[n]) - largest);
  return largest + std::log(sum);
}

}  // namespace

TEST_CASE("engine: logits of every prompt within 2e-3 of float64 in float32 mode") {
  auto engine = load_engine(float32());
  const auto vocab = static_cast<std::size_t>(engine->config().vocab_size);
  for (const Json& prompt : reference()["prompts"]) {
    const auto ids = ids_of(prompt);
    const auto logits = all_logits(*engine, ids);
    const float* last = logits.data() + (ids.size() - 1) * vocab;
    double worst = 0;
    for (std::size_t v = 0; v < vocab; ++v) {
      worst = std::max(worst, std::fabs(double(last[v]) - prompt["logits_last"][v].get<double>()));
    }
    CHECK(worst < 2e-3);
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
      const float* row = logits.data() + t * vocab;
      const double nll = log_sum_exp(row, vocab) - double(row[ids[t + 1]]);
      CHECK(nll == doctest::Approx(prompt["nll"][t].get<double>()).epsilon(0.002));
    }
  }
}

TEST_CASE("engine: greedy continuations are those of float64 in float32 mode") {
  auto engine = load_engine(float32());
  for (const Json& prompt : reference()["prompts"]) {
    const auto expected = prompt["greedy_ids"].get<std::vector<std::int32_t>>();
    GenerationOptions options;
    options.new_tokens = static_cast<int>(expected.size());
    const std::vector<std::vector<std::int32_t>> prompts = {ids_of(prompt)};
    auto tokens = generate_batch(*engine, prompts, options);
    REQUIRE(tokens.ok());
    CHECK(tokens->front() == expected);
  }
}

TEST_CASE("engine: the batch does not change greedy tokens in float32 mode") {
  auto engine = load_engine(float32());
  std::vector<std::vector<std::int32_t>> prompts;
  for (const Json& prompt : reference()["prompts"]) prompts.push_back(ids_of(prompt));
  GenerationOptions options;
  options.new_tokens = 24;
  auto together = generate_batch(*engine, prompts, options);
  REQUIRE(together.ok());
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    auto alone = generate_batch(*engine, std::span(prompts).subspan(p, 1), options);
    REQUIRE(alone.ok());
    CHECK(alone->front() == (*together)[p]);
  }
}

TEST_CASE("engine: choices score as in float64, in the same order") {
  auto engine = load_engine(float32());
  auto text = TextModel::open(k3_nano);
  REQUIRE(text.ok());
  auto items = read_choice_items("jobs/data/eval.jsonl");
  REQUIRE(items.ok());
  std::map<std::string, const ChoiceItem*> by_id;
  for (const ChoiceItem& item : *items) by_id[item.id] = &item;
  for (const Json& expected : reference()["eval"]) {
    auto item = text->encode(*by_id.at(expected["id"].get<std::string>()));
    REQUIRE(item.ok());
    CHECK(item->prompt.size() == expected["prompt_tokens"].get<std::size_t>());
    const std::vector<ScoreRequest> requests = {{item->prompt, item->choices}};
    auto scores = score_continuations(*engine, requests);
    REQUIRE(scores.ok());
    const auto right = expected["choice_log_likelihood"].get<std::vector<double>>();
    for (std::size_t c = 0; c < right.size(); ++c) {
      CHECK(item->choices[c].size() == expected["choice_tokens"][c].get<std::size_t>());
      CHECK(scores->front()[c] == doctest::Approx(right[c]).epsilon(1e-3));
      for (std::size_t d = 0; d < right.size(); ++d) {
        CHECK((scores->front()[c] < scores->front()[d]) == (right[c] < right[d]));
      }
    }
  }
}

TEST_CASE("engine: bf16 deviates from float32 by a mean KL under 1e-3") {
  auto wide = load_engine(float32());
  auto narrow_engine = load_engine({});
  const auto vocab = static_cast<std::size_t>(wide->config().vocab_size);
  double kl = 0;
  std::size_t rows = 0;
  for (const Json& prompt : reference()["prompts"]) {
    const auto ids = ids_of(prompt);
    const auto p_logits = all_logits(*wide, ids);
    const auto q_logits = all_logits(*narrow_engine, ids);
    for (std::size_t t = 0; t < ids.size(); ++t, ++rows) {
      const float* p = p_logits.data() + t * vocab;
      const float* q = q_logits.data() + t * vocab;
      const double p_norm = log_sum_exp(p, vocab), q_norm = log_sum_exp(q, vocab);
      for (std::size_t v = 0; v < vocab; ++v) {
        const double log_p = double(p[v]) - p_norm;
        kl += std::exp(log_p) * (log_p - (double(q[v]) - q_norm));
      }
    }
  }
  kl /= double(rows);
  MESSAGE("mean KL(float32 || bf16) over " << rows << " positions: " << kl);
  CHECK(kl < 1e-3);
  CHECK(kl >= 0);
}
