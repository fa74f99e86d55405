#include "stages/model_io/dtype.h"

#include <array>

namespace nightshift {
namespace {

struct DTypeFacts {
  DType dtype;
  const char* stored;
  std::size_t bytes;
  bool is_float;
};

constexpr std::array<DTypeFacts, 15> facts = {{
    {DType::boolean, "BOOL", 1, false},
    {DType::u8, "U8", 1, false},
    {DType::i8, "I8", 1, false},
    {DType::f8_e5m2, "F8_E5M2", 1, true},
    {DType::f8_e4m3, "F8_E4M3", 1, true},
    {DType::i16, "I16", 2, false},
    {DType::u16, "U16", 2, false},
    {DType::f16, "F16", 2, true},
    {DType::bf16, "BF16", 2, true},
    {DType::i32, "I32", 4, false},
    {DType::u32, "U32", 4, false},
    {DType::f32, "F32", 4, true},
    {DType::f64, "F64", 8, true},
    {DType::i64, "I64", 8, false},
    {DType::u64, "U64", 8, false},
}};

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].dtype != static_cast<DType>(i)) return false;
  }
  return true;
}
static_assert(is_in_order(), "facts is indexed by DType");

const DTypeFacts& facts_of(DType dtype) {
  return facts[static_cast<std::size_t>(dtype)];
}

}  // namespace

std::size_t dtype_bytes(DType dtype) {
  return facts_of(dtype).bytes;
}

const char* to_string(DType dtype) {
  return facts_of(dtype).stored;
}

bool is_float(DType dtype) {
  return facts_of(dtype).is_float;
}

std::optional<DType> dtype_from(std::string_view stored) {
  for (const auto& entry : facts) {
    if (stored == entry.stored) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace nightshift
