// The backends that this build holds. Knows their names; must not be included outside kernels/.
#pragma once

#include "kernels/kernels.h"

namespace nightshift::kernels {

// Filled tables; calling their operations on a CPU without the instructions is an illegal
// instruction, so dispatch asks the CPU first.
const Backend& avx2_backend();
const Backend& avx512_backend();

}  // namespace nightshift::kernels
