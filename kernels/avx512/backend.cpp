// Compiled without the instruction set's flags: it runs before the CPU is asked.
#define NS_ISA avx512
#include "kernels/backends.h"
#include "kernels/isa/backend_isa.h"

namespace nightshift::kernels {

const Backend& avx512_backend() {
  static const Backend backend = avx512::make_backend("avx512");
  return backend;
}

}  // namespace nightshift::kernels
