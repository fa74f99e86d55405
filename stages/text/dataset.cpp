#include "stages/text/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "schema/json.h"
#include "stages/model_io/files.h"
#include "stages/text/utf8.h"

namespace nightshift {
namespace {

constexpr std::size_t choices_min = 2;
constexpr std::size_t choices_max = 1024;
constexpr std::array<std::string_view, 4> roles = {"system", "user", "assistant", "tool"};

Error invalid(const std::string& where, std::string what) {
  return Error{ErrorCode::invalid_argument, std::move(what), where, ""};
}

bool is_blank(std::string_view line) {
  return std::all_of(line.begin(), line.end(),
                     [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
}

// Calls parse(object, "path:line") for each line that is not blank.
template <typename Parse>
Status for_each_line(const std::string& path, const DatasetLimits& limits, Parse parse) {
  NS_TRY_ASSIGN(const std::string text, read_file(path, limits.file_bytes_max));
  std::size_t line_number = 0;
  std::size_t samples = 0;
  for (std::size_t at = 0; at < text.size();) {
    ++line_number;
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (is_blank(line)) continue;
    const std::string where = fmt::format("{}:{}", path, line_number);
    if (line.size() > limits.line_bytes_max) {
      return invalid(where, fmt::format("the line has {} bytes, and at most {} are read",
                                        line.size(), limits.line_bytes_max));
    }
    NS_TRY(check_utf8(line, where));
    NS_TRY_ASSIGN(const Json object, parse_json(line, path, line_number));
    if (!object.is_object()) return invalid(where, "the line is not a JSON object");
    NS_TRY(parse(object, where));
    ++samples;
  }
  if (samples == 0) return invalid(path, "there is no sample in the file");
  return {};
}

Result<std::vector<ChatMessage>> read_messages(const JsonReader& reader, const std::string& where) {
  NS_TRY_ASSIGN(const Json* list, reader.array("messages"));
  if (list->empty()) return invalid(where, "\"messages\" is empty");
  std::vector<ChatMessage> messages;
  for (const Json& entry : *list) {
    const JsonReader message(entry, where + ": \"messages\"");
    ChatMessage out;
    NS_TRY_ASSIGN(out.role, message.string("role"));
    NS_TRY_ASSIGN(out.content, message.string("content"));
    if (std::find(roles.begin(), roles.end(), out.role) == roles.end()) {
      return invalid(where, fmt::format("\"role\": \"{}\" is none of system, user, assistant, tool",
                                        out.role.substr(0, 80)));
    }
    messages.push_back(std::move(out));
  }
  return messages;
}

Result<std::string> read_group(const JsonReader& reader, const std::string& where) {
  NS_TRY_ASSIGN(std::string group, reader.string_or("group", "all"));
  if (group.empty()) return invalid(where, "\"group\" is empty");
  return group;
}

Result<ChoiceItem> read_choice_item(const Json& object, const std::string& where) {
  const JsonReader reader(object, where);
  ChoiceItem item;
  NS_TRY_ASSIGN(item.id, reader.string("id"));
  NS_TRY_ASSIGN(item.group, read_group(reader, where));
  NS_TRY_ASSIGN(item.messages, read_messages(reader, where));
  NS_TRY_ASSIGN(const Json* choices, reader.array("choices"));
  if (choices->size() < choices_min || choices->size() > choices_max) {
    return invalid(where, fmt::format("{} \"choices\"; from {} to {} are read", choices->size(),
                                      choices_min, choices_max));
  }
  for (const Json& choice : *choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty()) {
      return invalid(where, "\"choices\": an entry is not a text, or is empty");
    }
    item.choices.push_back(choice.get<std::string>());
  }
  const auto last = static_cast<std::int64_t>(item.choices.size()) - 1;
  NS_TRY_ASSIGN(const std::int64_t answer, reader.integer("answer", 0, last));
  item.answer = static_cast<std::size_t>(answer);
  return item;
}

}  // namespace

Result<std::vector<ChatSample>> read_chats(const std::string& path, DatasetLimits limits) {
  std::vector<ChatSample> samples;
  NS_TRY(for_each_line(path, limits,
                       [&samples](const Json& object, const std::string& where) -> Status {
                         const JsonReader reader(object, where);
                         ChatSample sample;
                         NS_TRY_ASSIGN(sample.group, read_group(reader, where));
                         NS_TRY_ASSIGN(sample.messages, read_messages(reader, where));
                         samples.push_back(std::move(sample));
                         return {};
                       }));
  return samples;
}

Result<std::vector<ChoiceItem>> read_choice_items(const std::string& path, DatasetLimits limits) {
  std::vector<ChoiceItem> items;
  std::unordered_map<std::string, std::string> seen;  // id -> where
  NS_TRY(for_each_line(path, limits, [&](const Json& object, const std::string& where) -> Status {
    NS_TRY_ASSIGN(ChoiceItem item, read_choice_item(object, where));
    const auto [earlier, fresh] = seen.emplace(item.id, where);
    if (!fresh) {
      return invalid(where, fmt::format("\"id\": \"{}\" is already that of {}",
                                        item.id.substr(0, 80), earlier->second));
    }
    items.push_back(std::move(item));
    return {};
  }));
  return items;
}

Result<std::vector<TextSample>> read_texts(const std::string& path, DatasetLimits limits) {
  std::vector<TextSample> samples;
  NS_TRY(for_each_line(path, limits,
                       [&samples](const Json& object, const std::string& where) -> Status {
                         const JsonReader reader(object, where);
                         TextSample sample;
                         NS_TRY_ASSIGN(sample.group, read_group(reader, where));
                         NS_TRY_ASSIGN(sample.text, reader.string("text"));
                         if (sample.text.empty()) return invalid(where, "\"text\" is empty");
                         samples.push_back(std::move(sample));
                         return {};
                       }));
  return samples;
}

Result<std::string> read_plain_text(const std::string& path, DatasetLimits limits) {
  NS_TRY_ASSIGN(std::string text, read_file(path, limits.file_bytes_max));
  NS_TRY(check_utf8(text, path));
  return text;
}

}  // namespace nightshift
