// Byte-pair merging: a piece of text to the ids that a vocabulary and its merges make of it. Knows
// the "model" of tokenizer.json; must not know how text is cut into pieces.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "schema/json_fwd.h"
#include "schema/result.h"
#include "stages/text/token_id.h"

namespace nightshift {

// (left id, right id) -> the rank of their merge and what they become. Open addressing, because it
// is looked into for every pair of neighbours.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    TokenId merged;
  };

  void reserve(std::size_t merges);
  // The last one counts where a pair is put twice, as in the reference implementation.
  void put(TokenId left, TokenId right, Merge merge);
  const Merge* find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    std::uint64_t key;
    Merge merge;
  };
  std::size_t slot_of(std::uint64_t key) const;

  std::vector<Slot> slots_;
  int shift_ = 64;
};

// Memory that encoding reuses: one for each thread.
class BpeScratch {
 private:
  friend class BpeModel;
  struct Symbol {
    TokenId id;
    std::int32_t previous;
    std::int32_t next;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t at;  // the left symbol
    TokenId left;
    TokenId right;
    TokenId merged;
  };

  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

class BpeModel {
 public:
  static constexpr std::size_t piece_bytes_max = std::size_t{1} << 30;

  // Merges may be "a b" or ["a", "b"]. No merges, byte_fallback, dropout, a word prefix or suffix
  // are errors, as is an unk_token when a byte has no token of its own.
  static Result<BpeModel> parse(const Json& json, const std::string& where);

  // Appends the ids of a piece: repeatedly the pair of lowest rank, leftmost first; O(n log n).
  Status encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& ids) const;

  // Never make this token of a piece as a whole (ignore_merges): special tokens are not text.
  void hide(TokenId id);

  // The bytes of each id; empty where the vocabulary has a gap.
  const std::vector<std::string>& tokens() const { return tokens_; }
  TokenId find(std::string_view bytes) const;  // -1 for none

 private:
  Status read_vocab(const Json& vocab, const std::string& where);
  Status read_merges(const Json& merges, const std::string& where);
  Status start(std::string_view piece, BpeScratch& scratch) const;
  static void consider(const MergeTable& merges, BpeScratch& scratch, std::int32_t at);

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, TokenId> by_bytes_;
  std::vector<bool> hidden_;
  std::array<TokenId, 256> byte_ids_{};
  MergeTable merges_;
  bool ignore_merges_ = false;
};

}  // namespace nightshift
