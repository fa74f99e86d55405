// The CURVE keys of a coordinator and the gate that admits only known ones (ZAP, RFC 27). Knows
// ZeroMQ in its source only; must not know messages.
//
//   keys/server.json   {"public": ..., "secret": ...}, made at the first start, mode 0600
//   keys/client.json   the pair that the access files carry: the CLI and the workers
//   keys/allowed       admitted public keys, one a line, text behind it is a comment; read again
//                      when it changes, so that a key can be added or withdrawn while all runs
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "schema/result.h"

namespace zmq {
class context_t;
}

namespace nightshift {

// Z85 text, 40 characters each.
struct KeyPair {
  std::string public_key;
  std::string secret_key;
};

struct CoordinatorKeys {
  KeyPair server;
  KeyPair client;
  std::string allowed_file;
};

Result<KeyPair> make_key_pair();
// Makes what is not there; refuses key files that others may read.
Result<CoordinatorKeys> load_or_make_keys(const std::string& folder);

// Answers the ZAP requests of one ZeroMQ context on a thread of its own, so that a busy coordinator
// still refuses quickly. Must be open before a socket of the context is bound: CURVE without a
// handler would admit everybody. Destroy it before the context.
class AdmissionGate {
 public:
  static Result<std::unique_ptr<AdmissionGate>> open(zmq::context_t& context,
                                                     std::string allowed_file);
  ~AdmissionGate();
  AdmissionGate(const AdmissionGate&) = delete;
  AdmissionGate& operator=(const AdmissionGate&) = delete;

  std::int64_t refused() const;

 private:
  struct State;
  explicit AdmissionGate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace nightshift
