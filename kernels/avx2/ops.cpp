#define NS_ISA avx2
#include "kernels/avx2/simd.h"
#include "kernels/isa/experts_isa.h"
#include "kernels/isa/heads_isa.h"
#include "kernels/isa/positions_isa.h"
#include "kernels/isa/rows_isa.h"
