#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "schema/json.h"
#include "stages/text/tokenizer.h"

using namespace nightshift;

namespace {

using Ids = std::vector<TokenId>;

// Empty when the real files are not there.
std::string real_folder(const std::string& inside) {
  const char* folder = std::getenv("NIGHTSHIFT_REAL_DATA");
  const std::string path =
      std::string(folder != nullptr ? folder : "../shared/data/real") + "/" + inside;
  return std::filesystem::exists(path) ? path : "";
}

std::string read_raw(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Case {
  std::string text;
  Ids ids;
};

// The strings and ids that llama.cpp tests its vocabularies with; the ids come from the models' own
// tokenizers.
std::vector<Case> llamacpp_cases(const std::string& name) {
  const std::string base = real_folder("llamacpp_vocabs") + "/ggml-vocab-" + name + ".gguf";
  const std::string separator = "\n__ggml_vocab_test__\n";
  const std::string texts = read_raw(base + ".inp");
  std::istringstream lines(read_raw(base + ".out"));
  std::vector<Case> cases;
  std::string line;
  std::size_t at = 0;
  while (std::getline(lines, line)) {
    const std::size_t end = std::min(texts.find(separator, at), texts.size());
    Case one{texts.substr(at, end - at), {}};
    at = end + separator.size();
    std::istringstream numbers(line);
    for (TokenId id = 0; numbers >> id;) one.ids.push_back(id);
    cases.push_back(std::move(one));
  }
  return cases;
}

void check_cases(const Tokenizer& tokenizer, const std::vector<Case>& cases) {
  CHECK(cases.size() > 40);
  for (const auto& one : cases) {
    CAPTURE(one.text);
    const auto ids = tokenizer.encode(one.text);
    REQUIRE(ids.ok());
    CHECK(*ids == one.ids);
    CHECK(tokenizer.decode(*ids, false).value() == one.text);
  }
}

// A tokenizer.json of GPT-2 from its vocabulary and its list of merges.
Json gpt2_file(const std::string& folder) {
  Json merges = Json::array();
  std::istringstream lines(read_raw(folder + "/gpt2.merges.txt"));
  std::string line;
  while (std::getline(lines, line)) {
    if (!line.empty() && line.substr(0, 8) != "#version") merges.push_back(line);
  }
  const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return {{"pre_tokenizer", level},
          {"decoder", level},
          {"model",
           {{"type", "BPE"},
            {"vocab", parse_json(read_raw(folder + "/gpt2.vocab"), "gpt2.vocab").value()},
            {"merges", merges}}}};
}

// The same file with its merges in the other spelling.
Json respell(Json file) {
  for (Json& merge : file["model"]["merges"]) {
    if (merge.is_array()) {
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    } else {
      const auto text = merge.get<std::string>();
      const auto blank = text.find(' ');
      merge = {text.substr(0, blank), text.substr(blank + 1)};
    }
  }
  return file;
}

Result<Tokenizer> from_json(const Json& file) {
  return Tokenizer::parse(dump_json(file), "tokenizer.json");
}

#define NS_SKIP_WITHOUT(folder)  \
  if (folder.empty()) {          \
    MESSAGE("skipped: no data"); \
    return;                      \
  }

}  // namespace

TEST_CASE("real tokenizers: GPT-2 gives the ids that llama.cpp expects") {
  const std::string folder = real_folder("tokenizers/ort-extensions");
  NS_SKIP_WITHOUT(folder);
  const auto tokenizer = from_json(gpt2_file(folder));
  REQUIRE(tokenizer.ok());
  CHECK(tokenizer->size() == 50257);
  check_cases(*tokenizer, llamacpp_cases("gpt-2"));
}

TEST_CASE("real tokenizers: Falcon, with splitters behind ByteLevel") {
  const std::string folder = real_folder("tokenizers/ort-extensions/falcon-tokenizer");
  NS_SKIP_WITHOUT(folder);
  const auto tokenizer = Tokenizer::load(folder + "/tokenizer.json");
  REQUIRE(tokenizer.ok());
  check_cases(*tokenizer, llamacpp_cases("falcon"));
}

TEST_CASE("real tokenizers: Llama-3 style file of torchtune gives the ids of its own tests") {
  const std::string folder = real_folder("tokenizers/torchtune");
  NS_SKIP_WITHOUT(folder);
  const auto tokenizer = Tokenizer::load(folder + "/tokenizer.json");
  REQUIRE(tokenizer.ok());
  const std::string text =
      "I can see the sun. But even if I cannot see the sun, I know that it exists.";
  const Ids expected = {73,  503, 654, 262, 376, 110, 46,  690, 720, 428, 270, 1119, 654,
                        262, 376, 110, 44,  270, 686, 334, 312, 522, 511, 115, 46};
  CHECK(tokenizer->encode(text).value() == expected);
  CHECK(tokenizer->decode(expected).value() == text);
}

TEST_CASE("real tokenizers: Qwen2 style file of torchtune gives the ids of its own tests") {
  const std::string folder = real_folder("tokenizers/torchtune");
  NS_SKIP_WITHOUT(folder);
  const auto tokenizer = Tokenizer::load(folder + "/tiny_bpe_tokenizer.json");
  REQUIRE(tokenizer.ok());
  const std::string text =
      "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
      "Give me a short introduction to LLMs.<|im_end|>\n<|im_start|>assistant\n<|im_end|>";
  const Ids expected = {2001, 82,   88,   479,  94,   56,   119, 230, 98,  374, 494,
                        1318, 249,  13,   2002, 94,   2001, 273, 105, 94,  38,  229,
                        362,  98,   1695, 310,  1305, 165,  128, 432, 43,  44,  82,
                        13,   2002, 94,   2001, 397,  251,  249, 94,  2002};
  CHECK(tokenizer->encode(text).value() == expected);
  CHECK(tokenizer->decode(expected, false).value() == text);
}

TEST_CASE("real tokenizers: merges as pairs and as text give the same ids") {
  const std::string folder = real_folder("tokenizers/torchtune");
  NS_SKIP_WITHOUT(folder);
  const std::string text = read_raw("jobs/data/heldout.txt").substr(0, 50'000);
  std::string ascii;  // the small vocabulary does not have every byte
  for (const char c : text) {
    if ((c >= 'a' && c <= 'z') || c == ' ' || c == '.' || c == ',') ascii += c;
  }
  for (const char* name : {"/tokenizer.json", "/tiny_bpe_tokenizer.json"}) {
    CAPTURE(name);
    const Json file = parse_json(read_raw(folder + name), name).value();
    const auto first = from_json(file);
    const auto second = from_json(respell(file));
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    const Ids ids = first->encode(ascii).value();
    CHECK(ids.size() < ascii.size() / 2);
    CHECK(second->encode(ascii).value() == ids);
  }
}

TEST_CASE("real tokenizers: Phi-2 puts runs of blanks into one token") {
  const std::string folder = real_folder("tokenizers/ort-extensions/phi-2");
  NS_SKIP_WITHOUT(folder);
  const auto tokenizer = Tokenizer::load(folder + "/tokenizer.json");
  REQUIRE(tokenizer.ok());
  // Its added tokens 50257 to 50286 are runs of 31 down to 2 blanks; "x" is 87 in GPT-2's
  // vocabulary.
  CHECK(tokenizer->encode("x" + std::string(31, ' ') + "x").value() == Ids{87, 50257, 87});
  CHECK(tokenizer->encode("x" + std::string(33, ' ') + "x").value() == Ids{87, 50257, 50286, 87});
  CHECK(tokenizer->encode("<|endoftext|>").value() == Ids{50256});
  CHECK(tokenizer->decode(Ids{87, 50286, 87}).value() == "x  x");
}

TEST_CASE("real tokenizers: others are refused by what they need") {
  const std::string folder = real_folder("tokenizers");
  NS_SKIP_WITHOUT(folder);
  const auto refusal = [&](const std::string& name) {
    const auto tokenizer = Tokenizer::load(folder + name);
    return tokenizer.ok() ? "" : tokenizer.error().line();
  };
  const auto names = [&](const std::string& name, const char* what) {
    CAPTURE(name);
    CHECK(refusal(name).find(what) != std::string::npos);
  };
  names("/ort-extensions/llama2/tokenizer.json", "byte_fallback");
  names("/ort-extensions/phi-3/tokenizer.json", "byte_fallback");
  names("/ort-extensions/chatglm/tokenizer.json", "byte_fallback");
  names("/ort-extensions/added-tokens/tokenizer.json", "byte_fallback");
  names("/ort-extensions/tokenizer/t5-small/tokenizer.json", "\"vocab\"");
  names("/torchtune/tokenizer_gemma_cropped.json", "byte_fallback");
  names("/modelopt_tiny/tokenizer.json", "\"merges\" is empty");
  CHECK(refusal("/ort-extensions/tokenizer/roberta-base/tokenizer.json") == "");
}
