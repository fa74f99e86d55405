#include "stages/night/text_model.h"

namespace nightshift {

Result<TextModel> TextModel::open(const std::string& folder) {
  NS_TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::open(folder));
  NS_TRY_ASSIGN(ChatTemplate chat, ChatTemplate::open(folder));
  return TextModel(std::move(tokenizer), std::move(chat));
}

Result<std::vector<TokenId>> TextModel::encode_chat(std::span<const ChatMessage> messages,
                                                    bool add_generation_prompt) const {
  const RenderedChat chat = template_.render(messages, add_generation_prompt);
  EncodeOptions options;
  options.add_special = true;
  options.plain = chat.contents;
  return tokenizer_.encode(chat.text, options);
}

Result<EncodedChat> TextModel::encode(const ChatSample& sample) const {
  EncodedChat encoded;
  encoded.group = sample.group;
  NS_TRY_ASSIGN(encoded.ids, encode_chat(sample.messages, false));
  encoded.answer_begin = encoded.ids.size();
  if (sample.messages.back().role == "assistant") {
    const std::span<const ChatMessage> all = sample.messages;
    NS_TRY_ASSIGN(const auto prompt, encode_chat(all.first(all.size() - 1), true));
    encoded.answer_begin = std::min(prompt.size(), encoded.ids.size());
  }
  return encoded;
}

Result<EncodedItem> TextModel::encode(const ChoiceItem& item) const {
  EncodedItem encoded{item.id, item.group, {}, {}, item.answer};
  NS_TRY_ASSIGN(encoded.prompt, encode_chat(item.messages, true));
  EncodeOptions plain;
  plain.special_as_text = true;
  for (const std::string& choice : item.choices) {
    NS_TRY_ASSIGN(std::vector<TokenId> ids, tokenizer_.encode(choice, plain));
    if (ids.empty()) {
      return Error{ErrorCode::invalid_argument, "a choice of item " + item.id + " has no tokens",
                   "evaluation", ""};
    }
    encoded.choices.push_back(std::move(ids));
  }
  return encoded;
}

Result<std::vector<TokenId>> token_stream(const TextModel& text, const std::string& path) {
  NS_TRY_ASSIGN(const auto chats, read_chats(path));
  std::vector<TokenId> stream;
  for (const ChatSample& chat : chats) {
    NS_TRY_ASSIGN(const EncodedChat encoded, text.encode(chat));
    stream.insert(stream.end(), encoded.ids.begin(), encoded.ids.end());
  }
  return stream;
}

std::vector<std::vector<TokenId>> cut_prompts(const std::vector<TokenId>& stream, int count,
                                              int length) {
  std::vector<std::vector<TokenId>> prompts;
  for (int n = 0; n < count; ++n) {
    std::vector<TokenId> prompt;
    std::size_t at = stream.size() * static_cast<std::size_t>(n) / static_cast<std::size_t>(count);
    for (int t = 0; t < length; ++t, ++at) prompt.push_back(stream[at % stream.size()]);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace nightshift
