#include "stages/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "stages/text/byte_map.h"
#include "stages/text/tokenizer_parts.h"

namespace nightshift {
namespace {

bool overlaps(std::span<const TextRange> ranges, std::size_t begin, std::size_t end) {
  const auto first = std::partition_point(
      ranges.begin(), ranges.end(), [&](const TextRange& range) { return range.end <= begin; });
  return first != ranges.end() && first->begin < end;
}

bool are_ascending(std::span<const TextRange> ranges) {
  std::size_t at = 0;
  for (const TextRange& range : ranges) {
    if (range.begin < at || range.end < range.begin) return false;
    at = range.end;
  }
  return true;
}

void put_around(const std::vector<TokenId>& prefix, const std::vector<TokenId>& suffix,
                std::vector<TokenId>& ids) {
  const auto has = [&](const std::vector<TokenId>& part, auto begin) {
    return ids.size() >= part.size() && std::equal(part.begin(), part.end(), begin());
  };
  if (!has(prefix, [&] { return ids.begin(); })) {
    ids.insert(ids.begin(), prefix.begin(), prefix.end());
  }
  if (!has(suffix, [&] { return ids.end() - static_cast<std::ptrdiff_t>(suffix.size()); })) {
    ids.insert(ids.end(), suffix.begin(), suffix.end());
  }
}

}  // namespace

const std::vector<TokenId>* PieceCache::find(std::string_view piece) const {
  if (piece.size() > piece_bytes_max) return nullptr;
  const Entry& entry = entries_[std::hash<std::string_view>()(piece) % slots];
  return entry.piece == piece && !entry.ids.empty() ? &entry.ids : nullptr;
}

void PieceCache::put(std::string_view piece, const TokenId* ids, std::size_t count) {
  if (piece.size() > piece_bytes_max) return;
  Entry& entry = entries_[std::hash<std::string_view>()(piece) % slots];
  entry.piece = piece;
  entry.ids.assign(ids, ids + count);
}

namespace {

// One call of encode: the steps from a text to its ids.
class Encoder {
 public:
  Encoder(const BpeModel& bpe, const PreTokenizer& splitter, PieceCache* cache)
      : bpe_(bpe), splitter_(splitter), cache_(cache) {}

  // A text without added tokens, normalized.
  Status plain(std::string_view text) {
    std::string with_blank;
    if (splitter_.add_prefix_space() && text.front() != ' ') {
      with_blank = " " + std::string(text);
      text = with_blank;
    }
    NS_TRY(splitter_.split(text, pieces_));
    for (const auto piece : pieces_) {
      const auto* known = cache_ == nullptr ? nullptr : cache_->find(piece);
      if (known != nullptr) {
        ids.insert(ids.end(), known->begin(), known->end());
        continue;
      }
      const std::size_t before = ids.size();
      NS_TRY(bpe_.encode(piece, scratch_, ids));
      if (cache_ != nullptr) cache_->put(piece, ids.data() + before, ids.size() - before);
    }
    return {};
  }

  std::vector<TokenId> ids;

 private:
  const BpeModel& bpe_;
  const PreTokenizer& splitter_;
  PieceCache* cache_;
  BpeScratch scratch_;
  std::vector<std::string_view> pieces_;
};

}  // namespace

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  NS_TRY(check_utf8(text, "text to encode"));
  if (!are_ascending(options.plain)) {
    return Error{ErrorCode::internal, "the plain ranges are not ascending", "text to encode", ""};
  }
  const std::unique_lock lock(parts_->cache_mutex, std::try_to_lock);
  Encoder encoder(parts_->bpe, parts_->pre_tokenizer, lock ? &parts_->cache : nullptr);
  const auto raw_permit = [&](const AddedToken& token, std::size_t begin, std::size_t end) {
    return !token.special || (!options.special_as_text && !overlaps(options.plain, begin, end));
  };
  for (const auto& segment : parts_->raw_finder.cut(text, raw_permit)) {
    if (segment.id >= 0) {
      encoder.ids.push_back(segment.id);
      continue;
    }
    const std::string_view raw = text.substr(segment.begin, segment.end - segment.begin);
    // Offsets are lost in normalizing, so one plain range makes its whole segment plain.
    const bool plain =
        options.special_as_text || overlaps(options.plain, segment.begin, segment.end);
    std::string normalized;
    std::string_view clean = raw;
    if (!parts_->normalizer.leaves_alone(raw)) {
      NS_TRY_ASSIGN(normalized, parts_->normalizer.apply(raw));
      clean = normalized;
    }
    const auto permit = [&](const AddedToken& token, std::size_t, std::size_t) {
      return !token.special || !plain;
    };
    for (const auto& inner : parts_->normalized_finder.cut(clean, permit)) {
      if (inner.id >= 0) {
        encoder.ids.push_back(inner.id);
      } else {
        NS_TRY(encoder.plain(clean.substr(inner.begin, inner.end - inner.begin)));
      }
    }
  }
  if (options.add_special) put_around(parts_->prefix, parts_->suffix, encoder.ids);
  return std::move(encoder.ids);
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const TokenId id : ids) {
    NS_TRY_ASSIGN(const std::string part, decoder.push(id));
    text += part;
  }
  return text + decoder.finish();
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  for (const auto& added : parts_->added) {
    if (added.content == token) return added.id;
  }
  if (find_invalid_utf8(token)) return std::nullopt;
  const auto bytes = alphabet_to_bytes(token);
  const TokenId id = bytes ? parts_->bpe.find(*bytes) : -1;
  if (id < 0) return std::nullopt;
  return id;
}

bool Tokenizer::is_special(TokenId id) const {
  const auto found = parts_->added_by_id.find(id);
  return found != parts_->added_by_id.end() && parts_->added[found->second].special;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  const auto found = parts_->added_by_id.find(id);
  if (found != parts_->added_by_id.end()) return parts_->added[found->second].content;
  const auto& tokens = parts_->bpe.tokens();
  if (id < 0 || static_cast<std::size_t>(id) >= tokens.size()) return {};
  return tokens[static_cast<std::size_t>(id)];
}

std::int64_t Tokenizer::size() const {
  return parts_->size;
}

const std::vector<TokenId>& Tokenizer::prefix() const {
  return parts_->prefix;
}

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

Result<std::string> StreamDecoder::push(TokenId id) {
  const std::string_view bytes = tokenizer_.token_bytes(id);
  if (bytes.empty()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("no token has the id {} (there are {})", id, tokenizer_.size()),
                 "tokens to decode", ""};
  }
  if (skip_special_ && tokenizer_.is_special(id)) return std::string();
  return stream_.push(bytes);
}

std::string StreamDecoder::finish() {
  return stream_.finish();
}

}  // namespace nightshift
