// Follows a job to its end: shows it, keeps the private coordinator and worker alive where there
// are some, and hears Ctrl-C. Knows the client and the embedded pair; must not know reports.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/cli/arguments.h"
#include "coordinator/client.h"
#include "coordinator/embedded.h"
#include "schema/ids.h"
#include "schema/job_view.h"
#include "schema/result.h"

namespace nightshift::cli {

struct FollowOptions {
  Place place;
  bool may_start = false;               // start a private pair where no coordinator runs
  EmbeddedOptions embedded;
  bool all = false;                     // shows every stage of a large matrix
  std::int64_t poll_ms = 250;
  std::int64_t patience_ms = 60'000;    // without an answer
};

class Follower {
 public:
  explicit Follower(FollowOptions options) : options_(std::move(options)) {}

  // A live coordinator, else a private one (may_start).
  Status connect();
  Client& client() { return *client_; }
  bool is_embedded() const { return pair_ != nullptr; }

  // Until the job is final. nullopt: interrupted by SIGINT or SIGTERM; a second one ends the
  // program at once.
  Result<std::optional<JobView>> follow(JobId job);
  // Ends the private pair, if there is one; running stages end, and keep their state.
  void stop() { pair_.reset(); }

 private:
  Status reconnect();

  FollowOptions options_;
  std::unique_ptr<EmbeddedPair> pair_;
  std::optional<Client> client_;
};

// How long to wait after an answer that took `reply_ms`: looking at a job of 10,000 stages must not
// be what its coordinator is busy with.
std::int64_t pause_ms_after(std::int64_t reply_ms, std::int64_t poll_ms);

// From now on SIGINT and SIGTERM are counted; the second one ends the program with 130.
void catch_interrupts();
bool is_interrupted();

}  // namespace nightshift::cli
