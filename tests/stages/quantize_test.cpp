// Int8 rows, plan units, calibration statistics, scores: against arithmetic by hand.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "stages/model_io/float_formats.h"
#include "stages/night/calibration.h"
#include "stages/night/plan_units.h"
#include "stages/night/quality.h"
#include "stages/night/quantize_rows.h"
#include "stages/night/speed.h"
#include "tests/stages/reference_data.h"

using namespace nightshift;

TEST_CASE("int8 rows: every value within half a step, scales finite, extremes included") {
  const unsigned seed = 20261201;
  MESSAGE("seed " << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (const float magnitude : {1.0f, 1e-6f, 1e-30f, 1e30f, 0.0f}) {
    std::vector<float> w(4 * 33);
    for (float& value : w) value = magnitude * normal(random);
    const Int8Rows rows = quantize_rows(w.data(), 4, 33);
    for (std::size_t n = 0; n < w.size(); ++n) {
      const float scale = rows.scale[n / 33];
      CHECK(std::isfinite(scale));
      CHECK(scale > 0);
      CHECK(std::fabs(static_cast<float>(rows.values[n]) * scale - w[n]) <= 0.5001f * scale);
      CHECK(float_of_bf16(rows.scale_bits[n / 33]) == scale);
    }
  }
}

TEST_CASE("int8 rows: the largest value of either sign is reached") {
  const float w[] = {127.5f, -127.5f, 1.0f, 0.5f};
  const Int8Rows rows = quantize_rows(w, 1, 4);
  CHECK(rows.scale[0] == 1.0f);
  CHECK(rows.values[0] == 127);  // 127.5 rounds to 128, which int8 lacks
  CHECK(rows.values[1] == -128);
  CHECK(rows.values[2] == 1);
  CHECK(rows.values[3] == 0);  // half to even
}

TEST_CASE("bf16: round to nearest even, NaN stays") {
  CHECK(bf16_of(1.0f) == 0x3f80);
  CHECK(bf16_of(1.00390625f) == 0x3f80);  // exactly between: to even
  CHECK(bf16_of(1.01171875f) == 0x3f82);  // exactly between: to even
  CHECK(std::isnan(float_of_bf16(bf16_of(std::nanf("")))));
}

TEST_CASE("float16: the format's landmarks") {
  CHECK(float_of_f16(0x3c00) == 1.0f);
  CHECK(float_of_f16(0xc000) == -2.0f);
  CHECK(float_of_f16(0x7bff) == 65504.0f);
  CHECK(float_of_f16(0x0001) == std::ldexp(1.0f, -24));   // least subnormal
  CHECK(float_of_f16(0x03ff) == std::ldexp(1023.0f, -24));
  CHECK(std::isinf(float_of_f16(0x7c00)));
  CHECK(std::isnan(float_of_f16(0x7e00)));
}

TEST_CASE("plan units: experts int8, attention and router at 16 bits") {
  const Graph graph = build_graph(testing::load_engine({})->config());
  auto units = plan_units(graph, {});
  REQUIRE(units.ok());
  CHECK(units->size() == 6 * 4 + 1);
  for (const PlanUnit& unit : *units) {
    CHECK((unit.format == "int8") == unit.name.ends_with("mlp.experts"));
    if (unit.name.ends_with("mlp.experts")) CHECK(unit.weights.size() == 24);
    if (unit.name.ends_with("qkv")) CHECK(unit.outputs.size() == 3);
  }
}

TEST_CASE("plan units: override wins over keep; splitting a unit and typos are refused") {
  const Graph graph = build_graph(testing::load_engine({})->config());
  auto units = plan_units(graph, {{"*.mlp.experts.*"}, {{"layers.3.mlp.experts.*", "int8"}}});
  REQUIRE(units.ok());
  int int8 = 0;
  for (const PlanUnit& unit : *units) int8 += unit.format == "int8" ? 1 : 0;
  CHECK(int8 == 1);

  auto split = plan_units(graph, {{"layers.0.self_attn.q_proj"}, {}});
  REQUIRE(!split.ok());
  CHECK(split.error().hint.find("layers.0.self_attn.qkv") != std::string::npos);
  CHECK(!plan_units(graph, {{"*.self_atn.*"}, {}}).ok());
  CHECK(!plan_units(graph, {{}, {{"lm_head", "int8"}}}).ok());
  CHECK(!plan_units(graph, {{}, {{"*.self_attn.*", "int5"}}}).ok());
}

TEST_CASE("histogram: percentiles of known counts, growth keeps every value") {
  AbsHistogram histogram;
  histogram.make_room(2048.0f);  // bins of width 1
  CHECK(histogram.width() == 1.0f);
  for (int b = 0; b < 1000; ++b) histogram.counts()[static_cast<std::size_t>(b)] = 1;
  CHECK(histogram.percentile(50) == 500.0f);
  CHECK(histogram.percentile(99.9) == 999.0f);
  CHECK(histogram.percentile(100) == 1000.0f);
  histogram.make_room(1e6f);  // merges bins instead of growing without end
  CHECK(histogram.total() == 1000);
  CHECK(histogram.counts().size() <= AbsHistogram::bins_max);
  CHECK(histogram.percentile(100) >= 1000.0f);
  CHECK(AbsHistogram().percentile(99.9) == 0.0f);
}

TEST_CASE("calibration.json: what is written is read back") {
  Calibration calibration;
  calibration.samples = 3;
  calibration.inputs["x"] = {{"layers.0.self_attn.q_proj"}, 5, 2.5f, 1.25f, {1.0f, 2.5f}};
  calibration.expert_tokens["layers.0"] = {1, 0, 4};
  auto read = calibration_from_json(to_json_text(calibration), "test");
  REQUIRE(read.ok());
  REQUIRE(read->input_of("layers.0.self_attn.q_proj") != nullptr);
  CHECK(read->input_of("layers.0.self_attn.q_proj")->clip == 1.25f);
  CHECK(read->input_of("other") == nullptr);
  CHECK(read->expert_tokens["layers.0"][2] == 4);
}

TEST_CASE("scores: a tie gives its share, whoever is first") {
  CHECK(score_item({-1.0, -2.0}, 0).share == 1.0);
  CHECK(score_item({-1.0, -2.0}, 1).share == 0.0);
  CHECK(score_item({-1.0, -1.0, -1.0, -1.0}, 2).share == 0.25);
  CHECK(score_item({-1.0, -1.0, -3.0}, 0).share == 0.5);
  CHECK(score_item({-1.0, -1.0, -3.0}, 0).is_tie);
  CHECK(score_item({-2.0, -1.0, -1.0}, 0).share == 0.0);
}

TEST_CASE("spread: median of odd and even counts, least and greatest") {
  CHECK(spread_of({3, 1, 2}).median == 2);
  CHECK(spread_of({4, 1, 2, 3}).median == 2.5);
  CHECK(spread_of({4, 1, 2, 3}).greatest == 4);
  CHECK(spread_of({}).median == 0);
}
