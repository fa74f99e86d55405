// Element types of stored tensors. Knows their names and sizes in the safetensors format; must not
// know how their numbers are computed with (kernels/ does).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace nightshift {

// The types of the safetensors format that occupy whole bytes. Stored as the upper-case name
// ("BF16").
enum class DType {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64,
};

std::size_t dtype_bytes(DType dtype);
const char* to_string(DType dtype);                        // "BF16", as stored
std::optional<DType> dtype_from(std::string_view stored);  // by the stored name
bool is_float(DType dtype);                                // F8, F16, BF16, F32, F64

}  // namespace nightshift
