// Compiled without the instruction set's flags: it runs before the CPU is asked.
#define NS_ISA avx2
#include "kernels/backends.h"
#include "kernels/isa/backend_isa.h"

namespace nightshift::kernels {

const Backend& avx2_backend() {
  static const Backend backend = avx2::make_backend("avx2");
  return backend;
}

}  // namespace nightshift::kernels
