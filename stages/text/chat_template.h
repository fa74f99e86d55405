// Chats to the text that a model was trained on. Knows the templates that it recognises; must not
// know tokens, and does not run Jinja.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"
#include "stages/text/tokenizer.h"

namespace nightshift {

struct ChatMessage {
  std::string role;  // system, user, assistant, tool
  std::string content;
};

struct RenderedChat {
  std::string text;
  // Where the messages' contents lie in `text`: give it to EncodeOptions::plain, so that a
  // "<|im_end|>" written by a user stays text.
  std::vector<TextRange> contents;
};

// ChatML: "<|im_start|>role\ncontent<|im_end|>\n" for each message, then "<|im_start|>assistant\n"
// when the model is to answer.
class ChatTemplate {
 public:
  // From folder/tokenizer_config.json (or folder/chat_template.jinja). A template that is not
  // recognised is an error that says so, not a guess.
  static Result<ChatTemplate> open(const std::string& folder);
  static Result<ChatTemplate> parse(std::string_view jinja, const std::string& where);

  RenderedChat render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;
  // The system message that the template adds where the chat has none; empty for none.
  const std::string& default_system() const { return default_system_; }

 private:
  ChatTemplate() = default;

  std::string default_system_;
};

}  // namespace nightshift
