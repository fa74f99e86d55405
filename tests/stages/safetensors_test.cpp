#include "stages/model_io/safetensors.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

using namespace nightshift;

namespace {

constexpr const char* k3_nano = "jobs/models/k3-nano/model.safetensors";

struct Folder {
  Folder() {
    std::string pattern = "/tmp/nightshift-safetensors-XXXXXX";
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

void write_raw(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string length_prefix(std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

// A file of this header and so many zero bytes of data.
std::string make_file(const std::string& header, std::size_t data_bytes) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\0');
}

std::string refusal(const std::string& bytes) {
  const Folder folder;
  write_raw(folder.file("m.safetensors"), bytes);
  const auto opened = SafetensorsFile::open(folder.file("m.safetensors"));
  REQUIRE_FALSE(opened.ok());
  CHECK_FALSE(opened.error().retryable());
  const std::string line = opened.error().line();
  CHECK(line.find("m.safetensors") != std::string::npos);
  return line;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("safetensors: the sample model is read") {
  const auto file = SafetensorsFile::open(k3_nano);
  REQUIRE(file.ok());
  CHECK(file->tensors().size() == 200);  // 201 entries with __metadata__
  CHECK(file->metadata().at("format") == "pt");
  const TensorView* embed = file->find("model.embed_tokens.weight");
  REQUIRE(embed != nullptr);
  CHECK(embed->dtype == DType::bf16);
  CHECK(to_string(embed->shape) == "[4096, 256]");
  CHECK(embed->bytes == 4096 * 256 * 2);
  CHECK(embed->elements() == 4096 * 256);
  CHECK(embed->is_aligned());
  // Its data_offsets are [0, 2097152] in a file whose header takes 24600 bytes.
  CHECK(embed->data == file->tensors().front().data);
  CHECK(file->find("model.layers.0.self_attn.q_proj.weight")->data - embed->data == 2097152);
  CHECK(file->find("nothing") == nullptr);
}

TEST_CASE("safetensors: views outlive a move of the file") {
  auto opened = SafetensorsFile::open(k3_nano);
  REQUIRE(opened.ok());
  const TensorView* view = opened->find("model.norm.weight");
  const SafetensorsFile moved = std::move(opened).value();
  CHECK(moved.find("model.norm.weight") == view);
  CHECK(view->bytes == 512);
}

TEST_CASE("safetensors: a scalar and tensors without bytes are legal") {
  const Folder folder;
  write_raw(folder.file("m.safetensors"),
            make_file(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                      R"("z":{"dtype":"I64","shape":[3,0],"data_offsets":[4,4]},)"
                      R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                      R"("b":{"dtype":"BOOL","shape":[1],"data_offsets":[4,5]}}   )",
                      5));
  const auto file = SafetensorsFile::open(folder.file("m.safetensors"));
  REQUIRE(file.ok());
  CHECK(file->tensors().size() == 4);
  CHECK(file->find("s")->elements() == 1);
  CHECK(file->find("s")->shape.empty());
  CHECK(file->find("z")->bytes == 0);
  CHECK(file->find("b")->bytes == 1);
}

TEST_CASE("safetensors: an empty model and one of metadata alone are legal") {
  const Folder folder;
  for (const char* header : {"{}", R"({"__metadata__":{"format":"pt"}})"}) {
    write_raw(folder.file("m.safetensors"), make_file(header, 0));
    const auto file = SafetensorsFile::open(folder.file("m.safetensors"));
    REQUIRE(file.ok());
    CHECK(file->tensors().empty());
  }
}

TEST_CASE("safetensors: a missing file is named") {
  const auto opened = SafetensorsFile::open("/nowhere/model.safetensors");
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.error().code == ErrorCode::not_found);
  CHECK(has(opened.error().line(), "/nowhere/model.safetensors"));
  CHECK_FALSE(SafetensorsFile::open("/tmp").ok());
}

TEST_CASE("safetensors: hostile header lengths are refused with both numbers") {
  const std::string all_ones(8, '\xff');
  CHECK(has(refusal(all_ones), "18446744073709551615 bytes, more than the limit of 100000000"));
  CHECK(has(refusal(length_prefix(std::uint64_t{1} << 63) + "{}"), "9223372036854775808"));
  CHECK(has(refusal(length_prefix(100'000'001) + "{}"), "100000001 bytes, more than the limit"));
  // The header length is the size of the file and one more.
  CHECK(has(refusal(length_prefix(11) + "{}"), "says 11 bytes, but only 2 follow"));
  CHECK(has(refusal(length_prefix(3) + "{}"), "says 3 bytes, but only 2 follow"));
  CHECK(has(refusal(length_prefix(0) + "{}"), "does not start with '{'"));
  CHECK(has(refusal(""), "0 bytes cannot hold"));
  CHECK(has(refusal("1234567"), "7 bytes cannot hold"));
}

TEST_CASE("safetensors: a header that is not an object of tensors is refused") {
  CHECK(has(refusal(make_file(" {}", 0)), "does not start with '{'"));
  CHECK(has(refusal(make_file("{]", 0)), "not valid JSON"));
  CHECK(has(refusal(make_file("{\"\xff\": 1}", 0)), "not valid JSON"));
  CHECK(has(refusal(make_file(R"({"a": 1})", 0)), "expected an object"));
  CHECK(has(refusal(make_file(R"({"a": {"shape": [], "data_offsets": [0, 0]}})", 0)), "dtype"));
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4)),
            "shape"));
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4)),
            "shape"));
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", 4)),
            "unknown dtype \"F4\""));
  CHECK(has(refusal(make_file(R"({"__metadata__":{"format":1}})", 0)), "not a string"));
  CHECK(has(refusal(make_file(R"({"__metadata__":[]})", 0)), "__metadata__"));
}

TEST_CASE("safetensors: duplicate names are refused") {
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                              2)),
            "\"a\" appears twice"));
}

TEST_CASE("safetensors: shape and offsets must agree") {
  CHECK(has(
      refusal(make_file(R"({"a":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", 4)),
      "span 4 bytes, but F32 [1000, 1000] takes 4000000"));
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4)),
            "end before they begin"));
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4)),
            "not a pair"));
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4)),
            "not a pair"));
  // 2^32 * 2^32 elements wrap to none, and 2^62 elements of 8 bytes too.
  CHECK(has(refusal(make_file(
                R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0)),
            "overflows"));
  CHECK(has(refusal(make_file(
                R"({"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0)),
            "overflows"));
}

TEST_CASE("safetensors: overlapping offsets are refused") {
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                              6)),
            "\"b\" begins at 2, inside the data of another"));
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                              4)),
            "inside the data of another"));
}

TEST_CASE("safetensors: holes, missing and left-over data are refused") {
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                              R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
                              5)),
            "\"b\" begins at 3, which leaves a hole"));
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3)),
            "hole"));
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1)),
            "only 1 bytes are there"));
  CHECK(has(refusal(make_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3)),
            "1 bytes follow the data of the last tensor"));
}

TEST_CASE("safetensors: other formats are called by their name") {
  CHECK(has(refusal(std::string("PK\x03\x04") + std::string(100, 'x')), "PyTorch"));
  CHECK(has(refusal("GGUF" + std::string(100, '\0')), "GGUF"));
  CHECK(has(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "Git LFS"));
}

TEST_CASE("safetensors: truncation at every byte is an error") {
  const std::string whole = make_file(R"({"__metadata__":{"format":"pt"},)"
                                      R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                                      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}})",
                                      24);
  const Folder folder;
  const std::string path = folder.file("m.safetensors");
  write_raw(path, whole);
  REQUIRE(SafetensorsFile::open(path).ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    write_raw(path, whole.substr(0, size));
    CHECK_FALSE(SafetensorsFile::open(path).ok());
  }
}

TEST_CASE("safetensors: a changed byte of the header is never a crash") {
  const std::string whole =
      make_file(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16);
  const Folder folder;
  const std::string path = folder.file("m.safetensors");
  for (std::size_t at = 0; at < whole.size() - 16; ++at) {
    for (const int change : {0x01, 0x10, 0x80, 0xff}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ change);
      write_raw(path, changed);
      const auto opened = SafetensorsFile::open(path);
      if (!opened.ok()) continue;
      std::size_t total = 0;
      for (const auto& view : opened->tensors()) total += view.bytes;
      CHECK(total == 16);
    }
  }
}

TEST_CASE("safetensors: a real foreign file with I8 tensors and long metadata") {
  const char* folder = std::getenv("NIGHTSHIFT_REAL_DATA");
  const std::string path = std::string(folder != nullptr ? folder : "../shared/data/real") +
                           "/safetensors/hadamards.safetensors";
  if (!std::filesystem::exists(path)) {
    MESSAGE("skipped: no data");
    return;
  }
  const auto file = SafetensorsFile::open(path);
  if (!file.ok()) MESSAGE(file.error().line());
  REQUIRE(file.ok());
  CHECK(file->tensors().size() > 0);
  CHECK(file->tensors().front().dtype == DType::i8);
  CHECK_FALSE(file->metadata().empty());
}
