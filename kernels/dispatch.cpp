#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/backends.h"
#include "kernels/kernels.h"

namespace nightshift::kernels {
namespace {

#if defined(NS_KERNELS_X86)
// __builtin_cpu_supports also asks the operating system (XCR0) whether it saves the registers.
bool cpu_has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool cpu_has_avx512() {
  __builtin_cpu_init();
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("avx512bf16");
}
#endif

}  // namespace

std::vector<const Backend*> usable_backends() {
  std::vector<const Backend*> backends{&scalar_backend()};
#if defined(NS_KERNELS_X86)
  if (cpu_has_avx2()) backends.push_back(&avx2_backend());
  if (cpu_has_avx512()) backends.push_back(&avx512_backend());
#endif
  return backends;
}

const Backend* choose_backend(std::string& reason) {
  const std::vector<const Backend*> usable = usable_backends();
  const char* forced = std::getenv("NIGHTSHIFT_ISA");
  if (forced == nullptr || *forced == '\0') {
    reason = std::string("fastest of this machine: ") + usable.back()->name;
    return usable.back();
  }
  std::string names;
  for (const Backend* backend : usable) {
    if (std::string(forced) == backend->name) {
      reason = std::string("forced by NIGHTSHIFT_ISA: ") + backend->name;
      return backend;
    }
    if (!names.empty()) names += ", ";
    names += backend->name;
  }
  reason = std::string("NIGHTSHIFT_ISA=") + forced + ": this machine runs " + names;
  return nullptr;
}

}  // namespace nightshift::kernels
