#include "schema/ids.h"

namespace nightshift {

std::string to_string(const StageRef& ref) {
  return std::to_string(ref.job.value) + "/" + ref.stage;
}

std::string to_string(const AttemptRef& ref) {
  return to_string(ref.stage_ref()) + "#" + std::to_string(ref.attempt.value);
}

}  // namespace nightshift
