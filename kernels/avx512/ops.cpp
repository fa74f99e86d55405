#define NS_ISA avx512
#include "kernels/avx512/simd.h"
#include "kernels/isa/experts_isa.h"
#include "kernels/isa/heads_isa.h"
#include "kernels/isa/positions_isa.h"
#include "kernels/isa/rows_isa.h"
