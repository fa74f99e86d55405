// A store in memory with the same guards as the one on disk, and one that fails on demand.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/store.h"

namespace nightshift::testing {

class FakeStore final : public Store {
 public:
  Result<ServerEpoch> next_epoch() override { return ServerEpoch{++epoch_}; }

  Result<StoredState> load() override {
    StoredState state;
    for (const auto& [id, row] : rows_.jobs) {
      state.jobs.push_back(row);
      state.last_job = id;
    }
    for (const auto& [ref, row] : rows_.stages) state.stages.push_back(row);
    for (const auto& [ref, row] : rows_.attempts) state.attempts.push_back(row);
    for (const auto& [name, row] : rows_.workers) state.workers.push_back(row);
    for (const auto& [id, row] : rows_.outbox) {
      if (row.state == "pending") state.outbox.push_back(row);
    }
    state.events = events_;
    return state;
  }

  Status apply(const std::vector<Change>& changes) override {
    Undo undo;
    undo_ = &undo;
    for (const Change& change : changes) {
      Status written = std::visit([this](const auto& one) { return write(one); }, change);
      if (written.ok()) continue;
      for (auto step = undo.rbegin(); step != undo.rend(); ++step) (*step)();
      return written;
    }
    transactions += 1;
    return {};
  }

  std::vector<EventRow>& events() { return events_; }
  const AttemptRow& attempt(const AttemptRef& ref) const { return rows_.attempts.at(ref); }
  StageRow& stage(const StageRef& ref) { return rows_.stages.at(ref); }
  JobRow& job(JobId id) { return rows_.jobs.at(id); }
  std::size_t outbox_count() const { return rows_.outbox.size(); }
  const std::map<AttemptRef, AttemptRow>& attempts() const { return rows_.attempts; }
  int transactions = 0;

 private:
  using Undo = std::vector<std::function<void()>>;
  struct Rows {
    std::map<JobId, JobRow> jobs;
    std::map<StageRef, StageRow> stages;
    std::map<AttemptRef, AttemptRow> attempts;
    std::map<WorkerId, WorkerRow> workers;
    std::map<std::string, OutboxRow> outbox;
  };

  static Error conflict(const std::string& what) {
    return {ErrorCode::conflict, what + ": the row is not as expected", "fake store", ""};
  }
  template <typename Map, typename Key>
  void remember(Map& map, const Key& key) {
    const auto found = map.find(key);
    if (found == map.end()) {
      undo_->push_back([&map, key] { map.erase(key); });
    } else {
      undo_->push_back([&map, key, old = found->second] { map[key] = old; });
    }
  }
  template <typename Map, typename Key, typename Row>
  Status insert(Map& map, const Key& key, const Row& row, const std::string& what) {
    if (map.contains(key)) return conflict("insert " + what);
    remember(map, key);
    map.emplace(key, row);
    return {};
  }

  Status write(const JobAdded& change) {
    NS_TRY(insert(rows_.jobs, change.row.job, change.row, "job"));
    for (const StageRow& row : change.stages) {
      NS_TRY(insert(rows_.stages, row.stage, row, to_string(row.stage)));
    }
    return {};
  }
  Status write(const JobMoved& change) {
    const auto job = rows_.jobs.find(change.job);
    if (job == rows_.jobs.end() || job->second.state != to_string(change.expected)) {
      return conflict("job");
    }
    remember(rows_.jobs, change.job);
    job->second.state = to_string(change.state);
    job->second.ended_ms = change.ended_ms;
    return {};
  }
  Status write(const JobSpecReplaced& change) {
    remember(rows_.jobs, change.job);
    rows_.jobs.at(change.job).spec_json = change.spec_json;
    for (const StageRow& row : change.added) {
      NS_TRY(insert(rows_.stages, row.stage, row, to_string(row.stage)));
    }
    return {};
  }
  Status write(const StageMoved& change) {
    const auto stage = rows_.stages.find(change.row.stage);
    if (stage == rows_.stages.end() || stage->second.state != to_string(change.expected) ||
        stage->second.attempt != change.expected_attempt) {
      return conflict(fmt::format("{} {} -> {}", to_string(change.row.stage),
                                  to_string(change.expected), change.row.state));
    }
    remember(rows_.stages, change.row.stage);
    stage->second = change.row;
    return {};
  }
  Status write(const AttemptAdded& change) {
    AttemptRow row;
    row.ref = change.ref;
    row.worker = change.worker;
    row.device_class = change.device_class;
    row.assigned_ms = change.assigned_ms;
    row.gpu_devices = change.gpu_devices;
    return insert(rows_.attempts, change.ref, row, to_string(change.ref));
  }
  Status write(const AttemptRan& change) {
    const auto attempt = rows_.attempts.find(change.ref);
    if (attempt == rows_.attempts.end() || !attempt->second.outcome.empty()) {
      return conflict("start " + to_string(change.ref));
    }
    remember(rows_.attempts, change.ref);
    attempt->second.started_ms = change.started_ms;
    attempt->second.log_path = change.log_path;
    return {};
  }
  Status write(const AttemptEnded& change) {
    const auto attempt = rows_.attempts.find(change.row.ref);
    if (attempt == rows_.attempts.end() || !attempt->second.outcome.empty()) {
      return conflict("end " + to_string(change.row.ref));
    }
    remember(rows_.attempts, change.row.ref);
    const std::vector<int> devices = attempt->second.gpu_devices;
    attempt->second = change.row;
    attempt->second.gpu_devices = devices;
    return {};
  }
  Status write(const CheckpointMoved& change) {
    const auto attempt = rows_.attempts.find(change.ref);
    if (attempt == rows_.attempts.end() || attempt->second.checkpoint_state != change.expected) {
      return conflict("checkpoint of " + to_string(change.ref));
    }
    remember(rows_.attempts, change.ref);
    attempt->second.checkpoint_state = change.state;
    return {};
  }
  Status write(const StagePinned& change) {
    remember(rows_.stages, change.stage);
    rows_.stages.at(change.stage).pinned = change.pinned;
    return {};
  }
  Status write(const EventAdded& change) {
    undo_->push_back([this] { events_.pop_back(); });
    events_.push_back(change.row);
    return {};
  }
  Status write(const WorkerSeen& change) {
    remember(rows_.workers, change.row.worker);
    rows_.workers[change.row.worker] = change.row;
    return {};
  }
  Status write(const OutboxAdded& change) {
    return insert(rows_.outbox, change.row.id, change.row, change.row.id);
  }
  Status write(const OutboxTried& change) {
    remember(rows_.outbox, change.row.id);
    rows_.outbox.at(change.row.id) = change.row;
    return {};
  }

  std::int64_t epoch_ = 0;
  Rows rows_;
  std::vector<EventRow> events_;
  Undo* undo_ = nullptr;
};

// Fails on demand: before it wrote, or after.
class FailingStore final : public Store {
 public:
  enum class Fault { none, before_writing, after_writing };
  explicit FailingStore(Store& inner) : inner_(inner) {}

  Result<ServerEpoch> next_epoch() override {
    if (broken) return failure();
    return inner_.next_epoch();
  }
  Result<StoredState> load() override {
    if (broken) return failure();
    return inner_.load();
  }
  Status apply(const std::vector<Change>& changes) override {
    const Fault fault = std::exchange(next, Fault::none);
    if (broken || fault == Fault::before_writing) return failure();
    NS_TRY(inner_.apply(changes));
    if (fault == Fault::after_writing) return failure();
    return {};
  }

  Fault next = Fault::none;
  bool broken = false;

 private:
  static Error failure() {
    return {ErrorCode::io, "cannot commit: disk I/O error", "failing store", ""};
  }
  Store& inner_;
};

}  // namespace nightshift::testing
