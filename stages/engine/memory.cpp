#include "stages/engine/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace nightshift {

namespace {
constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = 2u << 20;
}  // namespace

const char* to_string(MemoryUse use) {
  switch (use) {
    case MemoryUse::weights: return "weights";
    case MemoryUse::kv_cache: return "kv_cache";
    case MemoryUse::activations: return "activations";
    case MemoryUse::scratch: return "scratch";
  }
  return "activations";
}

void MemoryAccount::take(MemoryUse use, std::size_t bytes) {
  held_[static_cast<std::size_t>(use)] += bytes;
  now_ += bytes;
  peak_ = std::max(peak_, now_);
}

void MemoryAccount::give_back(MemoryUse use, std::size_t bytes) {
  held_[static_cast<std::size_t>(use)] -= bytes;
  now_ -= bytes;
}

void MemoryAccount::set(MemoryUse use, std::size_t bytes) {
  give_back(use, now(use));
  take(use, bytes);
}

Buffer::Buffer(MemoryAccount& account, MemoryUse use, std::size_t bytes)
    : account_(&account), use_(use), bytes_(bytes) {
  if (bytes == 0) return;
  const std::size_t align = bytes >= huge_page ? huge_page : alignment;
  const std::size_t rounded = (bytes + align - 1) / align * align;
  void* memory = std::aligned_alloc(align, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  if (align == huge_page) ::madvise(memory, rounded, MADV_HUGEPAGE);  // a hint: failing is fine
  data_ = static_cast<std::byte*>(memory);
  account_->take(use_, bytes_);
}

void Buffer::release() {
  if (data_ == nullptr) return;
  std::free(data_);
  account_->give_back(use_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

Buffer::~Buffer() {
  release();
}

Buffer::Buffer(Buffer&& other) noexcept
    : account_(other.account_),
      use_(other.use_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    account_ = other.account_;
    use_ = other.use_;
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

}  // namespace nightshift
