// Counts and owns the engine's memory. Knows bytes and purposes; must not know models.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace nightshift {

// What memory is held for. The peak that a night reports is the peak of their sum, asked of this
// account and not seen from outside: page cache and the allocator's slack are not in it.
enum class MemoryUse { weights, kv_cache, activations, scratch };
inline constexpr std::size_t memory_uses = 4;
const char* to_string(MemoryUse use);

class MemoryAccount {
 public:
  void take(MemoryUse use, std::size_t bytes);
  void give_back(MemoryUse use, std::size_t bytes);
  // For memory that somebody else owns (kernel scratch): sets what is held now.
  void set(MemoryUse use, std::size_t bytes);

  std::size_t now() const { return now_; }
  std::size_t now(MemoryUse use) const { return held_[static_cast<std::size_t>(use)]; }
  std::size_t peak() const { return peak_; }
  // A new measurement begins: the peak is what is held now.
  void reset_peak() { peak_ = now_; }

 private:
  std::array<std::size_t, memory_uses> held_{};
  std::size_t now_ = 0;
  std::size_t peak_ = 0;
};

// 64-byte aligned memory that is in an account for as long as it lives. Large ones ask for huge
// pages. The contents are not initialised.
class Buffer {
 public:
  Buffer() = default;
  // The account must outlive the buffer. Throws std::bad_alloc.
  Buffer(MemoryAccount& account, MemoryUse use, std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  void release();

  MemoryAccount* account_ = nullptr;
  MemoryUse use_ = MemoryUse::activations;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace nightshift
