// bfloat16 and SiLU one value at a time. Knows arithmetic only; must not be included by files of an
// instruction set (their copies of these functions would be other code under the same name).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace nightshift::kernels::reference {

inline float widen_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0.0f;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// Round to nearest even; a NaN stays a (quiet) NaN.
inline std::uint16_t narrow_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  constexpr std::uint32_t infinity = 0x7f800000u;
  if ((bits & 0x7fffffffu) > infinity) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float round_bf16(float value) { return widen_bf16(narrow_bf16(value)); }

inline float silu_of(float x) { return x / (1.0f + std::exp(-x)); }

}  // namespace nightshift::kernels::reference
