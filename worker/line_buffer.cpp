#include "worker/line_buffer.h"

namespace nightshift {

std::vector<std::string> LineBuffer::add(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, newline);
    if (!dropping_ && rest_.size() + piece.size() > line_bytes_max_) {
      dropping_ = true;
      ++dropped_;
      rest_.clear();
      rest_.shrink_to_fit();
    }
    if (!dropping_) rest_ += piece;
    if (newline == std::string_view::npos) break;
    bytes.remove_prefix(newline + 1);
    dropping_ = false;
    if (!rest_.empty() && rest_.back() == '\r') rest_.pop_back();
    if (!rest_.empty()) lines.push_back(std::move(rest_));
    rest_.clear();
  }
  return lines;
}

std::vector<std::string> LineBuffer::finish() {
  if (dropping_ || rest_.empty()) return {};
  return add("\n");
}

}  // namespace nightshift
