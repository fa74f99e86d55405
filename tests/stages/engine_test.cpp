// Loading and running: fused against unfused, limits, cache accounting, serving.
#include <doctest/doctest.h>

#include <algorithm>

#include "stages/engine/checkpoint.h"
#include "stages/engine/generation.h"
#include "stages/engine/scoring.h"
#include "stages/engine/serving.h"
#include "stages/night/measure.h"
#include "tests/stages/checkpoint_folder.h"
#include "tests/stages/reference_data.h"

using namespace nightshift;
using namespace nightshift::testing;

namespace {

std::vector<std::vector<std::int32_t>> reference_prompts() {
  std::vector<std::vector<std::int32_t>> prompts;
  for (const Json& prompt : reference()["prompts"]) {
    prompts.push_back(prompt["ids"].get<std::vector<std::int32_t>>());
  }
  return prompts;
}

}  // namespace

TEST_CASE("engine: fused and unfused give the same tokens, by fewer ops") {
  const CheckpointFolder fused("fused",
                               [](CheckpointMeta& meta) { meta.fusion.rules = fusion_rules(); });
  EngineOptions options;
  options.precision = kernels::Precision::f32;
  auto with = Engine::load(fused.path(), options);
  options.apply_fusion = false;
  auto without = Engine::load(fused.path(), options);
  REQUIRE(with.ok());
  REQUIRE(without.ok());
  CHECK((*with)->graph().ops.size() < (*without)->graph().ops.size());
  GenerationOptions greedy;
  greedy.new_tokens = 32;
  const auto prompts = reference_prompts();
  auto a = generate_batch(**with, prompts, greedy);
  auto b = generate_batch(**without, prompts, greedy);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(*a == *b);
  CHECK((*with)->executor().launches() < (*without)->executor().launches());
}

TEST_CASE("engine: small steps give the same tokens as large ones") {
  EngineOptions options;
  options.precision = kernels::Precision::f32;
  auto large = load_engine(options);
  options.step_rows_max = 7;
  options.logit_rows_max = 2;
  auto small = load_engine(options);
  GenerationOptions greedy;
  greedy.new_tokens = 12;
  const auto prompts = reference_prompts();
  auto a = generate_batch(*large, prompts, greedy);
  auto b = generate_batch(*small, prompts, greedy);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(*a == *b);
}

TEST_CASE("engine: sampling with a seed repeats, and another seed differs") {
  auto engine = load_engine({});
  GenerationOptions options;
  options.new_tokens = 24;
  options.sampling = {1.0f, 50, 0.95f};
  const auto prompts = reference_prompts();
  auto first = generate_batch(*engine, prompts, options);
  auto again = generate_batch(*engine, prompts, options);
  options.seed = 2;
  auto other = generate_batch(*engine, prompts, options);
  REQUIRE(first.ok());
  CHECK(*first == *again);
  CHECK(*first != *other);
}

TEST_CASE("engine: too little cache is an error with both numbers, and nothing is kept") {
  EngineOptions options;
  options.kv_tokens = 64;
  auto engine = load_engine(options);
  const int free = engine->cache().free_blocks();
  GenerationOptions greedy;
  greedy.new_tokens = 200;
  auto result = generate_batch(*engine, reference_prompts(), greedy);
  REQUIRE(!result.ok());
  CHECK(result.error().code == ErrorCode::unavailable);
  CHECK(engine->cache().free_blocks() == free);
}

TEST_CASE("engine: the account's peak is weights, cache, activations and scratch") {
  EngineOptions options;
  options.kv_tokens = 640;
  auto engine = load_engine(options);
  const MemoryAccount& memory = engine->memory();
  // Floor: 11.68 M parameters of 2 bytes (the embedding twice: as table and as head, 4096 x 256 x
  // 2).
  CHECK(memory.now(MemoryUse::weights) >= 2u * 11'680'000u);
  CHECK(memory.now(MemoryUse::weights) < 2u * 11'680'000u + 3u * 4096u * 256u);
  // 640 tokens x 6 layers x (k, v) x 2 heads x 64 x 2 bytes.
  CHECK(memory.now(MemoryUse::kv_cache) == 640u * 6u * 2u * 2u * 64u * 2u);
}

TEST_CASE("serving: bad requests get an error each and disturb no neighbour") {
  EngineOptions options;
  options.precision = kernels::Precision::f32;
  auto engine = load_engine(options);
  const auto prompts = reference_prompts();
  GenerationOptions greedy;
  greedy.new_tokens = 16;
  auto alone = generate_batch(*engine, std::span(prompts).first(1), greedy);
  REQUIRE(alone.ok());

  const int free = engine->cache().free_blocks();
  ServingLoop loop(*engine, {.running_max = 4, .prefill_rows_max = 8});
  const auto request = [&](std::uint64_t id, std::vector<std::int32_t> prompt, int tokens) {
    ServeRequest r;
    r.id = id;
    r.prompt = std::move(prompt);
    r.new_tokens_max = tokens;
    r.stop_at_eos = false;
    return r;
  };
  loop.submit(request(1, {}, 4), 0);
  loop.submit(request(2, prompts[0], 16), 0);
  loop.submit(request(3, {1, 2, 99999}, 4), 0);
  loop.submit(request(4, prompts[1], 100'000), 0);
  loop.submit(request(5, prompts[2], 0), 0);
  ServeRequest hot = request(6, prompts[3], 4);
  hot.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  loop.submit(hot, 0);
  loop.submit(request(7, prompts[4], 16), 0);
  std::vector<ServeResult> finished;
  for (int n = 0; n < 200 && !loop.idle(); ++n) loop.step([] { return 1.0; }, finished);
  REQUIRE(finished.size() == 7);
  for (const ServeResult& result : finished) {
    const bool good = result.id == 2 || result.id == 7;
    CHECK(result.error.empty() == good);
    if (result.id == 2) CHECK(result.tokens == alone->front());
  }
  CHECK(engine->cache().free_blocks() == free);
}

TEST_CASE("serving: cancel at any step gives all blocks back") {
  auto engine = load_engine({});
  const int free = engine->cache().free_blocks();
  const auto prompts = reference_prompts();
  for (int cancel_at = 0; cancel_at < 12; ++cancel_at) {
    ServingLoop loop(*engine, {.running_max = 3, .prefill_rows_max = 4});
    for (std::uint64_t id = 0; id < 6; ++id) {
      ServeRequest r;
      r.id = id;
      r.prompt = prompts[id];
      r.new_tokens_max = 6;
      loop.submit(r, 0);
    }
    std::vector<ServeResult> finished;
    for (int n = 0; n < cancel_at; ++n) loop.step([] { return 0.0; }, finished);
    for (std::uint64_t id = 0; id < 6; ++id) loop.cancel(id);
    CHECK(loop.idle());
    CHECK(engine->cache().free_blocks() == free);
  }
}

TEST_CASE("scoring: a group of requests scores as each alone") {
  EngineOptions options;
  options.precision = kernels::Precision::f32;
  options.logit_rows_max = 5;
  auto engine = load_engine(options);
  const auto prompts = reference_prompts();
  std::vector<ScoreRequest> requests;
  for (const auto& prompt : prompts) {
    requests.push_back({prompt, {{11, 12, 13}, {200}, {7, 8, 9, 10, 11, 12, 13}}});
  }
  auto together = score_continuations(*engine, requests);
  REQUIRE(together.ok());
  for (std::size_t n = 0; n < requests.size(); ++n) {
    auto alone = score_continuations(*engine, std::span(requests).subspan(n, 1));
    REQUIRE(alone.ok());
    CHECK(alone->front() == (*together)[n]);
  }
  const ScoreRequest empty{{1}, {{}}};
  CHECK(!score_continuations(*engine, {&empty, 1}).ok());
}

TEST_CASE("checkpoint: the digest follows what is computed, not names") {
  const CheckpointFolder plain("plain", [](CheckpointMeta&) {});
  const CheckpointFolder fused("fused2", [](CheckpointMeta& meta) { meta.fusion.rules = {"qkv"}; });
  const CheckpointFolder renamed("renamed", [](CheckpointMeta& meta) {
    meta.stage = "other";
    meta.measurements.push_back({"baseline", "x", {}});
  });
  const auto digest = [](const CheckpointFolder& folder) {
    auto meta = read_checkpoint_meta(folder.path());
    REQUIRE(meta.ok());
    auto value = model_digest(folder.path(), *meta);
    REQUIRE(value.ok());
    return *value;
  };
  CHECK(digest(plain) == digest(renamed));
  CHECK(digest(plain) != digest(fused));
}
