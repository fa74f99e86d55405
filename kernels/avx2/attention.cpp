#define NS_ISA avx2
#include "kernels/avx2/simd.h"
#include "kernels/isa/attention_isa.h"
