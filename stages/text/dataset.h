// Samples for calibration and evaluation, read from JSON lines. Knows the members of a line; must
// not know tokens or scores. Every error names path:line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "schema/result.h"
#include "stages/text/chat_template.h"

namespace nightshift {

// {"group": "qa", "messages": [{"role": "user", "content": "..."}, ...]}
struct ChatSample {
  std::string group;                  // "all" where the line has none
  std::vector<ChatMessage> messages;  // at least one
};

// {"id": "qa-000", "group": "qa", "messages": [...], "choices": ["...", ...], "answer": 0}
struct ChoiceItem {
  std::string id;  // unique in its file
  std::string group;
  std::vector<ChatMessage> messages;
  std::vector<std::string> choices;  // at least two, none empty
  std::size_t answer = 0;            // index of the right one
};

// {"text": "...", "group": "..."}
struct TextSample {
  std::string group;
  std::string text;  // not empty
};

struct DatasetLimits {
  std::uint64_t file_bytes_max = std::uint64_t{4} << 30;
  std::size_t line_bytes_max = std::size_t{16} << 20;
};

// Blank lines are passed over; a file without a sample is an error; text must be UTF-8.
Result<std::vector<ChatSample>> read_chats(const std::string& path, DatasetLimits limits = {});
Result<std::vector<ChoiceItem>> read_choice_items(const std::string& path,
                                                  DatasetLimits limits = {});
Result<std::vector<TextSample>> read_texts(const std::string& path, DatasetLimits limits = {});
// A whole file as one text, checked to be UTF-8.
Result<std::string> read_plain_text(const std::string& path, DatasetLimits limits = {});

}  // namespace nightshift
