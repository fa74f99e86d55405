// result.json as the body of the wire message: one format, one set of bounds.
#include <vector>

#include "schema/json.h"
#include "schema/messages.h"
#include "worker/attempt_store.h"

namespace nightshift {

std::string result_to_json_text(const AttemptFinished& result) {
  const Frames frames = encode(result);
  const Json body = Json::from_msgpack(frames.body, true, false);
  return dump_json_pretty(body);
}

Result<AttemptFinished> result_from_json(const std::string& text, const std::string& where) {
  NS_TRY_ASSIGN(const Json body, parse_json(text, where));
  const std::vector<std::uint8_t> packed = Json::to_msgpack(body);
  const Frames frames = encode(AttemptFinished{});
  auto message = decode(frames.head, frames.number,
                        {reinterpret_cast<const char*>(packed.data()), packed.size()});
  if (!message) {
    message.error().where = where;
    return std::move(message.error());
  }
  if (auto* result = std::get_if<AttemptFinished>(&*message)) return std::move(*result);
  return Error{ErrorCode::internal, "is not a result", where, ""};
}

}  // namespace nightshift
