#include "stages/model_io/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "schema/json.h"

namespace nightshift {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are mapped as they are stored");

constexpr std::uint64_t prefix_bytes = 8;
constexpr std::size_t rank_max = 64;
constexpr const char* metadata_key = "__metadata__";

// What a file is that people offer instead, by its first bytes; nullptr when it is none of these.
const char* other_format(std::string_view start) {
  if (start.substr(0, 4) == "PK\x03\x04") return "a zip archive, as PyTorch checkpoints (.pt) are";
  if (start.substr(0, 4) == "GGUF") return "a GGUF file";
  if (start.substr(0, 8) == "version ") return "a Git LFS pointer, not the file itself";
  if (start.substr(0, 2) == "\x80\x02") return "a Python pickle";
  return nullptr;
}

Error broken(const std::string& path, std::string what) {
  return Error{ErrorCode::corrupt, std::move(what), path, ""};
}

Result<TensorShape> read_shape(const Json& dimensions, const std::string& where) {
  if (dimensions.size() > rank_max) {
    return broken(where,
                  fmt::format("{} dimensions; at most {} are read", dimensions.size(), rank_max));
  }
  TensorShape shape;
  for (const Json& dimension : dimensions) {
    if (!dimension.is_number_unsigned() ||
        dimension.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
      return broken(where, "a dimension of \"shape\" is not a whole number of at most 2^63-1");
    }
    shape.push_back(dimension.get<std::int64_t>());
  }
  return shape;
}

// Element size descending, then name: naturally aligned, and equal to the reference writer's order.
bool comes_before(const TensorDecl& a, const TensorDecl& b) {
  if (dtype_bytes(a.dtype) != dtype_bytes(b.dtype)) {
    return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);
  }
  return a.name < b.name;
}

// The length prefix and the padded JSON. Appends text instead of building a JSON object, because an
// object would sort the tensors by name and the reference writer lists them in the order of the
// data.
std::string make_header(const std::vector<TensorDecl>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) json += fmt::format("\"{}\":{},", metadata_key, dump_json(metadata));
  std::uint64_t offset = 0;
  for (const auto& tensor : tensors) {
    const std::uint64_t end = offset + *tensor_bytes(tensor.dtype, tensor.shape);
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}},",
                        dump_json(tensor.name), to_string(tensor.dtype), dump_json(tensor.shape),
                        offset, end);
    offset = end;
  }
  if (json.back() == ',') json.pop_back();
  json += "}";
  json.resize((json.size() + prefix_bytes - 1) / prefix_bytes * prefix_bytes, ' ');
  const std::uint64_t length = json.size();
  std::string header(prefix_bytes, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

Status check_declarations(const std::vector<TensorDecl>& tensors, const std::string& path) {
  std::uint64_t total = 0;
  std::vector<std::string_view> names;
  for (const auto& tensor : tensors) {
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes || __builtin_add_overflow(total, *bytes, &total) || total > INT64_MAX) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("tensor \"{}\": shape {} is negative or overflows", tensor.name,
                               to_string(tensor.shape)),
                   path, ""};
    }
    if (tensor.name.empty() || tensor.name == metadata_key) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("\"{}\" cannot be the name of a tensor", tensor.name), path, ""};
    }
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("tensor \"{}\" is declared twice", *twice), path, ""};
  }
  return {};
}

}  // namespace

std::string to_string(const TensorShape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

std::optional<std::uint64_t> tensor_bytes(DType dtype, const TensorShape& shape) {
  std::uint64_t bytes = 1;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0 ||
        __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dimension), &bytes)) {
      return std::nullopt;
    }
  }
  if (__builtin_mul_overflow(bytes, std::uint64_t{dtype_bytes(dtype)}, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

bool TensorView::is_aligned() const {
  return reinterpret_cast<std::uintptr_t>(data) % dtype_bytes(dtype) == 0;
}

struct SafetensorsFile::Mapping {
  const std::byte* data = nullptr;
  std::size_t size = 0;

  Mapping(const std::byte* mapped, std::size_t bytes) : data(mapped), size(bytes) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data != nullptr) ::munmap(const_cast<std::byte*>(data), size);
  }
};

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_error(errno, "open the weights", path);
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    const int saved_errno = errno;
    ::close(fd);
    if (!known) return errno_error(saved_errno, "read the size of the weights", path);
    return Error{ErrorCode::invalid_argument, "is not a regular file", path, ""};
  }
  SafetensorsFile file;
  file.path_ = path;
  file.file_bytes_ = static_cast<std::uint64_t>(status.st_size);
  if (file.file_bytes_ < prefix_bytes) {
    ::close(fd);
    return broken(path,
                  fmt::format("truncated: {} bytes cannot hold the 8 bytes of a header length",
                              file.file_bytes_));
  }
  void* mapped = ::mmap(nullptr, file.file_bytes_, PROT_READ, MAP_SHARED, fd, 0);
  const int saved_errno = errno;
  ::close(fd);
  if (mapped == MAP_FAILED) return errno_error(saved_errno, "map the weights", path);
  file.mapping_ =
      std::make_shared<Mapping>(static_cast<const std::byte*>(mapped), file.file_bytes_);
  NS_TRY(file.read_header());
  return file;
}

Status SafetensorsFile::read_header() {
  std::uint64_t length = 0;
  std::memcpy(&length, mapping_->data, sizeof length);
  const char* text = reinterpret_cast<const char*>(mapping_->data);
  const std::uint64_t available = file_bytes_ - prefix_bytes;
  if (const char* other = other_format({text, prefix_bytes}); other != nullptr) {
    return Error{ErrorCode::unsupported, fmt::format("not a safetensors file: this is {}", other),
                 path_, "convert the model to safetensors first"};
  }
  if (length > header_bytes_max) {
    return broken(path_, fmt::format("the header length says {} bytes, more than the limit of {}",
                                     length, header_bytes_max));
  }
  if (length > available) {
    return broken(
        path_, fmt::format("truncated: the header length says {} bytes, but only {} follow", length,
                           available));
  }
  if (length == 0 || text[prefix_bytes] != '{') {
    return broken(path_, "the header does not start with '{'");
  }
  NS_TRY(read_entries({text + prefix_bytes, static_cast<std::size_t>(length)}));
  return check_layout(available - length);
}

Status SafetensorsFile::read_entries(std::string_view header) {
  auto parsed = parse_json(header, path_ + " header");
  if (!parsed.ok()) {
    parsed.error().code = ErrorCode::corrupt;
    return std::move(parsed.error());
  }
  for (const auto& [name, entry] : parsed->items()) {
    if (name == metadata_key) {
      if (!entry.is_object()) return broken(path_, "\"__metadata__\" is not an object of strings");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) {
          return broken(path_, fmt::format("\"__metadata__\": \"{}\" is not a string", key));
        }
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    const std::string where = fmt::format("{}: tensor \"{}\"", path_, name);
    const JsonReader reader(entry, where);
    NS_TRY_ASSIGN(const std::string dtype, reader.string("dtype"));
    NS_TRY_ASSIGN(const Json* dimensions, reader.array("shape"));
    NS_TRY_ASSIGN(const Json* offsets, reader.array("data_offsets"));
    TensorView view;
    view.name = name;
    const auto known = dtype_from(dtype);
    if (!known) return broken(where, fmt::format("unknown dtype \"{}\"", dtype.substr(0, 40)));
    view.dtype = *known;
    NS_TRY_ASSIGN(view.shape, read_shape(*dimensions, where));
    if (offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
        !(*offsets)[1].is_number_unsigned()) {
      return broken(where, "\"data_offsets\" is not a pair of whole numbers");
    }
    const auto begin = (*offsets)[0].get<std::uint64_t>();
    const auto end = (*offsets)[1].get<std::uint64_t>();
    if (end < begin) {
      return broken(where, fmt::format("data_offsets [{}, {}] end before they begin", begin, end));
    }
    const auto bytes = tensor_bytes(view.dtype, view.shape);
    if (!bytes) {
      return broken(where, fmt::format("shape {} overflows", to_string(view.shape)));
    }
    if (end - begin != *bytes) {
      return broken(
          where, fmt::format("data_offsets [{}, {}] span {} bytes, but {} {} takes {}", begin, end,
                             end - begin, dtype, to_string(view.shape), *bytes));
    }
    view.bytes = *bytes;
    tensors_.push_back(std::move(view));
    begins_.push_back(begin);
  }
  return {};
}

Status SafetensorsFile::check_layout(std::uint64_t data_bytes) {
  std::vector<std::size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
    // A tensor without bytes comes before the one whose data begins at the same place.
    if (begins_[a] != begins_[b]) return begins_[a] < begins_[b];
    if (tensors_[a].bytes != tensors_[b].bytes) return tensors_[a].bytes < tensors_[b].bytes;
    return tensors_[a].name < tensors_[b].name;
  });
  const std::byte* data = mapping_->data + (file_bytes_ - data_bytes);
  std::uint64_t expected = 0;
  std::vector<TensorView> sorted;
  sorted.reserve(tensors_.size());
  for (const std::size_t at : order) {
    TensorView& view = tensors_[at];
    if (begins_[at] != expected) {
      return broken(path_,
                    fmt::format("tensor \"{}\" begins at {}, {} {}", view.name, begins_[at],
                                begins_[at] < expected ? "inside the data of another, which ends at"
                                                       : "which leaves a hole after",
                                expected));
    }
    expected += view.bytes;
    if (expected > data_bytes) {
      return broken(path_, fmt::format("truncated: tensor \"{}\" ends at byte {} of the data, but "
                                       "only {} bytes are there",
                                       view.name, expected, data_bytes));
    }
    view.data = data + begins_[at];
    by_name_.emplace(view.name, sorted.size());
    sorted.push_back(std::move(view));
  }
  if (expected != data_bytes) {
    return broken(path_,
                  fmt::format("{} bytes follow the data of the last tensor, which ends at {}",
                              data_bytes - expected, expected));
  }
  tensors_ = std::move(sorted);
  begins_.clear();
  return {};
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

SafetensorsWriter::SafetensorsWriter(AtomicFile file, std::string path,
                                     std::vector<TensorDecl> tensors)
    : file_(std::move(file)), path_(std::move(path)), tensors_(std::move(tensors)) {}

Result<SafetensorsWriter> SafetensorsWriter::create(
    const std::string& path, std::vector<TensorDecl> tensors,
    const std::map<std::string, std::string>& metadata) {
  NS_TRY(check_declarations(tensors, path));
  std::sort(tensors.begin(), tensors.end(), comes_before);
  const std::string header = make_header(tensors, metadata);
  if (header.size() - prefix_bytes > SafetensorsFile::header_bytes_max) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the header takes {} bytes, more than the limit of {}",
                             header.size() - prefix_bytes, SafetensorsFile::header_bytes_max),
                 path, "write the model in shards"};
  }
  NS_TRY_ASSIGN(auto file, AtomicFile::create(path));
  NS_TRY(file.write(header));
  SafetensorsWriter writer(std::move(file), path, std::move(tensors));
  writer.file_bytes_ = header.size();
  for (const auto& tensor : writer.tensors_) {
    writer.file_bytes_ += *tensor_bytes(tensor.dtype, tensor.shape);
  }
  writer.skip_complete();
  return writer;
}

void SafetensorsWriter::skip_complete() {
  while (current_ < tensors_.size() &&
         current_bytes_ == *tensor_bytes(tensors_[current_].dtype, tensors_[current_].shape)) {
    ++current_;
    current_bytes_ = 0;
  }
}

Status SafetensorsWriter::append(std::string_view name, std::span<const std::byte> data) {
  // A tensor without bytes is passed over by itself; appending nothing to it is fine at any time.
  if (data.empty()) return {};
  if (current_ == tensors_.size() || tensors_[current_].name != name) {
    return Error{ErrorCode::internal,
                 fmt::format("tensor \"{}\" written out of turn: {} is next", name,
                             current_ == tensors_.size() ? "nothing" : tensors_[current_].name),
                 path_, ""};
  }
  const TensorDecl& tensor = tensors_[current_];
  const std::uint64_t left = *tensor_bytes(tensor.dtype, tensor.shape) - current_bytes_;
  if (data.size() > left) {
    return Error{
        ErrorCode::internal,
        fmt::format("tensor \"{}\": {} bytes written where {} are left", name, data.size(), left),
        path_, ""};
  }
  NS_TRY(file_.write(data));
  current_bytes_ += data.size();
  skip_complete();
  return {};
}

Status SafetensorsWriter::finish() {
  if (current_ != tensors_.size()) {
    return Error{ErrorCode::internal,
                 fmt::format("finished before tensor \"{}\" was written", tensors_[current_].name),
                 path_, ""};
  }
  return file_.commit();
}

}  // namespace nightshift
