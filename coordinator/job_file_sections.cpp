#include "coordinator/job_file_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "coordinator/job_file_keys.h"
#include "coordinator/units.h"
#include "schema/text.h"

namespace nightshift {
namespace {

constexpr std::int64_t tokens_max = 1 << 24;
constexpr std::int64_t count_max = 1 << 20;
constexpr int warmup_min = 5;

std::optional<YamlMap> section(const YamlMap& map, const char* key, const char* keys,
                               YamlProblems& problems) {
  const YamlNode* node = map.node(key);
  if (!node) return std::nullopt;
  return YamlMap(*node, map.path(key), job_file_keys(keys), problems);
}

struct LineUnit {
  const char* key;
  const char* unit;
  Limit::Side side;
};

void read_limit(const YamlMap& map, const LineUnit& line, std::optional<Limit>& limit) {
  std::string text;
  if (!map.text(line.key, text)) return;
  Result<Limit> read = parse_limit(text, line.unit);
  if (!read) {
    return map.problem(line.key, fmt::format("`{}`: {}", clip_utf8(text, 60), read.error().what),
                       read.error().hint);
  }
  if (read->side != line.side) {
    return map.problem(line.key, fmt::format("`{}` would refuse what gets better", read->text),
                       line.side == Limit::Side::at_least ? "write it with >="
                                                          : "write it with <=");
  }
  const char last = read->text.back();
  if (std::string_view(line.unit) == "bytes" && last >= '0' && last <= '9') {
    return map.problem(line.key, fmt::format("`{}` has no unit", read->text),
                       "write it like \"<= 20GiB\" or \"<= 0.6x\" of the baseline");
  }
  if (read->relative && std::string_view(line.key) == "token_match") {
    return map.problem(line.key, "is a share of tokens already, not a factor on the baseline",
                       "write it like \">= 95%\"");
  }
  limit = std::move(*read);
}

// `gpu: 2` is whole devices, `gpu: 50%` a share of one.
void read_gpu(const YamlMap& map, ResourceSpec& resources) {
  const YamlNode* node = map.node("gpu");
  if (!node) return;
  if (node->kind != YamlNode::Kind::scalar || !node->text.ends_with('%')) {
    int whole = -1;
    map.whole("gpu", whole, 0, 1024);
    if (whole < 0) return;
    resources.gpu = whole;
    resources.gpu_share_percent = 0;
    return;
  }
  const Result<std::int64_t> percent = parse_whole(node->text.substr(0, node->text.size() - 1));
  if (!percent.ok()) return map.problem("gpu", percent.error().what, "like 50%");
  if (*percent < 1 || *percent > 100) {
    return map.problem("gpu", fmt::format("{}% of a device, from 1% to 100%", *percent),
                       "more than one device is written without %: gpu: 2");
  }
  resources.gpu = *percent == 100 ? 1 : 0;
  resources.gpu_share_percent = *percent == 100 ? 0 : static_cast<int>(*percent);
}

bool is_known_event(const std::string& event) {
  static const std::vector<std::string> events = {"done", "failed", "cancelled", "red_line",
                                                  "retry"};
  return std::find(events.begin(), events.end(), event) != events.end();
}

void read_one_notify(const YamlNode& node, const std::string& name, NotifySpec& notify,
                     YamlProblems& problems) {
  const YamlMap map(node, name, job_file_keys("notify"), problems);
  if (node.kind != YamlNode::Kind::map) return;
  map.texts("on", notify.on);
  if (!map.has("on")) problems.add(map.place(), name + ": `on` is missing", "on: [done, failed]");
  std::vector<std::string> known;
  for (const std::string& event : notify.on) {
    if (event == "rolled_back") {
      problems.warn(map.place("on"), name + ".on: rolled_back is not built yet and never sent");
    } else if (!is_known_event(event)) {
      map.problem("on", fmt::format("`{}` is not known", clip_utf8(event, 60)),
                  suggestion(event, {"done", "failed", "cancelled", "red_line", "retry"}));
    } else {
      known.push_back(event);
    }
  }
  notify.on = std::move(known);
  if (map.text("webhook", notify.webhook) && !notify.webhook.starts_with("https://") &&
      !notify.webhook.starts_with("http://")) {
    map.problem("webhook", "is not an address that begins with https:// or http://");
  }
  map.text("command", notify.command);
  if (const auto email = section(map, "email", "email", problems)) {
    const bool to = email->text("to", notify.email_to);
    if (!to && !email->has("to")) map.problem("email", "`to` is missing");
    email->text("smtp", notify.email_smtp);
  }
  if (!map.has("webhook") && !map.has("command") && !map.has("email")) {
    problems.add(map.place(), name + ": says when, but not how to notify",
                 "add webhook, command or email");
  }
  problems.warn(map.place(), name + ": kept in the store; nothing delivers notifications yet");
}

}  // namespace

std::string JobFileContext::resolve(const YamlMap& map, const char* key,
                                    const std::string& text) const {
  if (text.starts_with('~')) {
    map.problem(key, "`~` is not expanded: another machine has another home",
                "write the whole path, or one relative to the job file");
    return "";
  }
  if (text.size() > 4096 || text.find('\n') != std::string::npos) {
    map.problem(key, "is not a path");
    return "";
  }
  std::string whole = (std::filesystem::path(folder) / text).lexically_normal().string();
  if (whole.size() > 1 && whole.back() == '/') whole.pop_back();
  return whole;
}

void JobFileContext::path(const YamlMap& map, const char* key, std::string& value) const {
  std::string text;
  if (map.text(key, text)) value = resolve(map, key, text);
}

void read_model(const YamlMap& map, std::string& path, const JobFileContext& context) {
  const YamlNode* node = map.node("model");
  if (!node) return map.problem("model", "is missing", "model: {path: FOLDER}");
  const YamlMap model(*node, map.path("model"), job_file_keys("model"), context.problems);
  if (node->kind == YamlNode::Kind::scalar || node->kind == YamlNode::Kind::list) return;
  if (!model.has("path")) return model.problem("path", "is missing", "a Hugging Face folder");
  context.path(model, "path", path);
}

void read_night(const YamlMap& map, NightSpec& night, YamlProblems& problems) {
  const auto part = section(map, "night", "night", problems);
  if (!part) return;
  for (const auto& [key, value] :
       {std::pair{"start", &night.start}, {"deadline", &night.deadline}}) {
    std::string text;
    if (!part->text(key, text)) continue;
    const Result<int> minutes = parse_time_of_day(text);
    if (minutes) {
      *value = fmt::format("{:02}:{:02}", *minutes / 60, *minutes % 60);
    } else {
      part->problem(key, minutes.error().what, minutes.error().hint);
    }
  }
  if (!part->text("zone", night.zone)) return;
  const bool fine =
      night.zone.size() <= 64 &&
      night.zone.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                   "0123456789_+-/") == std::string::npos &&
      night.zone.front() != '/';
  if (!fine) part->problem("zone", "is not the name of a time zone", "like Asia/Shanghai");
}

void read_bench(const YamlMap& map, BenchSpec& bench, YamlProblems& problems) {
  const auto part = section(map, "bench", "bench", problems);
  if (!part) return;
  part->whole("batch", bench.batch, 1, 65'536);
  part->whole("input_tokens", bench.input_tokens, 1, tokens_max);
  part->whole("output_tokens", bench.output_tokens, 1, tokens_max);
  part->whole("warmup", bench.warmup, warmup_min, count_max);
  part->whole("repeats", bench.repeats, 1, count_max);
}

void read_red_lines(const YamlMap& map, RedLines& lines, YamlProblems& problems) {
  const auto part = section(map, "red_lines", "red_lines", problems);
  if (!part) return;
  using Side = Limit::Side;
  read_limit(*part, {"throughput_tok_s", "tok/s", Side::at_least}, lines.throughput_tok_s);
  read_limit(*part, {"ttft_ms", "ms", Side::at_most}, lines.ttft_ms);
  read_limit(*part, {"tpot_ms", "ms", Side::at_most}, lines.tpot_ms);
  read_limit(*part, {"peak_memory", "bytes", Side::at_most}, lines.peak_memory_bytes);
  read_limit(*part, {"token_match", "fraction", Side::at_least}, lines.token_match);
  std::map<std::string, std::string> drops;
  read_text_map(*part, "accuracy_drop", drops, problems);
  for (const auto& [name, text] : drops) {
    const Result<double> drop = parse_fraction(text);
    if (drop) {
      lines.accuracy_drop[name] = *drop;
    } else {
      const YamlEntry* entry = part->node("accuracy_drop")->find(name);
      problems.add(entry->value->place,
                   part->path("accuracy_drop.") + name + ": " + drop.error().what,
                   drop.error().hint);
    }
  }
}

void read_watchdog(const YamlMap& map, WatchdogSpec& watchdog, YamlProblems& problems) {
  const auto part = section(map, "watchdog", "watchdog", problems);
  if (!part) return;
  part->duration("interval", watchdog.interval_ms, 100);
  part->duration("log_silence", watchdog.log_silence_ms);
  part->size("min_disk_free", watchdog.min_disk_free_bytes);
  if (const auto memory = section(*part, "memory", "watchdog_memory", problems)) {
    memory->size("max", watchdog.memory_max_bytes);
    std::int64_t unused = 0;
    for (const char* key : {"max_growth", "min_free"}) {
      memory->size(key, unused);
      if (memory->has(key)) {
        problems.warn(memory->place(key),
                      memory->path(key) + " is not built yet and watches nothing");
      }
    }
  }
  std::string mode;
  part->word("mode", mode, {"log", "warn", "act"});
  if (mode == "log") watchdog.mode = WatchdogMode::log;
  if (mode == "warn") watchdog.mode = WatchdogMode::warn;
  if (mode == "act") watchdog.mode = WatchdogMode::act;
}

void read_retry(const YamlMap& map, RetrySpec& retry, YamlProblems& problems) {
  const auto part = section(map, "retry", "retry", problems);
  if (!part) return;
  part->whole("max", retry.max, 0, 1000);
  part->duration("backoff", retry.backoff_ms);
}

void read_resources(const YamlMap& map, ResourceSpec& resources, const JobFileContext& context) {
  const auto part = section(map, "resources", "resources", context.problems);
  if (!part) return;
  read_gpu(*part, resources);
  part->flag("exclusive", resources.exclusive);
  part->size("memory", resources.memory_bytes);
  part->whole("cores", resources.cores, 0, 65'536);
  part->texts("labels", resources.labels);
  context.path(*part, "temp", resources.temp);
}

void read_notify(const YamlMap& map, std::vector<NotifySpec>& notify, YamlProblems& problems) {
  const YamlNode* node = map.node("notify");
  if (!node) return;
  if (node->kind == YamlNode::Kind::map) {
    return read_one_notify(*node, "notify", notify.emplace_back(), problems);
  }
  if (node->kind != YamlNode::Kind::list) {
    return map.problem("notify", "expected a list, found " + kind_text(*node),
                       "- {on: [done, failed], webhook: \"https://...\"}");
  }
  for (std::size_t i = 0; i < node->items.size(); ++i) {
    read_one_notify(*node->items[i], fmt::format("notify[{}]", i), notify.emplace_back(), problems);
  }
}

void read_evaluation(const YamlMap& map, Evaluation& evaluation, const JobFileContext& context) {
  context.path(map, "tasks", evaluation.tasks);
  if (map.has("heldout")) {
    std::map<std::string, std::string> files;
    read_text_map(map, "heldout", files, context.problems);
    evaluation.heldout.clear();
    for (const auto& [name, file] : files) {
      evaluation.heldout[name] = context.resolve(map, "heldout", file);
    }
  }
  const YamlNode* groups = map.node("groups");
  if (!groups) return;
  if (groups->kind != YamlNode::Kind::map) {
    return map.problem("groups", "expected a map, found " + kind_text(*groups),
                       "{target: [summary, qa], general: [code]}");
  }
  evaluation.groups.clear();
  std::vector<std::string> names;
  for (const YamlEntry& entry : groups->entries) names.push_back(entry.key);
  const YamlMap part(*groups, map.path("groups"), names, context.problems);
  for (const std::string& name : names) part.texts(name.c_str(), evaluation.groups[name]);
}

void read_text_map(const YamlMap& map, const char* key, std::map<std::string, std::string>& texts,
                   YamlProblems& problems) {
  const YamlNode* node = map.node(key);
  if (!node || node->kind == YamlNode::Kind::null) return;
  if (node->kind != YamlNode::Kind::map) {
    return map.problem(key, "expected a map, found " + kind_text(*node), "{name: value}");
  }
  for (const YamlEntry& entry : node->entries) {
    if (!is_name(entry.key, 128)) {
      problems.add(entry.place, map.path(key) + ": a name has 1 to 128 bytes in one line");
    } else if (entry.value->kind != YamlNode::Kind::scalar || entry.value->text.empty()) {
      problems.add(entry.value->place,
                   fmt::format("{}.{}: expected a text, found {}", map.path(key), entry.key,
                               kind_text(*entry.value)));
    } else {
      texts[entry.key] = entry.value->text;
    }
  }
}

}  // namespace nightshift
