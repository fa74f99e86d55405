// The weights of a checkpoint, packed for a backend on demand. Knows tensor files, formats and
// packing; must not know graphs or stages.
//
// A matrix is stored as bf16/f32 `X.weight`, or, quantized, as int8 `X.weight` [out, in] with
// `X.weight_scale` [out, 1] in bf16 (compressed-tensors "int-quantized", symmetric per channel).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "schema/result.h"
#include "stages/engine/checkpoint_meta.h"
#include "stages/engine/graph.h"
#include "stages/model_io/weight_files.h"

namespace nightshift {

// A matrix as plain numbers: what quantize reads and packing starts from.
struct MatrixF32 {
  int n = 0;
  int k = 0;
  std::vector<float> values;  // [n, k]
};

class Weights {
 public:
  // `files` and `meta` must outlive this object.
  Weights(const WeightFiles& files, const CheckpointMeta& meta) : files_(files), meta_(meta) {}

  // "bf16", "f32" or "int8".
  std::string format_of(const std::string& name) const;

  // The matrices stacked on their rows (same k, same format) and packed for `backend`.
  Result<kernels::PackedMatrix> pack(const std::vector<std::string>& names,
                                     const kernels::Backend& backend) const;
  // A vector (norm weight) as float32.
  Result<std::vector<float>> vector(const std::string& name) const;
  // A 16- or 32-bit matrix as float32 (int8 is dequantized).
  Result<MatrixF32> matrix(const std::string& name) const;
  // The tensor `name`.weight as stored, in BF16, F16 or F32; a table of rows for embeddings.
  Result<TensorView> table(const std::string& name) const;

 private:
  struct Quantized {
    int n = 0;
    int k = 0;
    const std::int8_t* values = nullptr;  // [n, k], in the file
    std::vector<float> scales;            // [n]
  };
  Result<TensorView> tensor(const std::string& name) const;
  Result<Quantized> quantized(const std::string& name) const;
  Result<kernels::PackedMatrix> pack_quantized(const std::vector<std::string>& names,
                                               const kernels::Backend& backend) const;

  const WeightFiles& files_;
  const CheckpointMeta& meta_;
};

}  // namespace nightshift
