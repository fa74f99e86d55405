#include "kernels/kernels.h"
#include "kernels/memory.h"

namespace nightshift::kernels {

void* Context::scratch(int slot, std::size_t bytes) {
  Buffer& buffer = buffers[slot];
  if (buffer.bytes >= bytes && buffer.data != nullptr) return buffer.data;
  // Growing by half keeps a slowly growing batch from allocating at every call.
  constexpr std::size_t smallest = 4096;
  std::size_t wanted = bytes + bytes / 2;
  if (wanted < smallest) wanted = smallest;
  free_block(buffer.data);
  buffer = {};
  buffer.data = allocate_block(wanted);
  buffer.bytes = wanted;
  return buffer.data;
}

std::size_t Context::scratch_bytes() const {
  std::size_t total = 0;
  for (const Buffer& buffer : buffers) total += buffer.bytes;
  return total;
}

Context::~Context() {
  for (Buffer& buffer : buffers) free_block(buffer.data);
}

}  // namespace nightshift::kernels
