// What the agent wants done on the disk about inputs and checkpoints, and what came of it. Values
// only; input_desk.h carries them out. A fetch is named by a number of the agent's, so that what an
// ended one still brings is not taken for another's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "schema/messages.h"
#include "schema/result.h"
#include "schema/stage_contract.h"

namespace nightshift {

// ---- actions
// Which inputs of the order lie here, whole? Reads what was not read before.
struct CheckInputs {
  AssignAttempt order;
};
// What an earlier try has left of this checkpoint.
struct OpenPart {
  std::int64_t fetch = 0;
  std::string digest;
};
// Its manifest came. Makes room: of the copies that no digest of `in_use` names, oldest first.
struct KeepManifest {
  std::int64_t fetch = 0;
  std::string digest;
  std::string text;
  std::set<std::string> in_use;
};
// Appends to a file.
struct WritePiece {
  std::int64_t fetch = 0;
  std::string digest;
  std::string file;
  std::int64_t offset = 0;
  std::string bytes;
};
// All files have their length: compares them with the manifest and puts the copy at its place.
struct SealPart {
  std::int64_t fetch = 0;
  std::string digest;
};
// No room for it: what there is goes.
struct DropPart {
  std::string digest;
};
// The quota may ask for room now.
struct TrimCopies {
  std::set<std::string> in_use;  // digests
};
struct ReadCheckpoint {
  CheckpointRead read;
};
struct DropOwnCheckpoint {
  AttemptRef ref;
  std::set<std::string> in_use;  // folders that stages here read
};
using InputAction = std::variant<CheckInputs, OpenPart, KeepManifest, WritePiece, SealPart,
                                 DropPart, TrimCopies, ReadCheckpoint, DropOwnCheckpoint>;

// ---- events
struct InputVerdict {
  enum class Kind {
    ready,    // whole, at `path`
    missing,  // not here, or a copy that was not whole and is gone now
    corrupt,  // the checkpoint itself is not what its manifest says
    failed,   // the disk does not say
  };
  std::string stage;
  Kind kind = Kind::ready;
  std::string path;
  std::string why;
};
struct InputsChecked {
  AttemptRef ref;
  std::vector<InputVerdict> inputs;
};
struct PartOpened {
  std::int64_t fetch = 0;
  Status status;                     // corrupt: the manifest that came is not the one expected
  std::optional<Manifest> manifest;  // absent: to be fetched first
  std::map<std::string, std::int64_t> have;  // file -> bytes from its beginning
};
struct PieceWritten {
  std::int64_t fetch = 0;
  Status status;
};
struct PartSealed {
  std::int64_t fetch = 0;
  Status status;                  // the disk failed
  std::vector<std::string> bad;   // files that differed and are gone; empty: it is in place
};
struct CheckpointPiece {
  CheckpointChunk chunk;
};
struct OwnCheckpointDropped {
  CheckpointDropped answer;
};
using InputEvent = std::variant<InputsChecked, PartOpened, PieceWritten, PartSealed,
                                CheckpointPiece, OwnCheckpointDropped>;

}  // namespace nightshift
