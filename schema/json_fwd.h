// The name of a JSON value, for headers. Knows only that nlohmann-json exists.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace nightshift {
using Json = nlohmann::json;
}
