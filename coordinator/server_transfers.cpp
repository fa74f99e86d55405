// Checkpoints on their way from one worker to another, piece by piece. Part of Desk.
//
// The worker that wants a checkpoint sets the pace (a few InputRead open at a time); nothing is
// kept here but who asked whom. A piece that does not come in time is answered with an error, and
// the asker tries again.
#include <fmt/format.h>

#include "coordinator/server_desk.h"

namespace nightshift {

namespace {

constexpr std::size_t transfers_per_worker_max = 64;

// What a running or preparing attempt may read, or why not.
struct Source {
  const Checkpoint* checkpoint = nullptr;
  AttemptRef made_by;
  std::string refused;
};

Source find_source(const Core& core, const WorkerId& asker, const InputRead& read) {
  Source source;
  const auto at = find_stage(core, read.ref.stage_ref());
  const auto live = at ? core.live.find(*at) : core.live.end();
  if (live == core.live.end() || live->second.ref != read.ref || live->second.worker != asker) {
    source.refused = "it is not the current attempt";
    return source;
  }
  const auto input = find_stage(core, {read.ref.job, read.input});
  const Stage* stage = input ? &stage_at(core, *input) : nullptr;
  if (stage == nullptr || !has_result(stage->state) || !stage->result->checkpoint) {
    source.refused = fmt::format("{} has no checkpoint", read.input);
  } else if (stage->result->checkpoint->collected) {
    source.refused = fmt::format("the checkpoint of {} was collected under the disk quota of {}",
                                 read.input, stage->result->checkpoint->worker.value);
  } else if (stage->result->checkpoint->worker == asker) {
    source.refused = fmt::format("the checkpoint of {} was made by this very worker", read.input);
  } else {
    source.checkpoint = &*stage->result->checkpoint;
    source.made_by = stage->result->from;
  }
  return source;
}

CheckpointChunk refusal_of(const InputRead& read, std::string why, bool retryable) {
  CheckpointChunk chunk;
  chunk.request = read.request;
  chunk.offset = read.offset;
  chunk.error = std::move(why);
  chunk.retryable = retryable;
  return chunk;
}

}  // namespace

void Desk::on_input_read(const std::string& peer, const Sender& sender, const InputRead& read,
                         Now now) {
  const auto refuse = [&](std::string why, bool retryable) {
    letters_.push_back({peer, refusal_of(read, std::move(why), retryable)});
  };
  const Source source = find_source(engine_.core(), sender.worker, read);
  if (source.checkpoint == nullptr) return refuse(source.refused, false);
  const WorkerId& name = source.checkpoint->worker;
  const Worker* holder = find_worker(engine_.core(), name);
  const auto address =
      holder != nullptr ? addresses_.find({name, holder->session}) : addresses_.end();
  if (address == addresses_.end() || holder->state != WorkerState::online) {
    return refuse(fmt::format("worker {}, which has the checkpoint of {}, is away", name.value,
                              read.input),
                  true);
  }
  std::size_t open = 0;
  for (const auto& [number, transfer] : transfers_) open += transfer.peer == peer ? 1 : 0;
  if (open >= transfers_per_worker_max) return refuse("too many pieces asked at once", true);
  const std::int64_t ours = ++last_transfer_;
  transfers_[ours] = {peer, read, name, now.mono_ms + options_.chunk_answer_ms_max};
  letters_.push_back({address->second, CheckpointRead{ours, source.made_by, read.file, read.offset,
                                                      read.bytes_max}});
}

void Desk::on_checkpoint_chunk(const Sender& sender, const CheckpointChunk& chunk) {
  const auto found = transfers_.find(chunk.request);
  if (found == transfers_.end()) return;   // it came too late
  if (sender.worker != found->second.holder) return;
  CheckpointChunk passed = chunk;
  passed.request = found->second.read.request;
  if (!passed.error.empty()) {
    passed.error = fmt::format("worker {}: {}", sender.worker.value, passed.error);
  }
  counters_.checkpoint_bytes += static_cast<std::int64_t>(passed.bytes.size());
  letters_.push_back({found->second.peer, std::move(passed)});
  transfers_.erase(found);
}

void Desk::expire_transfers(Now now) {
  std::erase_if(transfers_, [&](const auto& item) {
    const Transfer& transfer = item.second;
    if (now.mono_ms < transfer.deadline_mono_ms) return false;
    letters_.push_back(
        {transfer.peer, refusal_of(transfer.read,
                                   fmt::format("worker {} does not send it", transfer.holder.value),
                                   true)});
    return true;
  });
}

}  // namespace nightshift
