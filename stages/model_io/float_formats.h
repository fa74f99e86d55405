// bfloat16 and float16 bits to float32 and back. Knows numbers only.
#pragma once

#include <cstdint>

namespace nightshift {

// Exact.
float float_of_bf16(std::uint16_t bits);
// IEEE binary16, exact: subnormals, infinities and NaN included.
float float_of_f16(std::uint16_t bits);
// Round to nearest even; NaN stays NaN.
std::uint16_t bf16_of(float value);

}  // namespace nightshift
