#define NS_ISA avx2
#include "kernels/avx2/simd.h"
#include "kernels/isa/product_isa.h"

namespace nightshift::kernels::avx2 {
namespace {

// Bytes widened to 16 bits, multiplied in pairs (VPMADDWD): exact, where VPMADDUBSW saturates.
struct WidenedPairs {
  // The element type of the instruction: as __m256i, GCC 12 keeps the accumulators in memory.
  using Acc = int __attribute__((vector_size(32)));
  using Weight = __m256i;
  using Input = __m256i;
  static constexpr int panel = lanes;
  static constexpr int step_bytes = 16;
  static constexpr int group = 2;
  static constexpr int parts = 1;
  static constexpr int x_bytes = 4;
  static constexpr bool whole_steps = true;
  static constexpr int registers = 12;
  static constexpr int row_block = 6;
  static Weight weight(const char* p, int) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Input input(const char* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof(pair));
    return _mm256_set1_epi32(pair);
  }
  static Acc mac(Acc acc, Input input, Weight weight) {
    return acc + (Acc)_mm256_madd_epi16(input, weight);
  }
  static Acc start(const ProductTile&, int) { return (Acc)_mm256_setzero_si256(); }
  static VecF finish(const ProductTile& tile, Acc acc, int row, int column) {
    const VecF scale = set1(tile.x_scale[row]) * load(tile.w_scale + column);
    return _mm256_cvtepi32_ps((__m256i)acc) * scale;
  }
};

std::size_t word_row_bytes(int k) { return (static_cast<std::size_t>(k) * 2 + 63) / 64 * 64; }

void prepare_words(const float* x, int rows, int k, ActivationQuant activation, char* out,
                   std::size_t stride, float* scale) {
  for (int row = 0; row < rows; ++row) {
    const float* source = x + static_cast<std::size_t>(row) * k;
    char* target = out + stride * row;
    const RowScale chosen = row_scale(row_amax(source, k), activation);
    const VecF inverse = set1(chosen.inverse);
    scale[row] = chosen.scale;
    for (int i = 0; i < k; i += lanes) {
      const int n = k - i < lanes ? k - i : lanes;
      const __m256i q = _mm256_cvtps_epi32(quantised(load_n(source + i, n), inverse));
      const __m128i words =
          _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(target + 2 * i), words);
    }
  }
}

}  // namespace

// bfloat16 products: the input is rounded to bfloat16, both sides widened, multiplied as float32.
const ProductKernels& product_kernels() {
  static constexpr ProductKernels kernels{
      {{lanes, FloatWeights::group}, {lanes, BfloatWeights::group}, {lanes, WidenedPairs::group}},
      FloatKind::row_block,
      {
          {no_row_bytes, nullptr, product_tile<FloatWeights>},
          {float_row_bytes, prepare_rounded, product_tile<FloatWeights>},
          {no_row_bytes, nullptr, product_tile<BfloatWeights>},
          {float_row_bytes, prepare_rounded, product_tile<BfloatWeights>},
          {word_row_bytes, prepare_words, product_tile<WidenedPairs>},
      },
      silu_mul};
  return kernels;
}

}  // namespace nightshift::kernels::avx2
