#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "stages/model_io/safetensors.h"

using namespace nightshift;

namespace {

struct Folder {
  Folder() {
    std::string pattern = "/tmp/nightshift-writer-XXXXXX";
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return path + "/" + name; }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }
  std::string path;
};

std::string read_raw(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((i * 31 + seed) & 0xff);
  return out;
}

bool is_bytes(const TensorView* view, const std::vector<std::byte>& expected) {
  return view != nullptr && view->bytes == expected.size() &&
         std::memcmp(view->data, expected.data(), expected.size()) == 0;
}

const std::vector<TensorDecl> mixed = {
    {"z", DType::bf16, {3}}, {"b", DType::i64, {1}}, {"empty", DType::f32, {0, 5}},
    {"a", DType::bf16, {2}}, {"s", DType::f32, {}},  {"q", DType::u8, {5}},
};

}  // namespace

TEST_CASE("safetensors writer: order is element size descending, then name") {
  const Folder folder;
  const auto writer = SafetensorsWriter::create(folder.file("m.safetensors"), mixed);
  REQUIRE(writer.ok());
  std::string order;
  for (const auto& tensor : writer->order()) order += tensor.name + " ";
  CHECK(order == "b empty s a z q ");
}

TEST_CASE("safetensors writer: what is written is read back") {
  const Folder folder;
  const std::string path = folder.file("m.safetensors");
  auto writer = SafetensorsWriter::create(path, mixed);
  REQUIRE(writer.ok());
  const auto data = pattern(8, 1);
  REQUIRE(writer->append("b", data).ok());
  REQUIRE(writer->append("empty", {}).ok());
  REQUIRE(writer->append("s", std::span(data).first(4)).ok());
  REQUIRE(writer->append("a", std::span(data).first(4)).ok());
  // In two parts.
  REQUIRE(writer->append("z", std::span(data).first(1)).ok());
  REQUIRE(writer->append("z", std::span(data).subspan(1, 5)).ok());
  REQUIRE(writer->append("q", std::span(data).first(5)).ok());
  CHECK_FALSE(std::filesystem::exists(path));
  REQUIRE(writer->finish().ok());
  CHECK(folder.entries() == 1);
  const auto file = SafetensorsFile::open(path);
  REQUIRE(file.ok());
  CHECK(file->file_bytes() == writer->file_bytes());
  CHECK(file->metadata().at("format") == "pt");
  CHECK(file->tensors().size() == 6);
  CHECK(is_bytes(file->find("b"), data));
  CHECK(is_bytes(file->find("z"), pattern(6, 1)));
  for (const auto& view : file->tensors()) CHECK(view.is_aligned());
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0644);
}

TEST_CASE("safetensors writer: the bytes are those of the reference layout") {
  const Folder folder;
  auto writer = SafetensorsWriter::create(folder.file("m.safetensors"),
                                          {{"w", DType::u8, {2}}, {"v", DType::f32, {1}}});
  REQUIRE(writer.ok());
  REQUIRE(writer->append("v", pattern(4, 0)).ok());
  REQUIRE(writer->append("w", pattern(2, 0)).ok());
  REQUIRE(writer->finish().ok());
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("w":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  const std::string raw = read_raw(folder.file("m.safetensors"));
  const std::size_t padded = (header.size() + 7) / 8 * 8;
  std::uint64_t length = 0;
  std::memcpy(&length, raw.data(), 8);
  CHECK(length == padded);
  CHECK(raw.substr(8, header.size()) == header);
  CHECK(raw.substr(8 + header.size(), padded - header.size()) ==
        std::string(padded - header.size(), ' '));
  CHECK(raw.size() == 8 + padded + 6);
}

TEST_CASE("safetensors writer: a copy of the sample model has the same tensors") {
  const auto source = SafetensorsFile::open("jobs/models/k3-nano/model.safetensors");
  REQUIRE(source.ok());
  const Folder folder;
  std::vector<TensorDecl> tensors;
  for (const auto& view : source->tensors()) tensors.push_back({view.name, view.dtype, view.shape});
  auto writer = SafetensorsWriter::create(folder.file("m.safetensors"), tensors);
  REQUIRE(writer.ok());
  for (const auto& tensor : writer->order()) {
    REQUIRE(writer->append(tensor.name, source->find(tensor.name)->span()).ok());
  }
  REQUIRE(writer->finish().ok());
  const auto copy = SafetensorsFile::open(folder.file("m.safetensors"));
  REQUIRE(copy.ok());
  REQUIRE(copy->tensors().size() == source->tensors().size());
  for (const auto& view : source->tensors()) {
    const TensorView* other = copy->find(view.name);
    REQUIRE(other != nullptr);
    CHECK(other->shape == view.shape);
    CHECK(std::memcmp(other->data, view.data, view.bytes) == 0);
  }
}

TEST_CASE("safetensors writer: misuse is reported and leaves nothing behind") {
  const Folder folder;
  const std::string path = folder.file("m.safetensors");
  {
    auto writer = SafetensorsWriter::create(path, {{"a", DType::u8, {2}}, {"b", DType::u8, {2}}});
    REQUIRE(writer.ok());
    CHECK_FALSE(writer->append("b", pattern(2, 0)).ok());
    CHECK_FALSE(writer->append("a", pattern(3, 0)).ok());
    REQUIRE(writer->append("a", pattern(2, 0)).ok());
    CHECK_FALSE(writer->append("a", pattern(1, 0)).ok());
    const auto finished = writer->finish();
    REQUIRE_FALSE(finished.ok());
    CHECK(finished.error().line().find("\"b\"") != std::string::npos);
  }
  CHECK(folder.entries() == 0);
  CHECK_FALSE(SafetensorsWriter::create(path, {{"a", DType::u8, {2}}, {"a", DType::u8, {1}}}).ok());
  CHECK_FALSE(SafetensorsWriter::create(path, {{"a", DType::u8, {-1}}}).ok());
  CHECK_FALSE(SafetensorsWriter::create(path, {{"", DType::u8, {1}}}).ok());
  CHECK_FALSE(SafetensorsWriter::create(path, {{"__metadata__", DType::u8, {1}}}).ok());
  CHECK_FALSE(SafetensorsWriter::create("/nowhere/m.safetensors", {{"a", DType::u8, {2}}}).ok());
  CHECK(folder.entries() == 0);
}

namespace {

// Writes 8 MB where the kernel stops at 1 MB; returns the bits of what went as it should.
int write_beyond_limit(const std::string& path) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{1u << 20, 1u << 20};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return -1;
  auto writer = SafetensorsWriter::create(path, {{"a", DType::u8, {8 << 20}}});
  if (!writer.ok()) return 0;
  Status status;
  for (int i = 0; i < 16 && status.ok(); ++i) status = writer->append("a", pattern(512 << 10, 0));
  const bool refused_later = !writer->append("a", pattern(1, 0)).ok() && !writer->finish().ok();
  const bool named = !status.ok() && status.error().where == path;
  return (status.ok() ? 0 : 1) | (refused_later ? 2 : 0) | (named ? 4 : 0);
}

}  // namespace

TEST_CASE("safetensors writer: a file that cannot grow leaves neither file nor temporary") {
  const Folder folder;
  const std::string path = folder.file("m.safetensors");
  std::ofstream(path) << "old";
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(write_beyond_limit(path));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(folder.entries() == 1);
  CHECK(read_raw(path) == "old");
}

namespace {

// In a child with mounts of its own: a file system of 1 MB, and 8 MB to write. 77: cannot be made
// here.
int write_to_full_disk(const std::string& folder) {
  if (::unshare(CLONE_NEWNS) != 0) return 77;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
  if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") != 0) return 77;
  const std::string path = folder + "/m.safetensors";
  auto writer = SafetensorsWriter::create(path, {{"a", DType::u8, {8 << 20}}});
  if (!writer.ok()) return 0;
  const Status status = writer->append("a", pattern(8 << 20, 0));
  const bool told = !status.ok() && status.error().code == ErrorCode::out_of_disk &&
                    !status.error().retryable() && status.error().where == path;
  const bool clean = std::filesystem::is_empty(folder);
  return (told ? 1 : 0) | (clean ? 2 : 0);
}

}  // namespace

TEST_CASE("safetensors writer: a full disk is told as such and leaves nothing behind") {
  const Folder folder;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(write_to_full_disk(folder.path));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    MESSAGE("skipped: no mounts allowed");
    return;
  }
  CHECK(WEXITSTATUS(status) == 3);
}

TEST_CASE("files: an abandoned file leaves the old one") {
  const Folder folder;
  const std::string path = folder.file("config.json");
  REQUIRE(write_file(path, "old").ok());
  {
    auto file = AtomicFile::create(path);
    REQUIRE(file.ok());
    REQUIRE(file->write("new").ok());
  }
  CHECK(read_raw(path) == "old");
  CHECK(folder.entries() == 1);
  REQUIRE(write_file(path, "new").ok());
  CHECK(read_file(path, 3).value() == "new");
  CHECK(read_file(path, 2).error().line() ==
        path + ": the file has 3 bytes, and at most 2 are read");
  CHECK(read_file(folder.path, 100).error().code == ErrorCode::invalid_argument);
}
