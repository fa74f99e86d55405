// The network of a simulated night: loses, doubles, delays and reorders.
#pragma once

#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "tests/coordinator/simulated_things.h"

namespace nightshift::testing {

struct SimParcel {
  std::int64_t at_mono_ms = 0;
  std::uint64_t order = 0;
  bool to_coordinator = true;
  WorkerId worker;
  std::string session;
  Message message;
  bool operator>(const SimParcel& other) const {
    return std::tie(at_mono_ms, order) > std::tie(other.at_mono_ms, other.order);
  }
};

class SimNetwork {
 public:
  explicit SimNetwork(SimFate& fate) : fate_(fate) {}

  void post(bool to_coordinator, const WorkerId& worker, const std::string& session,
            const Message& message) {
    const NightOptions& odds = fate_.options;
    const int copies = fate_.fault(odds.lose) ? 0 : fate_.fault(odds.twice) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const std::int64_t delay = fate_.fault(0.05) ? fate_.up_to(20'000) : 1 + fate_.up_to(40);
      parcels_.push({fate_.now.mono_ms + delay, ++order_, to_coordinator, worker, session,
                     message});
    }
  }
  void keep_until(SimParcel parcel, std::int64_t mono_ms) {
    parcel.at_mono_ms = mono_ms;
    parcels_.push(std::move(parcel));
  }
  bool has_one_until(std::int64_t mono_ms) const {
    return !parcels_.empty() && parcels_.top().at_mono_ms <= mono_ms;
  }
  SimParcel take() {
    SimParcel parcel = parcels_.top();
    parcels_.pop();
    return parcel;
  }

 private:
  SimFate& fate_;
  std::priority_queue<SimParcel, std::vector<SimParcel>, std::greater<>> parcels_;
  std::uint64_t order_ = 0;
};

}  // namespace nightshift::testing
