// One example of every wire message, each field away from its default. Knows schema/ only.
#pragma once

#include <vector>

#include "schema/messages.h"

namespace nightshift::test {

AttemptRef example_ref();
StageOrder example_order();
JobSpec example_spec();
// In the order of the message numbers.
std::vector<Message> message_examples();

}  // namespace nightshift::test
