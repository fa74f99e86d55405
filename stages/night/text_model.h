// The text side of a model folder: its tokenizer and chat template, and chats turned into ids.
// Knows text; must not know engines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schema/result.h"
#include "stages/text/chat_template.h"
#include "stages/text/dataset.h"
#include "stages/text/tokenizer.h"

namespace nightshift {

// A chat as ids; tokens [answer_begin, ids.size()) belong to the last assistant message and what
// ends it (answer_begin == ids.size() when the last message is not the assistant's).
struct EncodedChat {
  std::string group;
  std::vector<TokenId> ids;
  std::size_t answer_begin = 0;
};

// A multiple-choice item as ids: the prompt, and each choice as the assistant's answer would begin.
struct EncodedItem {
  std::string id;
  std::string group;
  std::vector<TokenId> prompt;
  std::vector<std::vector<TokenId>> choices;
  std::size_t answer = 0;
};

class TextModel {
 public:
  static Result<TextModel> open(const std::string& folder);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Contents of messages are plain text: "<|im_end|>" inside one stays text.
  Result<EncodedChat> encode(const ChatSample& sample) const;
  Result<EncodedItem> encode(const ChoiceItem& item) const;

 private:
  TextModel(Tokenizer tokenizer, ChatTemplate chat)
      : tokenizer_(std::move(tokenizer)), template_(std::move(chat)) {}
  Result<std::vector<TokenId>> encode_chat(std::span<const ChatMessage> messages,
                                           bool add_generation_prompt) const;

  Tokenizer tokenizer_;
  ChatTemplate template_;
};

// All chats of a JSONL file, one after the other, as one stream of ids: what benches cut prompts
// of.
Result<std::vector<TokenId>> token_stream(const TextModel& text, const std::string& path);
// `count` windows of `length` ids, evenly spread over the stream (which wraps around).
std::vector<std::vector<TokenId>> cut_prompts(const std::vector<TokenId>& stream, int count,
                                              int length);

}  // namespace nightshift
