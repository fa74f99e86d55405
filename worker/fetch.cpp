#include "worker/fetch.h"

#include <fmt/format.h>

#include <algorithm>

#include "worker/checkpoint_seal.h"

namespace nightshift {

Fetch::Fetch(std::int64_t id, FetchWish wish, std::int64_t now_ms, FetchOptions options)
    : id_(id),
      wish_(std::move(wish)),
      options_(options),
      last_request_(id << 32),
      last_good_ms_(now_ms),
      backoff_ms_(options.backoff_ms_min) {
  open(now_ms);
}

void Fetch::open(std::int64_t now_ms) {
  state_ = State::opening;
  work_.clear();
  window_.clear();
  manifest_text_.clear();
  last_good_ms_ = now_ms;
  steps_.emplace_back(OpenPart{id_, wish_.digest});
}

void Fetch::fail(std::string reason, bool is_corrupt, bool is_full) {
  state_ = State::failed;
  window_.clear();
  failure_ = {fmt::format("the checkpoint of {} could not be fetched: {}", wish_.input, reason),
              is_corrupt, is_full};
}

void Fetch::fail_on_disk(const Error& error) {
  fail(error.line(), false, error.code == ErrorCode::out_of_disk);
}

void Fetch::again_or_fail(const std::string& why, std::int64_t now_ms) {
  if (round_ >= options_.rounds_max) return fail(why, true, false);
  ++round_;
  open(now_ms);
}

void Fetch::on_opened(const PartOpened& opened, std::int64_t now_ms) {
  if (state_ != State::opening) return;
  if (!opened.status) {
    if (opened.status.error().code == ErrorCode::corrupt) {
      return again_or_fail(opened.status.error().line(), now_ms);
    }
    return fail_on_disk(opened.status.error());
  }
  if (!opened.manifest) return plan({{manifest_name, 0, -1}}, State::manifest, now_ms);
  bytes_total_ = opened.manifest->total_bytes();
  bytes_done_ = 0;
  std::vector<Work> work;
  for (const ManifestEntry& entry : opened.manifest->files) {
    const auto found = opened.have.find(entry.path);
    const std::int64_t have =
        found == opened.have.end() ? 0 : std::clamp<std::int64_t>(found->second, 0, entry.bytes);
    bytes_done_ += have;
    if (have < entry.bytes) work.push_back({entry.path, have, entry.bytes});
  }
  plan(std::move(work), State::pieces, now_ms);
}

void Fetch::plan(std::vector<Work> work, State state, std::int64_t now_ms) {
  state_ = state;
  work_ = std::move(work);
  next_work_ = 0;
  last_good_ms_ = now_ms;
  take_in_order(now_ms);
}

bool Fetch::add_piece() {
  if (next_work_ >= work_.size() || window_.size() >= options_.pieces_open_max) return false;
  Work& work = work_[next_work_];
  if (work.bytes < 0 && work.offset > 0) return false;  // its size is still to come
  const std::int64_t left = work.bytes < 0 ? options_.piece_bytes : work.bytes - work.offset;
  Piece piece;
  piece.work = next_work_;
  piece.offset = work.offset;
  piece.bytes = std::min(options_.piece_bytes, left);
  work.offset += piece.bytes;
  window_.push_back(std::move(piece));
  if (work.bytes >= 0 && work.offset >= work.bytes) ++next_work_;
  return true;
}

void Fetch::ask(std::int64_t now_ms) {
  while (add_piece()) {
  }
  if (now_ms < not_before_ms_) return;
  for (Piece& piece : window_) {
    if (piece.has_come || piece.request != 0) continue;
    piece.request = ++last_request_;
    piece.asked_ms = now_ms;
    InputRead read;
    read.request = piece.request;
    read.ref = wish_.ref;
    read.input = wish_.input;
    read.file = work_[piece.work].file;
    read.offset = piece.offset;
    read.bytes_max = piece.bytes;
    steps_.emplace_back(std::move(read));
  }
}

// What is wrong with an answer; empty when it is what was asked for.
std::string Fetch::misfit(const Piece& piece, const CheckpointChunk& chunk) const {
  const Work& work = work_[piece.work];
  const std::int64_t size = work.bytes < 0 ? chunk.size : work.bytes;
  if (chunk.size != size) {
    return fmt::format("{} has {} bytes there, its manifest says {}", work.file, chunk.size, size);
  }
  if (work.bytes < 0 && (size <= 0 || size > options_.manifest_bytes_max)) {
    return fmt::format("{} has {} bytes there", work.file, size);
  }
  const std::int64_t expected = std::min(piece.bytes, size - piece.offset);
  if (chunk.offset != piece.offset || static_cast<std::int64_t>(chunk.bytes.size()) != expected) {
    return fmt::format("{} bytes of {} from {} were asked for, {} from {} came", expected,
                       work.file, piece.offset, chunk.bytes.size(), chunk.offset);
  }
  return "";
}

void Fetch::on_chunk(const CheckpointChunk& chunk, std::int64_t now_ms) {
  if (!is_asking() || chunk.request == 0) return;
  const auto piece = std::find_if(window_.begin(), window_.end(), [&](const Piece& p) {
    return p.request == chunk.request && !p.has_come;
  });
  if (piece == window_.end()) return;  // doubled, or given up before
  if (!chunk.error.empty()) {
    if (!chunk.retryable) return fail(chunk.error, true, false);
    last_trouble_ = chunk.error;
    piece->request = 0;
    if (now_ms >= not_before_ms_) {  // one step for all pieces of the window
      not_before_ms_ = now_ms + backoff_ms_;
      backoff_ms_ = std::min(2 * backoff_ms_, options_.backoff_ms_max);
    }
    return;
  }
  if (const std::string wrong = misfit(*piece, chunk); !wrong.empty()) {
    return again_or_fail(wrong, now_ms);
  }
  Work& work = work_[piece->work];
  if (work.bytes < 0) {
    work.bytes = chunk.size;
    if (work.offset >= work.bytes) ++next_work_;
  }
  last_good_ms_ = now_ms;
  not_before_ms_ = 0;
  backoff_ms_ = options_.backoff_ms_min;
  last_trouble_.clear();
  piece->has_come = true;
  piece->content = chunk.bytes;
  take_in_order(now_ms);
}

// Hands on what has come up to the first gap, and asks for as much more.
void Fetch::take_in_order(std::int64_t now_ms) {
  if (state_ == State::manifest) {
    while (!window_.empty() && window_.front().has_come) {
      manifest_text_ += window_.front().content;
      window_.pop_front();
    }
    if (window_.empty() && next_work_ >= work_.size()) {
      state_ = State::opening;
      steps_.emplace_back(KeepManifest{id_, wish_.digest, std::move(manifest_text_), {}});
      return;
    }
  } else {
    for (Piece& piece : window_) {
      if (piece.is_writing) continue;
      if (!piece.has_come) break;
      piece.is_writing = true;
      steps_.emplace_back(WritePiece{id_, wish_.digest, work_[piece.work].file, piece.offset,
                                     std::move(piece.content)});
    }
    if (window_.empty() && next_work_ >= work_.size()) {
      state_ = State::sealing;
      steps_.emplace_back(SealPart{id_, wish_.digest});
      return;
    }
  }
  ask(now_ms);
}

void Fetch::on_written(const PieceWritten& written, std::int64_t now_ms) {
  if (state_ != State::pieces || window_.empty() || !window_.front().is_writing) return;
  if (!written.status) return fail_on_disk(written.status.error());
  bytes_done_ += window_.front().bytes;
  window_.pop_front();
  last_good_ms_ = now_ms;
  take_in_order(now_ms);
}

void Fetch::on_sealed(const PartSealed& sealed, std::int64_t now_ms) {
  if (state_ != State::sealing) return;
  if (!sealed.status) return fail_on_disk(sealed.status.error());
  if (sealed.bad.empty()) {
    state_ = State::done;
    return;
  }
  again_or_fail(fmt::format("{} is not what its manifest says", sealed.bad.front()), now_ms);
}

void Fetch::on_link(std::int64_t now_ms) {
  if (!is_asking()) return;
  for (Piece& piece : window_) {
    if (!piece.has_come) piece.request = 0;
  }
  last_good_ms_ = now_ms;
  not_before_ms_ = 0;
  backoff_ms_ = options_.backoff_ms_min;
  ask(now_ms);
}

void Fetch::on_tick(std::int64_t now_ms) {
  if (!is_asking()) return;
  const bool waits = std::any_of(window_.begin(), window_.end(),
                                 [](const Piece& piece) { return !piece.has_come; });
  const std::int64_t silent_ms = now_ms - last_good_ms_;
  if (waits && silent_ms >= options_.silence_ms_max) {
    return fail(fmt::format("nothing of it came for {} s{}{}", silent_ms / 1000,
                            last_trouble_.empty() ? "" : ": ", last_trouble_),
                false, false);
  }
  for (Piece& piece : window_) {
    const bool is_late = now_ms - piece.asked_ms >= options_.piece_answer_ms;
    if (!piece.has_come && piece.request != 0 && is_late) piece.request = 0;
  }
  ask(now_ms);
}

}  // namespace nightshift
