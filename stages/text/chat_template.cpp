#include "stages/text/chat_template.h"

#include <fmt/format.h>

#include <optional>

#include "schema/json.h"
#include "stages/model_io/files.h"

namespace nightshift {
namespace {

constexpr std::uint64_t file_bytes_max = 64u << 20;
constexpr std::string_view turn_start = "<|im_start|>";
constexpr std::string_view turn_end = "<|im_end|>\n";

// What people write in many ways, in one: see canonical().
constexpr std::string_view loop_start = "{%formessageinmessages%}";
constexpr std::string_view turns =
    R"({{'<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>\n'}}{%endfor%})";
constexpr std::string_view generation_prompt =
    R"({%ifadd_generation_prompt%}{{'<|im_start|>assistant\n'}}{%endif%})";
constexpr std::string_view prompt_default =
    "{%ifnotadd_generation_promptisdefined%}{%setadd_generation_prompt=false%}{%endif%}";
constexpr std::string_view system_start =
    R"({%ifloop.firstandmessages[0]['role']!='system'%}{{'<|im_start|>system\n)";
constexpr std::string_view system_end = R"(<|im_end|>\n'}}{%endif%})";

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// Takes a quoted string of a tag over, with single quotes and escaped newlines. Returns the
// position behind it.
std::size_t copy_quoted(std::string_view jinja, std::size_t at, std::string& out) {
  const char quote = jinja[at++];
  out += '\'';
  while (at < jinja.size() && jinja[at] != quote) {
    if (jinja[at] == '\\' && at + 1 < jinja.size()) out += jinja[at++];
    if (jinja[at] == '\n') {
      out += "\\n";
    } else {
      out += jinja[at];
    }
    ++at;
  }
  out += '\'';
  return at + 1;
}

// The template without what makes no difference: blanks in and between tags, "-" at their ends, the
// kind of quotes, real newlines for "\n", message.role for message['role'], neighbouring prints and
// constants.
std::string canonical(std::string_view jinja) {
  std::string out;
  bool in_tag = false;
  for (std::size_t at = 0; at < jinja.size();) {
    const char c = jinja[at];
    const std::string_view two = jinja.substr(at, 2);
    if (in_tag && (c == '\'' || c == '"')) {
      at = copy_quoted(jinja, at, out);
      continue;
    }
    if (two == "{{" || two == "{%" || two == "}}" || two == "%}") {
      in_tag = two == "{{" || two == "{%";
      if (!in_tag && !out.empty() && out.back() == '-') out.pop_back();
      out += two;
      at += 2;
      if (in_tag && at < jinja.size() && jinja[at] == '-') ++at;
      continue;
    }
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') out += c;
    ++at;
  }
  replace_all(out, "message.role", "message['role']");
  replace_all(out, "message.content", "message['content']");
  replace_all(out, "}}{{", "+");
  replace_all(out, "'+'", "");
  return out;
}

bool take(std::string_view& text, std::string_view start) {
  if (text.substr(0, start.size()) != start) return false;
  text.remove_prefix(start.size());
  return true;
}

// The default system message where the template has one, "" where it has none, nothing when the
// template is not ChatML.
std::optional<std::string> recognise(std::string_view jinja) {
  const std::string text = canonical(jinja);
  std::string_view rest = text;
  std::string system;
  take(rest, prompt_default);
  if (!take(rest, loop_start)) return std::nullopt;
  if (take(rest, system_start)) {
    const auto end = rest.find(system_end);
    if (end == std::string_view::npos) return std::nullopt;
    system = rest.substr(0, end);
    rest.remove_prefix(end + system_end.size());
    // A message with escapes or expressions in it would have to be evaluated.
    if (system.find_first_of("\\'{}") != std::string::npos) return std::nullopt;
  }
  if (!take(rest, turns)) return std::nullopt;
  take(rest, generation_prompt);
  if (!rest.empty()) return std::nullopt;
  return system;
}

// The template called "default" of a list, or the only one there is.
Result<std::string> pick(const Json& found, const std::string& where) {
  if (found.is_string()) return found.get<std::string>();
  if (found.is_array()) {
    for (const Json& entry : found) {
      const JsonReader reader(entry, where + ": \"chat_template\"");
      NS_TRY_ASSIGN(const std::string name, reader.string("name"));
      if (name == "default") return reader.string("template");
    }
  }
  return Error{ErrorCode::invalid_argument,
               "\"chat_template\" is neither a text nor a list with a \"default\"", where, ""};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view jinja, const std::string& where) {
  auto system = recognise(jinja);
  if (!system) {
    return Error{
        ErrorCode::unsupported,
        "the chat template is not recognised: only plain ChatML is (no tools, no thinking)", where,
        "give the prompts as plain text instead of chats"};
  }
  ChatTemplate out;
  out.default_system_ = std::move(*system);
  return out;
}

Result<ChatTemplate> ChatTemplate::open(const std::string& folder) {
  const std::string jinja_path = join_path(folder, "chat_template.jinja");
  if (file_exists(jinja_path)) {
    NS_TRY_ASSIGN(const std::string jinja, read_file(jinja_path, file_bytes_max));
    return parse(jinja, jinja_path);
  }
  const std::string path = join_path(folder, "tokenizer_config.json");
  NS_TRY_ASSIGN(const std::string text, read_file(path, file_bytes_max));
  NS_TRY_ASSIGN(const Json config, parse_json(text, path));
  if (!JsonReader(config, path).has("chat_template")) {
    return Error{ErrorCode::unsupported, "there is no \"chat_template\"", path,
                 "give the prompts as plain text instead of chats"};
  }
  NS_TRY_ASSIGN(const std::string jinja, pick(config["chat_template"], path));
  return parse(jinja, path);
}

RenderedChat ChatTemplate::render(std::span<const ChatMessage> messages,
                                  bool add_generation_prompt) const {
  RenderedChat chat;
  const auto add = [&chat](std::string_view role, std::string_view content) {
    chat.text += turn_start;
    chat.text += role;
    chat.text += '\n';
    const std::size_t begin = chat.text.size();
    chat.text += content;
    if (!content.empty()) chat.contents.push_back({begin, chat.text.size()});
    chat.text += turn_end;
  };
  if (!default_system_.empty() && !messages.empty() && messages.front().role != "system") {
    add("system", default_system_);
  }
  for (const auto& message : messages) add(message.role, message.content);
  if (add_generation_prompt) {
    chat.text += turn_start;
    chat.text += "assistant\n";
  }
  return chat;
}

}  // namespace nightshift
