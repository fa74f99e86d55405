// reference.json of K3-nano: what an independent float64 implementation computed. For tests.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "schema/json.h"
#include "stages/engine/engine.h"
#include "stages/model_io/files.h"

namespace nightshift::testing {

inline const std::string k3_nano = "jobs/models/k3-nano";

inline const Json& reference() {
  static const Json json = [] {
    auto text = read_file(k3_nano + "/reference.json", 64 << 20);
    REQUIRE(text.ok());
    auto parsed = parse_json(*text, "reference.json");
    REQUIRE(parsed.ok());
    return *parsed;
  }();
  return json;
}

inline std::unique_ptr<Engine> load_engine(EngineOptions options) {
  auto engine = Engine::load(k3_nano, options);
  if (!engine.ok()) FAIL(engine.error().line());
  return std::move(*engine);
}

}  // namespace nightshift::testing
