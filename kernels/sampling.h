// Drawing tokens. Knows the rule (see SampleParams and the reference); must not know an instruction
// set, which comes in as two row functions.
#pragma once

#include "kernels/kernels.h"

namespace nightshift::kernels {

struct SampleKernels {
  // The largest value and its lowest index; false when the row holds a NaN.
  bool (*row_max)(const float* x, int v, float* largest, int* index);
  // out[i] = exp((x[i] - largest) * inverse_temperature); returns the sum. out has v values.
  double (*row_exp)(const float* x, int v, float largest, float inverse_temperature, float* out);
};

void sample_rows(Context& context, const SampleKernels& kernels, const float* logits, int m, int v,
                 const SampleParams* params, const float* uniform, std::int32_t* ids);

}  // namespace nightshift::kernels
