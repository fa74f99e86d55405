// Any bytes as a wire message: the first byte is the message's number, the rest its body. What is
// accepted can be sent on, and arrives as it was.
#include <string>
#include <string_view>

#include "schema/messages.h"
#include "tests/fuzz/require.h"

using namespace nightshift;

namespace {

constexpr std::string_view head{"NSHF\x01", 5};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<Message> first = decode(head, bytes.substr(0, 1), bytes.substr(1));
  if (!first.ok()) {
    require(!first.error().what.empty(), "an error without words", "");
    return 0;
  }
  const Frames sent = encode(*first);
  require(sent.number == bytes.substr(0, 1), "another number than it came with",
          message_name(*first));
  const Result<Message> second = decode(sent.head, sent.number, sent.body);
  require(second.ok(), "accepted, and cannot be sent on",
          second.ok() ? "" : second.error().line());
  require(encode(*second).body == sent.body, "changes on its way", message_name(*first));
  return 0;
}
