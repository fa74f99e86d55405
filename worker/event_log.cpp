#include "worker/event_log.h"

#include <cstdio>

#include "worker/clock.h"

namespace nightshift {

namespace {
std::string quoted(const std::string& value) {
  const bool plain = !value.empty() && value.find_first_of(" \"\\=\n\r\t") == std::string::npos;
  if (plain) return value;
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return text + "\"";
}
}  // namespace

std::string format_event(std::string_view event, const std::vector<LogField>& fields) {
  std::string line = "event=" + std::string(event);
  for (const auto& [name, value] : fields) {
    line += ' ';
    line += name;
    line += '=';
    line += quoted(value);
  }
  return line;
}

void log_event(std::string_view event, const std::vector<LogField>& fields) {
  const std::string line = wall_clock_text() + " " + format_event(event, fields) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace nightshift
