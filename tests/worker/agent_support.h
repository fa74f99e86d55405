// Drives an Agent and keeps what it wanted done.
#pragma once

#include <vector>

#include "tests/worker/support.h"
#include "worker/agent.h"

namespace nightshift::test {

struct AgentRun {
  explicit AgentRun(int slots = 1, std::vector<AttemptFinished> unreported = {})
      : agent(options(slots), std::move(unreported), 0) {}

  static AgentOptions options(int slots) {
    AgentOptions o;
    o.worker = WorkerId{"box1"};
    o.session = "s1";
    o.resources.slots = slots;
    return o;
  }
  void collect() {
    for (Action& action : agent.take_actions()) actions.push_back(std::move(action));
  }
  void message(const Message& message) {
    agent.on_message(message, now);
    collect();
  }
  void tick(std::int64_t at) {
    now = at;
    agent.on_tick(now);
    collect();
  }
  void welcome(std::int64_t epoch) {
    agent.on_connected(now);
    message(WorkerWelcome{epoch, 1'000, 10'000});
  }
  AttemptRef start_stage(const std::string& stage, std::int64_t epoch) {
    const AttemptRef ref = make_ref(3, stage, 1);
    message(make_order(ref, epoch));
    agent.on_stage_started(ref, 4711, "/root/log", now);
    collect();
    return ref;
  }
  void finish(const AttemptRef& ref, const StageExit& exit) {
    agent.on_stage_exited(ref, exit);
    agent.on_tree_empty(ref, 0, now);
    collect();
    agent.on_result_stored(done<FinishAttempt>().back().draft);
    collect();
  }
  template <typename T>
  std::vector<T> done() {
    collect();
    std::vector<T> found;
    for (const Action& action : actions) {
      if (const auto* a = std::get_if<T>(&action)) found.push_back(*a);
    }
    return found;
  }
  template <typename T>
  std::vector<T> sent() {
    std::vector<T> found;
    for (const SendMessage& send : done<SendMessage>()) {
      if (const auto* m = std::get_if<T>(&send.message)) found.push_back(*m);
    }
    return found;
  }
  template <typename T>
  T last() {
    const std::vector<T> all = sent<T>();
    return all.empty() ? T{} : all.back();
  }

  Agent agent;
  std::vector<Action> actions;
  std::int64_t now = 0;
};

}  // namespace nightshift::test
