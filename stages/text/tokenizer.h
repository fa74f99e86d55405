// Text to token ids and back: byte-level BPE as tokenizer.json describes it. Knows the order of the
// steps (added tokens, normalizer, pre-tokenizer, BPE, post-processor); must not know models or
// chats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"
#include "stages/text/token_id.h"
#include "stages/text/utf8.h"

namespace nightshift {

// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct EncodeOptions {
  // Put the post-processor's tokens (BOS, EOS) around the text. A BOS that the text already starts
  // with, because a chat template printed it, is not doubled; likewise EOS.
  bool add_special = false;
  // Special tokens written in the text are ordinary characters: for content that is not trusted.
  bool special_as_text = false;
  // The same within these ranges only (ascending, disjoint): the contents inside a rendered chat.
  std::span<const TextRange> plain = {};
};

// Immutable after loading; encode and decode may be called from several threads. Copies share.
class Tokenizer {
 public:
  // folder/tokenizer.json, and the add_bos_token of folder/tokenizer_config.json where there is
  // one. Whatever would change the ids and is not supported (byte_fallback, dropout, other
  // normalizers, models other than BPE, ...) is refused by name.
  static Result<Tokenizer> open(const std::string& folder);
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> parse(std::string_view json, const std::string& where);

  // Errors: the text is not UTF-8 (with the byte offset), or a match goes over its limit.
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;
  // Errors: an id without a token. Bytes that are not UTF-8 come out as U+FFFD.
  Result<std::string> decode(std::span<const TokenId> ids, bool skip_special = true) const;

  // The exact text of an added token ("<|im_end|>") or of a vocabulary entry.
  std::optional<TokenId> find(std::string_view token) const;
  bool is_special(TokenId id) const;
  // The bytes that a token stands for; empty for an id without a token.
  std::string_view token_bytes(TokenId id) const;
  // Largest id + 1. At most the model's vocab_size, which may be padded.
  std::int64_t size() const;
  // What the post-processor puts in front (usually one BOS, or nothing).
  const std::vector<TokenId>& prefix() const;

 private:
  friend class StreamDecoder;
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

// Decodes token by token, for a server: what push returns, joined, is decode of all ids, and no
// piece ends inside a character.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special = true);
  Result<std::string> push(TokenId id);
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  Utf8Stream stream_;
};

}  // namespace nightshift
