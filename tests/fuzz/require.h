// What a fuzzer demands: anything else is a finding. Knows nothing of what is fuzzed.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

inline void require(bool holds, const char* what, const std::string& detail) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s: %s\n", what, detail.c_str());
  std::abort();
}
