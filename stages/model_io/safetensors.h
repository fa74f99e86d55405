// One safetensors file, read by mapping and written as a stream. Knows the format and its rules;
// must not know models, names of layers or how tensors are computed with.
//
// The format: u64 little-endian header length N; N bytes of JSON {"name": {"dtype", "shape",
// "data_offsets": [begin, end)}, "__metadata__": {string: string}}, right-padded with spaces; then
// the data. Offsets count from the start of the data, cover it whole and once, in C order,
// little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "schema/result.h"
#include "stages/model_io/dtype.h"
#include "stages/model_io/files.h"

namespace nightshift {

using TensorShape = std::vector<std::int64_t>;

// "[4096, 256]"; "[]" for a scalar.
std::string to_string(const TensorShape& shape);
// Product of the shape times the size of an element; nothing where that overflows or a dimension is
// negative.
std::optional<std::uint64_t> tensor_bytes(DType dtype, const TensorShape& shape);

// A tensor in a mapped file. `data` may be unaligned in foreign files (check is_aligned before
// reading elements in place); it lives as long as the SafetensorsFile does.
struct TensorView {
  std::string name;
  DType dtype = DType::f32;
  TensorShape shape;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;

  std::size_t elements() const { return bytes / dtype_bytes(dtype); }
  bool is_aligned() const;
  std::span<const std::byte> span() const { return {data, bytes}; }
};

// A read-only mapping whose header passed every rule of the format. NaN and infinity in the data
// are not looked at. The file must not be truncated by others while it is open (that raises
// SIGBUS).
class SafetensorsFile {
 public:
  static constexpr std::uint64_t header_bytes_max = 100'000'000;

  static Result<SafetensorsFile> open(const std::string& path);

  const std::vector<TensorView>& tensors() const { return tensors_; }  // in the order of the data
  const TensorView* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }
  std::uint64_t file_bytes() const { return file_bytes_; }

 private:
  struct Mapping;
  SafetensorsFile() = default;
  Status read_header();
  Status read_entries(std::string_view header);
  Status check_layout(std::uint64_t data_bytes);

  std::string path_;
  std::uint64_t file_bytes_ = 0;
  std::shared_ptr<const Mapping> mapping_;
  std::map<std::string, std::string> metadata_;
  std::vector<TensorView> tensors_;
  std::vector<std::uint64_t> begins_;  // parallel to tensors_, while the header is read
  std::unordered_map<std::string, std::size_t> by_name_;
};

struct TensorDecl {
  std::string name;
  DType dtype = DType::f32;
  TensorShape shape;
};

// Writes one file, tensor after tensor, without holding more than a buffer of it. Data is appended
// in the order of order(): element size descending, then name, as the reference writer does, which
// aligns every tensor naturally. After an error, or without finish(), no file of the final name
// appears.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<TensorDecl> tensors,
                                          const std::map<std::string, std::string>& metadata = {
                                              {"format", "pt"}});

  const std::vector<TensorDecl>& order() const { return tensors_; }
  // Size of the finished file, for a check of the free space.
  std::uint64_t file_bytes() const { return file_bytes_; }
  // The next bytes of `name`, which must be the tensor whose turn it is; a tensor may come in
  // parts.
  Status append(std::string_view name, std::span<const std::byte> data);
  Status finish();

 private:
  SafetensorsWriter(AtomicFile file, std::string path, std::vector<TensorDecl> tensors);
  void skip_complete();

  AtomicFile file_;
  std::string path_;
  std::vector<TensorDecl> tensors_;
  std::uint64_t file_bytes_ = 0;
  std::size_t current_ = 0;
  std::uint64_t current_bytes_ = 0;  // written of tensors_[current_]
};

}  // namespace nightshift
