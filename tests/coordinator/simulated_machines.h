// The workers of a simulated night, as the worker's contract has them, and what lies on their
// disks. They die, pause and return; their disks fill up and rot. They watch that no attempt is run
// twice and that none starts without the files it needs.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/coordinator/simulated_network.h"

namespace nightshift::testing {

// One attempt as its worker has it.
struct SimProcess {
  AssignAttempt order;
  std::int64_t fetched_mono_ms = 0;     // its inputs are there from then on; until then preparing
  bool runs = false;
  std::int64_t runs_ms = 0;             // so long
  std::int64_t began_mono_ms = 0;
  Outcome outcome = Outcome::ok;
  bool hangs = false;
  bool finished = false;
  bool committed = false;
  std::int64_t said_mono_ms = -10'000;
};

struct SimMachine {
  WorkerId name;
  int slots = 1;
  std::int64_t quota_bytes = 0;         // every checkpoint has one byte; 0: no quota
  int session = 0;
  bool alive = false;
  std::int64_t back_mono_ms = 0;        // dead: returns then
  std::int64_t paused_until_mono_ms = 0;
  std::int64_t disk_full_until_mono_ms = 0;
  std::int64_t epoch = 0;               // welcomed by; 0: not welcomed
  std::int64_t heard_mono_ms = 0;
  std::map<AttemptRef, SimProcess> held;
  std::set<AttemptRef> folders;         // attempts that ever ran here
  std::set<std::string> copies;         // checkpoints fetched from others
  std::string session_name() const { return name.value + "-" + std::to_string(session); }
};

struct SimCheckpoint {
  WorkerId on;
  bool corrupt = false;
};

class SimMachines {
 public:
  SimMachines(SimFate& fate, SimNetwork& network, std::int64_t lease_ms)
      : fate_(fate), network_(network), lease_ms_(lease_ms) {
    for (int i = 0; i < fate_.options.workers; ++i) {
      SimMachine machine;
      machine.name = {"box" + std::to_string(i)};
      machine.slots = 1 + static_cast<int>(fate_.one_of(2));
      if (fate_.chance(fate_.options.quota)) machine.quota_bytes = 1 + fate_.up_to(8);
      machines_.push_back(machine);
    }
  }

  // A second of everybody's life.
  void live() {
    for (SimMachine& machine : machines_) live(machine);
  }
  void hear(const SimParcel& parcel) {
    for (SimMachine& machine : machines_) {
      if (machine.name == parcel.worker) hear(machine, parcel);
    }
  }

  static std::string path_of(const AttemptRef& ref) { return "/checkpoints/" + to_string(ref); }
  bool was_run(const AttemptRef& ref) const { return run_by_.contains(ref); }
  bool was_committed(const std::string& path) const { return ever_committed_.contains(path); }
  int attempts_run() const { return static_cast<int>(run_by_.size()); }
  int dropped() const { return dropped_; }
  int fetched() const { return fetched_; }
  int found_corrupt() const { return found_corrupt_; }
  // Checkpoints that must stay, for somebody was told so.
  std::set<AttemptRef> pinned;
  // What the coordinator thinks of an attempt.
  std::function<bool(const AttemptRef&)> is_current;

  std::string where_they_stand() const {
    std::string text;
    for (const SimMachine& machine : machines_) {
      text += fmt::format("; {} holds {} in epoch {}, paused for {}", machine.session_name(),
                          machine.held.size(), machine.epoch,
                          machine.paused_until_mono_ms - fate_.now.mono_ms);
    }
    return text;
  }

 private:
  std::int64_t now() const { return fate_.now.mono_ms; }
  bool is_full(const SimMachine& machine) const {
    return machine.disk_full_until_mono_ms > now();
  }
  void say(const SimMachine& machine, const Message& message) {
    network_.post(true, machine.name, machine.session_name(), message);
  }

  void live(SimMachine& machine) {
    if (machine.alive && fate_.fault(fate_.options.die)) die(machine);
    if (!machine.alive) {
      if (now() < machine.back_mono_ms) return;
      machine.alive = true;
      machine.session += 1;
      machine.epoch = 0;
      machine.heard_mono_ms = now();
    }
    if (fate_.fault(fate_.options.pause)) {
      machine.paused_until_mono_ms = now() + fate_.up_to(30'000);
    }
    if (fate_.fault(fate_.options.disk_full)) {
      machine.disk_full_until_mono_ms = now() + fate_.up_to(20'000);
    }
    for (auto& [ref, process] : machine.held) {
      const bool over = process.runs && now() - process.began_mono_ms >= process.runs_ms;
      if (!process.finished && !process.hangs && over) process.finished = true;
    }
    if (machine.paused_until_mono_ms > now()) return;
    if (now() - machine.heard_mono_ms > lease_ms_) fence(machine);
    start_what_is_fetched(machine);
    if (machine.epoch == 0) {
      say_hello(machine);
      return;
    }
    Heartbeat heartbeat{machine.name, machine.session_name(), machine.epoch, -1, -1, {}};
    for (auto& [ref, process] : machine.held) {
      if (process.finished) {
        report_end(machine, ref, process);
        continue;
      }
      AttemptPulse pulse;
      pulse.ref = ref;
      pulse.preparing = !process.runs;
      pulse.elapsed_ms = now() - process.began_mono_ms;
      if (process.hangs) pulse.progress_age_ms = pulse.log_age_ms = pulse.elapsed_ms;
      heartbeat.attempts.push_back(pulse);
    }
    say(machine, heartbeat);
  }

  void die(SimMachine& machine) {
    machine.alive = false;
    machine.back_mono_ms = now() + fate_.up_to(20'000);
    // What ran is gone; what had finished may or may not have reached its disk.
    const bool keeps = fate_.chance(0.5);
    std::erase_if(machine.held, [&](const auto& held) { return !held.second.finished || !keeps; });
  }

  // Nobody heard of for a lease: end what runs, keep what has finished.
  void fence(SimMachine& machine) {
    machine.epoch = 0;
    for (auto& [ref, process] : machine.held) {
      if (process.finished) continue;
      process.finished = true;
      process.outcome = Outcome::cancelled;
    }
  }

  void say_hello(SimMachine& machine) {
    WorkerHello hello;
    hello.worker = machine.name;
    hello.session = machine.session_name();
    hello.resources.slots = machine.slots;
    hello.resources.disk_quota_bytes = machine.quota_bytes;
    for (const auto& [ref, process] : machine.held) {
      hello.held.push_back({ref, process.finished, !process.finished && !process.runs});
    }
    say(machine, hello);
  }

  void report_end(SimMachine& machine, const AttemptRef& ref, SimProcess& process) {
    if (now() - process.said_mono_ms < 3'000) return;
    process.said_mono_ms = now();
    AttemptFinished report;
    report.ref = ref;
    report.outcome = process.outcome;
    report.elapsed_ms = now() - process.began_mono_ms;
    report.committed = process.committed;
    if (process.outcome == Outcome::ok) {
      report.checkpoint = CheckpointInfo{path_of(ref), "made by " + to_string(ref), 1};
    }
    say(machine, report);
  }

  void hear(SimMachine& machine, const SimParcel& parcel) {
    if (!machine.alive || parcel.session != machine.session_name()) return;
    if (machine.paused_until_mono_ms > now()) {
      network_.keep_until(parcel, machine.paused_until_mono_ms);
      return;
    }
    machine.heard_mono_ms = now();
    if (const auto* welcome = std::get_if<WorkerWelcome>(&parcel.message)) {
      const bool another = machine.epoch != 0 && machine.epoch != welcome->server_epoch;
      machine.epoch = another ? 0 : welcome->server_epoch;
      if (another) say_hello(machine);
    } else if (std::holds_alternative<ErrorReply>(parcel.message)) {
      machine.epoch = 0;
    } else if (const auto* assign = std::get_if<AssignAttempt>(&parcel.message)) {
      begin(machine, *assign);
    } else if (const auto* stop = std::get_if<StopAttempt>(&parcel.message)) {
      const auto held = machine.held.find(stop->ref);
      if (held == machine.held.end() || held->second.finished) return;
      held->second.finished = true;
      held->second.outcome = stop->outcome;
      report_end(machine, held->first, held->second);
    } else if (const auto* commit = std::get_if<CommitCheckpoint>(&parcel.message)) {
      commit_checkpoint(machine, commit->ref);
    } else if (const auto* acknowledged = std::get_if<AttemptAcknowledged>(&parcel.message)) {
      machine.held.erase(acknowledged->ref);
    } else if (const auto* drop = std::get_if<DropCheckpoint>(&parcel.message)) {
      drop_checkpoint(machine, drop->ref);
    }
  }

  void commit_checkpoint(SimMachine& machine, const AttemptRef& ref) {
    const auto held = machine.held.find(ref);
    if (held == machine.held.end() || held->second.outcome != Outcome::ok) return;
    if (!held->second.committed && is_full(machine)) {
      say(machine, CheckpointCommitted{ref, false, "No space left on device"});
      return;
    }
    if (!held->second.committed) {
      held->second.committed = true;
      on_disk_[path_of(ref)] = {machine.name, fate_.fault(fate_.options.corrupt)};
      ever_committed_.insert(path_of(ref));
    }
    say(machine, CheckpointCommitted{ref, true, ""});
  }

  void drop_checkpoint(SimMachine& machine, const AttemptRef& ref) {
    if (pinned.contains(ref)) fate_.broken(to_string(ref) + " is pinned and was dropped");
    const std::string path = path_of(ref);
    const bool is_read = std::any_of(
        machine.held.begin(), machine.held.end(), [&](const auto& held) {
          const auto& inputs = held.second.order.order.inputs;
          return !held.second.finished &&
                 std::any_of(inputs.begin(), inputs.end(),
                             [&](const auto& input) { return input.second == path; });
        });
    if (is_read || is_full(machine)) {
      say(machine, CheckpointDropped{ref, false, "in use"});
      return;
    }
    dropped_ += static_cast<int>(on_disk_.erase(path));
    say(machine, CheckpointDropped{ref, true, ""});
  }

  void begin(SimMachine& machine, const AssignAttempt& assign) {
    const auto held = machine.held.find(assign.ref);
    if (held != machine.held.end()) {
      if (held->second.runs && !held->second.finished) {
        say(machine, AttemptStarted{assign.ref, 1, "/log"});
      }
      return;
    }
    int running = 0;
    bool same_stage = false;
    for (const auto& [ref, process] : machine.held) {
      running += process.finished ? 0 : 1;
      same_stage = same_stage || (!process.finished && ref.stage_ref() == assign.ref.stage_ref());
    }
    if (machine.folders.contains(assign.ref) || running >= machine.slots || same_stage) {
      return refuse(machine, assign.ref, running >= machine.slots ? "full" : "ran already");
    }
    SimProcess process;
    process.order = assign;
    process.fetched_mono_ms = now() + (has_inputs(machine, assign) ? 0 : 500 + fate_.up_to(5'000));
    machine.held.emplace(assign.ref, process);
    start_what_is_fetched(machine);
  }
  void refuse(SimMachine& machine, const AttemptRef& ref, const std::string& reason,
              bool input_missing = false, const std::string& corrupt = "") {
    machine.held.erase(ref);
    say(machine, AssignRefused{ref, reason, input_missing, corrupt});
  }
  bool has_inputs(const SimMachine& machine, const AssignAttempt& assign) const {
    for (const auto& [stage, path] : assign.order.inputs) {
      const auto found = on_disk_.find(path);
      if (machine.copies.contains(path)) continue;
      if (found == on_disk_.end() || found->second.on != machine.name) return false;
    }
    return true;
  }
  // What came from elsewhere is a copy of its own from now on.
  bool fetch(SimMachine& machine, const std::string& path) {
    if (machine.copies.contains(path)) return true;
    const SimCheckpoint& source = on_disk_.at(path);
    if (source.on == machine.name) return true;
    const auto other =
        std::find_if(machines_.begin(), machines_.end(),
                     [&](const SimMachine& one) { return one.name == source.on; });
    if (!other->alive || other->paused_until_mono_ms > now()) return false;
    fetched_ += 1;
    if (!source.corrupt) machine.copies.insert(path);
    return true;
  }

  void start_what_is_fetched(SimMachine& machine) {
    std::vector<AttemptRef> due;
    for (const auto& [ref, process] : machine.held) {
      if (!process.runs && !process.finished && process.fetched_mono_ms <= now()) {
        due.push_back(ref);
      }
    }
    for (const AttemptRef& ref : due) start(machine, ref);
  }
  void start(SimMachine& machine, const AttemptRef& ref) {
    SimProcess& process = machine.held.at(ref);
    for (const auto& [stage, path] : process.order.order.inputs) {
      const auto found = on_disk_.find(path);
      if (found == on_disk_.end() && !machine.copies.contains(path)) {
        // An attempt that was given up long ago may find that the quota took its inputs.
        if (is_current && is_current(ref)) {
          fate_.broken(fmt::format("{} starts without {}", to_string(ref), path));
        }
        return refuse(machine, ref, path + " is not there", true);
      }
      if (!fetch(machine, path)) return refuse(machine, ref, "cannot fetch " + path, true);
      if (found != on_disk_.end() && found->second.corrupt && !machine.copies.contains(path)) {
        found_corrupt_ += 1;
        return refuse(machine, ref, path + " is not what was made", false, stage);
      }
    }
    if (!run_by_.emplace(ref, machine.name).second) {
      fate_.broken(fmt::format("{} is run a second time", to_string(ref)));
    }
    machine.folders.insert(ref);
    process.runs = true;
    process.began_mono_ms = now();
    process.runs_ms = 200 + fate_.up_to(8'000);
    if (fate_.fault(0.15)) process.outcome = fate_.chance(0.7) ? Outcome::crash : Outcome::error;
    process.hangs = fate_.fault(0.03);
    if (is_full(machine)) {
      process.outcome = Outcome::disk;
      process.finished = true;
    }
    say(machine, AttemptStarted{ref, 1, "/log"});
  }

  SimFate& fate_;
  SimNetwork& network_;
  std::int64_t lease_ms_;
  std::vector<SimMachine> machines_;
  std::map<std::string, SimCheckpoint> on_disk_;   // by path
  std::set<std::string> ever_committed_;
  std::map<AttemptRef, WorkerId> run_by_;
  int dropped_ = 0;
  int fetched_ = 0;
  int found_corrupt_ = 0;
};

}  // namespace nightshift::testing
