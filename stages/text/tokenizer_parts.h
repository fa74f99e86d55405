// What a Tokenizer is made of. Knows all its steps; included by the sources of the tokenizer only.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stages/text/added_tokens.h"
#include "stages/text/bpe.h"
#include "stages/text/normalizer.h"
#include "stages/text/pretokenizer.h"
#include "stages/text/tokenizer.h"

namespace nightshift {

// The ids of short pieces that came up lately. One entry for each slot; a newer piece takes the
// place of an older one, so that memory is bounded.
class PieceCache {
 public:
  const std::vector<TokenId>* find(std::string_view piece) const;
  void put(std::string_view piece, const TokenId* ids, std::size_t count);

 private:
  struct Entry {
    std::string piece;
    std::vector<TokenId> ids;
  };
  static constexpr std::size_t slots = 1u << 14;
  static constexpr std::size_t piece_bytes_max = 48;

  std::vector<Entry> entries_ = std::vector<Entry>(slots);
};

struct Tokenizer::Parts {
  Parts(BpeModel bpe_model, PreTokenizer splitter, Normalizer normal)
      : bpe(std::move(bpe_model)),
        pre_tokenizer(std::move(splitter)),
        normalizer(std::move(normal)) {}

  BpeModel bpe;
  PreTokenizer pre_tokenizer;
  Normalizer normalizer;
  std::vector<AddedToken> added;
  std::unordered_map<TokenId, std::size_t> added_by_id;  // index in added
  AddedTokenFinder raw_finder;
  AddedTokenFinder normalized_finder;
  std::vector<TokenId> prefix;  // put around a text on request
  std::vector<TokenId> suffix;
  std::int64_t size = 0;

  // Of the thread that gets it; the others encode without, which gives the same ids.
  mutable std::mutex cache_mutex;
  mutable PieceCache cache;
};

}  // namespace nightshift
