// Walks over a MessagePack body without building anything. Private to schema/*.cpp. Knows the
// format (github.com/msgpack/msgpack, spec.md); must not know messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace nightshift::codec {

// A value tree costs far more memory than its bytes (a nil is one byte and one node), and building
// it recurses; so nodes and depth are bounded before the tree is built. The most that a message of
// ours holds is some list_items_max small maps.
inline constexpr std::size_t msgpack_nodes_max = 1'000'000;
inline constexpr std::size_t msgpack_depth_max = 64;

// Ok when `body` is exactly one well-formed value within both bounds: map keys are strings, every
// length fits into what is left. Extension types are refused: no message has one.
Status check_msgpack(std::string_view body, const std::string& where);

}  // namespace nightshift::codec
