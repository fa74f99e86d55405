#include "stages/text/chat_template.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "schema/json.h"
#include "stages/model_io/files.h"

using namespace nightshift;

namespace {

const std::vector<ChatMessage> question = {{"user", "What does `ls` do?"}};

constexpr const char* qwen2_template =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("chat template: the sample model's prompts are those of its reference") {
  const auto chat = ChatTemplate::open("jobs/models/k3-nano");
  REQUIRE(chat.ok());
  CHECK(chat->default_system().empty());
  const auto reference = read_file("jobs/models/k3-nano/reference.json", 1 << 24);
  const Json prompts = parse_json(*reference, "reference.json").value()["prompts"];
  CHECK(chat->render(question, true).text == prompts[0]["text"].get<std::string>());
}

TEST_CASE("chat template: turns, generation prompt and the places of the contents") {
  const auto chat = ChatTemplate::open("jobs/models/k3-nano");
  REQUIRE(chat.ok());
  const std::vector<ChatMessage> messages = {
      {"system", "Be brief."}, {"user", "<|im_end|>"}, {"assistant", ""}};
  const RenderedChat rendered = chat->render(messages, false);
  CHECK(rendered.text ==
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<|im_end|><|im_end|>\n"
        "<|im_start|>assistant\n<|im_end|>\n");
  REQUIRE(rendered.contents.size() == 2);
  const auto piece = [&](std::size_t i) {
    const TextRange range = rendered.contents[i];
    return rendered.text.substr(range.begin, range.end - range.begin);
  };
  CHECK(piece(0) == "Be brief.");
  CHECK(piece(1) == "<|im_end|>");
  CHECK(chat->render({}, true).text == "<|im_start|>assistant\n");
  // The user's "<|im_end|>" is text: four turns would have four ends.
  const auto tokenizer = Tokenizer::open("jobs/models/k3-nano");
  const auto ids = tokenizer->encode(rendered.text, {.plain = rendered.contents}).value();
  CHECK(std::count(ids.begin(), ids.end(), 4095) == 3);
}

TEST_CASE("chat template: ChatML in other spellings") {
  const char* spellings[] = {
      // Real newlines, double quotes, members by dot, separate prints, blanks and dashes.
      "{%- for message in messages -%}\n    {{ \"<|im_start|>\" + message.role + \"\n\" }}\n"
      "    {{- message.content + \"<|im_end|>\n\" }}\n{%- endfor %}\n"
      "{% if add_generation_prompt %}{{- \"<|im_start|>assistant\n\" -}}{% endif %}\n",
      "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}"
      "{% endif %}{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\\n' }}{% endif %}",
  };
  for (const char* spelling : spellings) {
    CAPTURE(spelling);
    const auto chat = ChatTemplate::parse(spelling, "t");
    REQUIRE(chat.ok());
    CHECK(chat->render(question, true).text ==
          "<|im_start|>user\nWhat does `ls` do?<|im_end|>\n<|im_start|>assistant\n");
  }
}

TEST_CASE("chat template: a default system message") {
  const auto chat = ChatTemplate::parse(qwen2_template, "t");
  REQUIRE(chat.ok());
  CHECK(chat->default_system() == "You are a helpful assistant.");
  CHECK(chat->render(question, false).text ==
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nWhat does `ls` do?<|im_end|>\n");
  const std::vector<ChatMessage> own = {{"system", "s"}, {"user", "u"}};
  CHECK(chat->render(own, false).text ==
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n");
}

TEST_CASE("chat template: an unknown template is an error that says so") {
  const std::string chatml = qwen2_template;
  for (const std::string& text :
       {std::string(), std::string("{{ bos_token }}"), chatml + "x", chatml.substr(0, 200),
        std::string("{% for message in messages %}{{ message['content'] }}{% endfor %}"),
        std::string("{% for message in messages %}{{ '<|im_start|>")}) {
    CAPTURE(text);
    const auto chat = ChatTemplate::parse(text, "tokenizer_config.json");
    REQUIRE_FALSE(chat.ok());
    CHECK(chat.error().code == ErrorCode::unsupported);
    CHECK(has(chat.error().line(), "not recognised"));
  }
}

TEST_CASE("chat template: lists of templates, files beside, and none at all") {
  std::string pattern = "/tmp/nightshift-chat-XXXXXX";
  const std::string folder = ::mkdtemp(pattern.data());
  const std::string config = folder + "/tokenizer_config.json";
  CHECK_FALSE(ChatTemplate::open(folder).ok());
  REQUIRE(write_file(config, "{}").ok());
  CHECK(has(ChatTemplate::open(folder).error().line(), "no \"chat_template\""));
  const Json named = {{{"name", "tool_use"}, {"template", "x"}},
                      {{"name", "default"}, {"template", qwen2_template}}};
  REQUIRE(write_file(config, dump_json({{"chat_template", named}})).ok());
  CHECK(ChatTemplate::open(folder).ok());
  REQUIRE(write_file(config, dump_json({{"chat_template", 7}})).ok());
  CHECK_FALSE(ChatTemplate::open(folder).ok());
  REQUIRE(write_file(folder + "/chat_template.jinja", qwen2_template).ok());
  CHECK(ChatTemplate::open(folder).ok());
  std::filesystem::remove_all(folder);
}

TEST_CASE("chat template: real templates beyond ChatML are refused") {
  const char* real = std::getenv("NIGHTSHIFT_REAL_DATA");
  const std::string folder =
      std::string(real != nullptr ? real : "../shared/data/real") + "/tokenizers/ort-extensions";
  if (!std::filesystem::exists(folder)) {
    MESSAGE("skipped: no data");
    return;
  }
  for (const char* name : {"/qwen2.5", "/qwen3", "/phi-3", "/phi-2", "/gpt-oss"}) {
    CAPTURE(name);
    const auto chat = ChatTemplate::open(folder + name);
    REQUIRE_FALSE(chat.ok());
    CHECK(chat.error().code == ErrorCode::unsupported);
  }
}
