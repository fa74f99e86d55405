// The id of a token. Knows nothing else.
#pragma once

#include <cstdint>

namespace nightshift {

using TokenId = std::int32_t;

}  // namespace nightshift
