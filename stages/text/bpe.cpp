#include "stages/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "schema/json.h"
#include "stages/text/byte_map.h"

namespace nightshift {
namespace {

constexpr std::int64_t token_id_max = (std::int64_t{1} << 24) - 1;
constexpr std::uint64_t empty_key = UINT64_MAX;

std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

Error invalid(const std::string& where, std::string what) {
  return Error{ErrorCode::invalid_argument, std::move(what), where, ""};
}

// Switches that change the ids and that nobody here implements.
Status check_switches(const JsonReader& reader, const std::string& where) {
  const auto refuse = [&](const char* key) {
    return Error{ErrorCode::unsupported, fmt::format("\"{}\" is not supported", key), where, ""};
  };
  NS_TRY_ASSIGN(const std::string type, reader.string_or("type", "BPE"));
  if (type != "BPE") {
    return Error{
        ErrorCode::unsupported,
        fmt::format("\"type\": \"{}\" is not supported, only byte-level BPE", type.substr(0, 80)),
        where, ""};
  }
  NS_TRY_ASSIGN(const bool byte_fallback, reader.boolean_or("byte_fallback", false));
  if (byte_fallback) return refuse("byte_fallback");
  NS_TRY_ASSIGN(const double dropout, reader.number_or("dropout", 0.0));
  if (dropout != 0.0) return refuse("dropout");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    NS_TRY_ASSIGN(const std::string affix, reader.string_or(key, ""));
    if (!affix.empty()) return refuse(key);
  }
  return {};
}

struct MergePair {
  std::string left;
  std::string right;
};

std::optional<MergePair> read_merge(const Json& merge) {
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const auto blank = text.find(' ');
    if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) {
      return std::nullopt;
    }
    return MergePair{text.substr(0, blank), text.substr(blank + 1)};
  }
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return MergePair{merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  return std::nullopt;
}

}  // namespace

void MergeTable::reserve(std::size_t merges) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(merges * 2, 16));
  slots_.assign(size, Slot{empty_key, {0, 0}});
  shift_ = 64 - std::countr_zero(size);
}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  // Fibonacci hashing: the high bits of the product depend on all bits of the key.
  std::size_t at = static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  while (slots_[at].key != key && slots_[at].key != empty_key) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void MergeTable::put(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t key = pair_key(left, right);
  slots_[slot_of(key)] = Slot{key, merge};
}

const MergeTable::Merge* MergeTable::find(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  const Slot& slot = slots_[slot_of(key)];
  return slot.key == key ? &slot.merge : nullptr;
}

Result<BpeModel> BpeModel::parse(const Json& json, const std::string& where) {
  const JsonReader reader(json, where);
  BpeModel model;
  NS_TRY(check_switches(reader, where));
  NS_TRY_ASSIGN(model.ignore_merges_, reader.boolean_or("ignore_merges", false));
  NS_TRY_ASSIGN(const Json* vocab, reader.object("vocab"));
  NS_TRY(model.read_vocab(*vocab, where));
  NS_TRY_ASSIGN(const Json* merges, reader.array("merges"));
  NS_TRY(model.read_merges(*merges, where));
  // With a token for every byte nothing is ever unknown, and the switch says nothing.
  const bool complete =
      std::find(model.byte_ids_.begin(), model.byte_ids_.end(), -1) == model.byte_ids_.end();
  if (reader.has("unk_token") && !complete) {
    return Error{ErrorCode::unsupported,
                 "\"unk_token\" is not supported in a vocabulary without all 256 bytes", where, ""};
  }
  return model;
}

Status BpeModel::read_vocab(const Json& vocab, const std::string& where) {
  std::int64_t largest = -1;
  for (const auto& [text, id] : vocab.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > token_id_max) {
      return invalid(where,
                     fmt::format("\"vocab\": the id of \"{}\" is not an integer from 0 to {}",
                                 text.substr(0, 80), token_id_max));
    }
    largest = std::max(largest, id.get<std::int64_t>());
  }
  // Gaps are legal, but a table far larger than its content is not a vocabulary.
  if (largest + 1 > static_cast<std::int64_t>(vocab.size()) * 16 + 65536) {
    return invalid(where, fmt::format("\"vocab\": the largest id is {}, with {} tokens", largest,
                                      vocab.size()));
  }
  tokens_.resize(static_cast<std::size_t>(largest + 1));
  hidden_.resize(tokens_.size());
  for (const auto& [text, id] : vocab.items()) {
    auto& token = tokens_[id.get<std::size_t>()];
    if (text.empty() || !token.empty()) {
      return invalid(where, text.empty()
                                ? std::string("\"vocab\": an empty token")
                                : fmt::format("\"vocab\": id {} has two tokens, one of them \"{}\"",
                                              id.get<std::int64_t>(), text.substr(0, 80)));
    }
    const auto bytes = alphabet_to_bytes(text);
    // What is not in the byte alphabet (added tokens are listed here too) can only be decoded.
    token = bytes ? *bytes : text;
    if (bytes) by_bytes_.emplace(*bytes, id.get<TokenId>());
  }
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[static_cast<std::size_t>(byte)] = find(std::string(1, static_cast<char>(byte)));
  }
  return {};
}

Status BpeModel::read_merges(const Json& merges, const std::string& where) {
  if (merges.empty()) {
    return invalid(where, "\"merges\" is empty: every text would fall into single bytes");
  }
  merges_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (const Json& merge : merges) {
    const auto pair = read_merge(merge);
    if (!pair) {
      return invalid(where,
                     fmt::format("\"merges\": entry {} is neither \"a b\" nor [\"a\", \"b\"]: "
                                 "{}",
                                 rank, dump_json(merge).substr(0, 80)));
    }
    const auto left_bytes = alphabet_to_bytes(pair->left);
    const auto right_bytes = alphabet_to_bytes(pair->right);
    const TokenId left = left_bytes ? find(*left_bytes) : -1;
    const TokenId right = right_bytes ? find(*right_bytes) : -1;
    const TokenId merged = left < 0 || right < 0 ? -1 : find(*left_bytes + *right_bytes);
    if (merged < 0) {
      return invalid(
          where,
          fmt::format("\"merges\": entry {} needs \"{}\", which is not in the vocabulary", rank,
                      left < 0    ? pair->left
                      : right < 0 ? pair->right
                                  : pair->left + pair->right));
    }
    merges_.put(left, right, {rank, merged});
    ++rank;
  }
  return {};
}

TokenId BpeModel::find(std::string_view bytes) const {
  const auto found = by_bytes_.find(std::string(bytes));
  return found == by_bytes_.end() ? -1 : found->second;
}

void BpeModel::hide(TokenId id) {
  if (static_cast<std::size_t>(id) < hidden_.size()) hidden_[static_cast<std::size_t>(id)] = true;
}

Status BpeModel::start(std::string_view piece, BpeScratch& scratch) const {
  if (piece.size() > piece_bytes_max) {
    return invalid("", fmt::format("a piece of {} bytes; at most {} are merged", piece.size(),
                                   piece_bytes_max));
  }
  scratch.symbols_.clear();
  scratch.heap_.clear();
  const auto count = static_cast<std::int32_t>(piece.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    if (byte_ids_[byte] < 0) {
      return Error{ErrorCode::unsupported,
                   fmt::format("the vocabulary has no token for the byte 0x{:02X}", byte), "", ""};
    }
    scratch.symbols_.push_back({byte_ids_[byte], i - 1, i + 1 == count ? -1 : i + 1});
  }
  return {};
}

namespace {

// std::push_heap keeps the greatest on top, so what should come first is the greater.
constexpr auto comes_later = [](const auto& a, const auto& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
};

}  // namespace

void BpeModel::consider(const MergeTable& merges, BpeScratch& scratch, std::int32_t at) {
  const auto& symbols = scratch.symbols_;
  const auto& left = symbols[static_cast<std::size_t>(at)];
  if (left.next < 0) return;
  const TokenId right = symbols[static_cast<std::size_t>(left.next)].id;
  const MergeTable::Merge* merge = merges.find(left.id, right);
  if (merge == nullptr) return;
  scratch.heap_.push_back({merge->rank, at, left.id, right, merge->merged});
}

Status BpeModel::encode(std::string_view piece, BpeScratch& scratch,
                        std::vector<TokenId>& ids) const {
  if (ignore_merges_) {
    const TokenId whole = find(piece);
    if (whole >= 0 && !hidden_[static_cast<std::size_t>(whole)]) {
      ids.push_back(whole);
      return {};
    }
  }
  NS_TRY(start(piece, scratch));
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) {
    consider(merges_, scratch, i);
  }
  std::make_heap(heap.begin(), heap.end(), comes_later);
  constexpr TokenId gone = -1;
  while (!heap.empty()) {
    const auto top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    heap.pop_back();
    auto& left = symbols[static_cast<std::size_t>(top.at)];
    // Merges of neighbours may have taken either side away since this was pushed.
    if (left.id != top.left || left.next < 0) continue;
    auto& right = symbols[static_cast<std::size_t>(left.next)];
    if (right.id != top.right) continue;
    left.id = top.merged;
    right.id = gone;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = top.at;
    for (const std::int32_t at : {left.previous, top.at}) {
      if (at < 0) continue;
      const std::size_t before = heap.size();
      consider(merges_, scratch, at);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), comes_later);
    }
  }
  for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0;) {
    ids.push_back(symbols[static_cast<std::size_t>(i)].id);
    i = symbols[static_cast<std::size_t>(i)].next;
  }
  return {};
}

}  // namespace nightshift
