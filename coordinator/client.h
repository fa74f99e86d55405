// The CLI's side of the wire: asks a coordinator and waits for the answer. Knows messages and, in
// its source, ZeroMQ; must not know what is done with the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "schema/access.h"
#include "schema/ids.h"
#include "schema/json_fwd.h"
#include "schema/messages.h"
#include "schema/result.h"

namespace nightshift {

struct ClientOptions {
  std::int64_t answer_ms = 5'000;   // how long to wait for one answer
  int tries = 3;                    // in all, where asking twice does no harm
};

// Whether a question may be asked again when its answer did not come.
enum class Repeat { allowed, never };

// One conversation at a time; not for several threads. An unanswered question is asked again on a
// new connection, so that a late answer to the first cannot be taken for the second.
class Client {
 public:
  // Makes the socket; the first question finds out whether anybody is there.
  static Result<Client> open(Access access, ClientOptions options = {});
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // The body of the reply. Errors: what the coordinator answered; `unavailable` when nobody did.
  Result<Json> ask(const std::string& verb, const Json& arguments, Repeat repeat = Repeat::allowed);
  // Sent again with the same `request` it submits once.
  Result<JobId> submit(const SubmitJob& job);

  const std::string& endpoint() const;
  void set_options(ClientOptions options);

 private:
  struct State;
  explicit Client(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// "no coordinator at ENDPOINT: start one with ...": the same words wherever nobody answers.
Error no_coordinator(const std::string& endpoint);

// The code of an ErrorReply; `internal` for one that this version does not know.
ErrorCode error_code_from(const std::string& text);

// 32 hex digits from the system's random numbers: for SubmitJob::request.
std::string random_request();

}  // namespace nightshift
