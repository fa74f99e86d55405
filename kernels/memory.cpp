#include "kernels/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace nightshift::kernels {

void* allocate_block(std::size_t bytes) {
  constexpr std::size_t line = 64;
  constexpr std::size_t huge = std::size_t{2} << 20;
  const std::size_t alignment = bytes >= huge ? huge : line;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* block = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (block == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  // Only advice: a kernel without huge pages serves small ones.
  if (bytes >= huge) (void)madvise(block, rounded, MADV_HUGEPAGE);
#endif
  return block;
}

void free_block(void* block) { std::free(block); }

std::shared_ptr<void> make_block(std::size_t bytes) {
  return {allocate_block(bytes), [](void* block) { free_block(block); }};
}

}  // namespace nightshift::kernels
