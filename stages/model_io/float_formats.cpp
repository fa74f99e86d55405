#include "stages/model_io/float_formats.h"

#include <cmath>
#include <cstring>

namespace nightshift {

float float_of_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

float float_of_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 31u;
  const std::uint32_t mantissa = bits & 0x3ffu;
  std::uint32_t wide;
  if (exponent == 31) {
    wide = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    wide = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else {
    const float subnormal = static_cast<float>(mantissa) * (1.0f / 16777216.0f);
    std::memcpy(&wide, &subnormal, sizeof wide);
    wide |= sign;
  }
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

std::uint16_t bf16_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace nightshift
