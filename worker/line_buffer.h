// Cuts a byte stream into lines with bounded memory. Knows bytes; must not know what lines mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nightshift {

// A line that grows beyond the bound is dropped up to its newline and counted; the lines behind it
// come through. A final '\r' and empty lines are left out.
class LineBuffer {
 public:
  explicit LineBuffer(std::size_t line_bytes_max) : line_bytes_max_(line_bytes_max) {}

  // The complete lines that `bytes` brought.
  std::vector<std::string> add(std::string_view bytes);
  // At the end of the stream: the last line without newline, when there is one.
  std::vector<std::string> finish();
  std::int64_t dropped() const { return dropped_; }

 private:
  std::size_t line_bytes_max_;
  std::string rest_;
  bool dropping_ = false;
  std::int64_t dropped_ = 0;
};

}  // namespace nightshift
