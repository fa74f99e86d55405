#define NS_ISA avx512
#include "kernels/avx512/simd.h"
#include "kernels/isa/attention_isa.h"
