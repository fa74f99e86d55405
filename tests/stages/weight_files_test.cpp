#include "stages/model_io/weight_files.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "stages/model_io/files.h"

using namespace nightshift;

namespace {

struct Folder {
  Folder() {
    std::string pattern = "/tmp/nightshift-weights-XXXXXX";
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

void write_tensors(const std::string& path, const std::vector<std::string>& names) {
  std::vector<TensorDecl> tensors;
  for (const auto& name : names) tensors.push_back({name, DType::u8, {1}});
  auto writer = SafetensorsWriter::create(path, tensors);
  REQUIRE(writer.ok());
  for (const auto& tensor : writer->order()) {
    const std::byte value{static_cast<unsigned char>(tensor.name[0])};
    REQUIRE(writer->append(tensor.name, {&value, 1}).ok());
  }
  REQUIRE(writer->finish().ok());
}

// Three shards of one tensor each and their index.
void write_sharded(const Folder& folder) {
  write_tensors(folder.file("s1.safetensors"), {"a"});
  write_tensors(folder.file("s2.safetensors"), {"b"});
  write_tensors(folder.file("s3.safetensors"), {"c"});
  REQUIRE(write_file(folder.file("model.safetensors.index.json"),
                     R"({"metadata": {"total_size": 3}, "weight_map": {"a": "s1.safetensors",
                         "b": "s2.safetensors", "c": "s3.safetensors"}})")
              .ok());
}

std::string refusal(const std::string& folder) {
  const auto opened = WeightFiles::open(folder);
  REQUIRE_FALSE(opened.ok());
  return opened.error().line();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("weight files: the sample model in one file") {
  const auto weights = WeightFiles::open("jobs/models/k3-nano");
  REQUIRE(weights.ok());
  CHECK(weights->tensors().size() == 200);
  CHECK(weights->total_bytes() == 23388192 - 8 - 24600);
  CHECK(weights->notes().empty());
  CHECK(weights->tensors().front()->name < weights->tensors().back()->name);
}

TEST_CASE("weight files: shards by their index") {
  const Folder folder;
  write_sharded(folder);
  const auto weights = WeightFiles::open(folder.path);
  REQUIRE(weights.ok());
  CHECK(weights->tensors().size() == 3);
  CHECK(weights->total_bytes() == 3);
  REQUIRE(weights->find("b") != nullptr);
  CHECK(*weights->find("b")->data == std::byte{'b'});
  CHECK(weights->notes().empty());
}

TEST_CASE("weight files: a missing shard is named before anything is opened") {
  const Folder folder;
  write_sharded(folder);
  std::filesystem::remove(folder.file("s2.safetensors"));
  CHECK(has(refusal(folder.path), "shard s2.safetensors is missing (1 of 3"));
}

TEST_CASE("weight files: strays are ignored with a note") {
  const Folder folder;
  write_sharded(folder);
  write_tensors(folder.file("model.safetensors"), {"a", "x"});
  write_tensors(folder.file("s3.safetensors"), {"c", "y"});
  const auto weights = WeightFiles::open(folder.path);
  REQUIRE(weights.ok());
  CHECK(weights->tensors().size() == 3);
  CHECK(weights->find("x") == nullptr);
  CHECK(weights->find("y") == nullptr);
  REQUIRE(weights->notes().size() == 2);
  CHECK(has(weights->notes()[0], "s3.safetensors: ignored 1 tensors"));
  CHECK(has(weights->notes()[1], "model.safetensors: ignored"));
}

TEST_CASE("weight files: a tensor that is not in its shard is named") {
  const Folder folder;
  write_sharded(folder);
  write_tensors(folder.file("s2.safetensors"), {"z"});
  const std::string line = refusal(folder.path);
  CHECK(has(line, "s2.safetensors"));
  CHECK(has(line, "\"b\" is not in this shard"));
}

TEST_CASE("weight files: a wrong total size is noted") {
  const Folder folder;
  write_tensors(folder.file("s1.safetensors"), {"a"});
  REQUIRE(write_file(folder.file("model.safetensors.index.json"),
                     R"({"metadata": {"total_size": 9}, "weight_map": {"a": "s1.safetensors"}})")
              .ok());
  const auto weights = WeightFiles::open(folder.path);
  REQUIRE(weights.ok());
  REQUIRE(weights->notes().size() == 1);
  CHECK(has(weights->notes()[0], "total_size says 9 bytes, the tensors have 1"));
}

TEST_CASE("weight files: a bad index is refused") {
  const Folder folder;
  const std::string index = folder.file("model.safetensors.index.json");
  for (const char* text :
       {"", "{}", "[]", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})",
        R"({"weight_map": {"a": "../s1.safetensors"}})", R"({"weight_map": {"a": "/etc/passwd"}})",
        R"({"weight_map": {"a": ".."}})", R"({"weight_map": {"a": ""}})"}) {
    CAPTURE(text);
    REQUIRE(write_file(index, text).ok());
    CHECK(has(refusal(folder.path), "model.safetensors.index.json"));
  }
}

TEST_CASE("weight files: a folder without weights says what is there instead") {
  const Folder folder;
  CHECK(has(refusal(folder.path), "neither model.safetensors nor model.safetensors.index.json"));
  REQUIRE(write_file(folder.file("pytorch_model.bin"), "x").ok());
  CHECK(has(refusal(folder.path), "only pytorch_model.bin"));
  CHECK(has(refusal("/nowhere"), "no such model folder"));
}

TEST_CASE("weight files: a real index without its shards names the first") {
  const char* real = std::getenv("NIGHTSHIFT_REAL_DATA");
  const std::string folder =
      std::string(real != nullptr ? real : "../shared/data/real") + "/configs/qwen-vl-chat-int4";
  if (!std::filesystem::exists(folder)) {
    MESSAGE("skipped: no data");
    return;
  }
  CHECK(has(refusal(folder), "is missing (5 of 5 shards are not there)"));
}
