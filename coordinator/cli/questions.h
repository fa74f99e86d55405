// Asks what a person wants to know: the coordinator, or the store itself where none runs. Knows the
// client and the desk; must not know how answers are shown.
#pragma once

#include <memory>
#include <string>

#include "coordinator/cli/arguments.h"
#include "coordinator/client.h"
#include "coordinator/home.h"
#include "schema/job_view.h"
#include "schema/json_fwd.h"
#include "schema/result.h"

namespace nightshift::cli {

// The verbs that only look, and cancel, work on a home without a coordinator: after a night of
// `run` there is none, and its jobs, logs and reports are still wanted. The home is locked
// meanwhile.
class Questions {
 public:
  // Nothing to ask: no coordinator runs and the home has no store.
  static Result<Questions> open(const Place& place);
  Questions(Questions&&) noexcept;
  Questions& operator=(Questions&&) noexcept;
  ~Questions();

  Result<Json> ask(const std::string& verb, const Json& arguments);
  Result<JobView> ask_job(const std::string& job);
  // Nobody works on the jobs now.
  bool is_offline() const;

 private:
  struct State;
  explicit Questions(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace nightshift::cli
