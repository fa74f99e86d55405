// One checkpoint on its way to this worker: which piece to ask for next, which to write, when to
// give up. Pure: no I/O and no clock. Knows messages and manifests; must not know sockets, folders
// or the agent's attempts.
//
//   opening -> manifest -> opening -> pieces -> sealing -> done
//                 ^___________________________|  (once: a file was not what the manifest says)
//
// At most `pieces_open_max` pieces are asked for or wait for the disk, so that is also the memory
// it takes. Pieces may come in any order; they are written in order, so that a file's length on the
// disk is what need not be fetched again. A piece without an answer is asked for again; silence
// counts only while something is asked and the link is up. Any failure is the end of this fetch.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "schema/messages.h"
#include "worker/input_actions.h"

namespace nightshift {

struct FetchOptions {
  std::int64_t piece_bytes = 1 << 20;
  std::size_t pieces_open_max = 4;
  std::int64_t piece_answer_ms = 25'000;  // the coordinator itself gives up after 20 s
  std::int64_t silence_ms_max = 60'000;
  std::int64_t backoff_ms_min = 500;      // after "its worker is away"
  std::int64_t backoff_ms_max = 8'000;
  std::int64_t manifest_bytes_max = 64 << 20;
  int rounds_max = 2;                     // of fetching what turned out corrupt
};

// What is fetched, for whom.
struct FetchWish {
  AttemptRef ref;      // the attempt that wants it
  std::string input;   // the stage that made it
  std::string digest;
};

struct FetchFailure {
  std::string reason;
  bool is_corrupt = false;  // the source is not what was promised; trying again is no use
  bool is_full = false;     // no room on this disk
};

class Fetch {
 public:
  using Step = std::variant<InputRead, OpenPart, KeepManifest, WritePiece, SealPart>;
  enum class State { opening, manifest, pieces, sealing, done, failed };

  // `id`: below 2^31, never used twice; requests carry it in their upper half.
  Fetch(std::int64_t id, FetchWish wish, std::int64_t now_ms, FetchOptions options = {});

  void on_opened(const PartOpened& opened, std::int64_t now_ms);
  void on_chunk(const CheckpointChunk& chunk, std::int64_t now_ms);
  void on_written(const PieceWritten& written, std::int64_t now_ms);
  void on_sealed(const PartSealed& sealed, std::int64_t now_ms);
  // A new connection or coordinator: what was asked is lost.
  void on_link(std::int64_t now_ms);
  // Only while there is a link.
  void on_tick(std::int64_t now_ms);

  std::vector<Step> take_steps() { return std::exchange(steps_, {}); }
  State state() const { return state_; }
  const FetchFailure& failure() const { return failure_; }
  const FetchWish& wish() const { return wish_; }
  std::int64_t id() const { return id_; }
  static std::int64_t id_of_request(std::int64_t request) { return request >> 32; }
  std::int64_t bytes_done() const { return bytes_done_; }    // on this disk, of all files
  std::int64_t bytes_total() const { return bytes_total_; }  // 0: not known yet

 private:
  struct Work {
    std::string file;
    std::int64_t offset = 0;  // the next piece
    std::int64_t bytes = -1;  // of the file; -1: the first answer tells
  };
  struct Piece {
    std::size_t work = 0;
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    std::int64_t request = 0;  // 0: to be asked
    std::int64_t asked_ms = 0;
    bool has_come = false;
    bool is_writing = false;
    std::string content;
  };

  bool is_asking() const { return state_ == State::manifest || state_ == State::pieces; }
  void open(std::int64_t now_ms);
  void fail(std::string reason, bool is_corrupt, bool is_full);
  void fail_on_disk(const Error& error);
  void again_or_fail(const std::string& why, std::int64_t now_ms);
  void plan(std::vector<Work> work, State state, std::int64_t now_ms);
  void ask(std::int64_t now_ms);
  bool add_piece();
  void take_in_order(std::int64_t now_ms);
  std::string misfit(const Piece& piece, const CheckpointChunk& chunk) const;

  std::int64_t id_;
  FetchWish wish_;
  FetchOptions options_;
  State state_ = State::opening;
  FetchFailure failure_;
  std::vector<Step> steps_;
  std::vector<Work> work_;
  std::size_t next_work_ = 0;
  std::deque<Piece> window_;  // in the order of the files
  std::string manifest_text_;
  std::int64_t last_request_;
  std::int64_t last_good_ms_;
  std::int64_t not_before_ms_ = 0;
  std::int64_t backoff_ms_;
  std::string last_trouble_;
  std::int64_t bytes_done_ = 0;
  std::int64_t bytes_total_ = 0;
  int round_ = 1;
};

}  // namespace nightshift
