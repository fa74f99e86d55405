#define NS_ISA avx512
#include "kernels/avx512/simd.h"
#include "kernels/isa/product_isa.h"

namespace nightshift::kernels::avx512 {
namespace {

// bfloat16 times bfloat16 in pairs (VDPBF16PS).
struct BfloatPairs {
  using Acc = __m512;
  using Weight = __m512i;
  using Input = __m512i;
  static constexpr int panel = lanes;
  static constexpr int step_bytes = 64;
  static constexpr int group = 2;
  static constexpr int parts = 1;
  static constexpr int x_bytes = 4;
  static constexpr bool whole_steps = true;
  static constexpr int registers = 24;
  static constexpr int row_block = 12;
  static Weight weight(const char* p, int) { return _mm512_loadu_si512(p); }
  static Input input(const char* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof(pair));
    return _mm512_set1_epi32(pair);
  }
  static Acc mac(Acc acc, Input input, Weight weight) {
    return _mm512_dpbf16_ps(acc, (__m512bh)input, (__m512bh)weight);
  }
  static Acc start(const ProductTile&, int) { return zero(); }
  static VecF finish(const ProductTile&, Acc acc, int, int) { return acc; }
};

// Bytes in fours (VPDPBUSD). The instruction wants one operand unsigned: inputs carry +128, and
// each accumulator starts at the -128 * (row sum) that takes it out again.
struct ByteQuads {
  // The element type of the instruction: as __m512i, GCC 12 keeps the accumulators in memory.
  using Acc = int __attribute__((vector_size(64)));
  using Weight = __m512i;
  using Input = __m512i;
  static constexpr int panel = lanes;
  static constexpr int step_bytes = 64;
  static constexpr int group = 4;
  static constexpr int parts = 1;
  static constexpr int x_bytes = 4;
  static constexpr bool whole_steps = true;
  static constexpr int registers = 24;
  static constexpr int row_block = 12;
  static Weight weight(const char* p, int) { return _mm512_loadu_si512(p); }
  static Input input(const char* p) { return BfloatPairs::input(p); }
  static Acc mac(Acc acc, Input input, Weight weight) {
    return (Acc)_mm512_dpbusd_epi32((__m512i)acc, input, weight);
  }
  static Acc start(const ProductTile& tile, int column) {
    return (Acc)_mm512_loadu_si512(tile.w_offset + column);
  }
  static VecF finish(const ProductTile& tile, Acc acc, int row, int column) {
    const VecF scale = set1(tile.x_scale[row]) * load(tile.w_scale + column);
    return _mm512_cvtepi32_ps((__m512i)acc) * scale;
  }
};

std::size_t bf16_row_bytes(int k) { return (static_cast<std::size_t>(k) * 2 + 63) / 64 * 64; }
std::size_t byte_row_bytes(int k) { return (static_cast<std::size_t>(k) + 63) / 64 * 64; }

// The rest of a row's last step reads as zero (bfloat16) or as 128, which is zero with its offset:
// there the weights are zero, but a NaN left in memory would not be.
void prepare_bf16(const float* x, int rows, int k, ActivationQuant, char* out, std::size_t stride,
                  float*) {
  for (int row = 0; row < rows; ++row) {
    const float* source = x + static_cast<std::size_t>(row) * k;
    auto* target = reinterpret_cast<std::uint16_t*>(out + stride * row);
    int i = 0;
    for (; i + lanes <= k; i += lanes) store_bf16(target + i, load(source + i));
    if (i < k) store_bf16(target + i, load_n(source + i, k - i));
  }
}

void prepare_bytes(const float* x, int rows, int k, ActivationQuant activation, char* out,
                   std::size_t stride, float* scale) {
  for (int row = 0; row < rows; ++row) {
    const float* source = x + static_cast<std::size_t>(row) * k;
    char* target = out + stride * row;
    const RowScale chosen = row_scale(row_amax(source, k), activation);
    const VecF inverse = set1(chosen.inverse);
    scale[row] = chosen.scale;
    for (int i = 0; i < k; i += lanes) {
      const int n = k - i < lanes ? k - i : lanes;
      const __m512i q = _mm512_cvtps_epi32(quantised(load_n(source + i, n), inverse));
      const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_add_epi32(q, _mm512_set1_epi32(128)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), bytes);
    }
  }
}

}  // namespace

const ProductKernels& product_kernels() {
  static constexpr ProductKernels kernels{
      {{lanes, FloatWeights::group}, {lanes, BfloatPairs::group}, {lanes, ByteQuads::group}},
      BfloatPairs::row_block,
      {
          {no_row_bytes, nullptr, product_tile<FloatWeights>},
          {float_row_bytes, prepare_rounded, product_tile<FloatWeights>},
          {no_row_bytes, nullptr, product_tile<BfloatWeights>},
          {bf16_row_bytes, prepare_bf16, product_tile<BfloatPairs>},
          {byte_row_bytes, prepare_bytes, product_tile<ByteQuads>},
      },
      silu_mul};
  return kernels;
}

}  // namespace nightshift::kernels::avx512
