#include "coordinator/content_key.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "schema/content_hash.h"
#include "schema/json.h"

namespace nightshift {

namespace {

// Raise a kind's version when the same parameters lead to another result than before.
struct KindVersion {
  std::string_view kind;
  int version;
};
constexpr std::array kind_versions = {
    KindVersion{"baseline", 1}, KindVersion{"calibrate", 1}, KindVersion{"quantize", 1},
    KindVersion{"fuse", 1},     KindVersion{"evaluate", 1},  KindVersion{"soak", 1},
    KindVersion{"run", 1}};

int version_of(std::string_view kind) {
  for (const KindVersion& entry : kind_versions) {
    if (entry.kind == kind) return entry.version;
  }
  return 0;
}

bool judges(const std::string& kind) { return kind == "evaluate" || kind == "soak"; }

std::string without_place(const std::string& text, const StageSpec& stage) {
  const auto digest = stage.input_digests.find(text);
  return digest == stage.input_digests.end() ? text : "content:" + digest->second;
}

void replace_places(Json& value, const StageSpec& stage) {
  if (value.is_string()) {
    value = without_place(value.get_ref<const std::string&>(), stage);
  } else if (value.is_structured()) {
    for (Json& member : value) replace_places(member, stage);
  }
}

std::string params_text(const StageSpec& stage) {
  Result<Json> params = parse_json(stage.params_json, stage.name + " parameters");
  if (!params.ok()) return stage.params_json;
  replace_places(*params, stage);
  return dump_json(*params);
}

std::vector<std::string> input_contents(const StageSpec& stage) {
  std::vector<std::string> contents;
  for (const auto& [path, digest] : stage.input_digests) contents.push_back(digest);
  std::sort(contents.begin(), contents.end());
  return contents;
}

std::string bench_text(const BenchSpec& bench) {
  return std::to_string(bench.batch) + " x " + std::to_string(bench.input_tokens) + " -> " +
         std::to_string(bench.output_tokens) + ", " + std::to_string(bench.warmup) + " warm-ups, " +
         std::to_string(bench.repeats) + " repeats";
}

std::string limit_text(const std::optional<Limit>& limit) {
  if (!limit) return "-";
  return (limit->side == Limit::Side::at_least ? ">= " : "<= ") + std::to_string(limit->value) +
         (limit->relative ? "x" : "");
}

std::string red_lines_text(const RedLines& lines) {
  std::string text = limit_text(lines.throughput_tok_s) + ";" + limit_text(lines.ttft_ms) + ";" +
                     limit_text(lines.tpot_ms) + ";" + limit_text(lines.peak_memory_bytes) + ";" +
                     limit_text(lines.token_match);
  for (const auto& [group, drop] : lines.accuracy_drop) {
    text += ";" + group + "=" + std::to_string(drop);
  }
  return text;
}

template <typename Range>
void add_list(ContentHasher& hasher, std::string_view title, const Range& items) {
  hasher.add_field(title);
  hasher.add_field(std::to_string(items.size()));
  for (const std::string& item : items) hasher.add_field(item);
}

std::string short_text(const Json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : dump_json(value);
  constexpr std::size_t chars_max = 60;
  if (text.size() > chars_max) text = text.substr(0, chars_max) + "...";
  return text;
}

void describe_params(const StageSpec& old_stage, const StageSpec& new_stage, std::string& out) {
  Result<Json> before = parse_json(old_stage.params_json, "parameters");
  Result<Json> after = parse_json(new_stage.params_json, "parameters");
  const auto say = [&out](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (!before.ok() || !after.ok() || !before->is_object() || !after->is_object()) {
    if (old_stage.params_json != new_stage.params_json) say("parameters");
    return;
  }
  replace_places(*before, old_stage);
  replace_places(*after, new_stage);
  for (const auto& [name, value] : after->items()) {
    const auto old_value = before->find(name);
    if (old_value == before->end()) {
      say(name + " added: " + short_text(value));
    } else if (*old_value != value) {
      say(name + " " + short_text(*old_value) + " -> " + short_text(value));
    }
  }
  for (const auto& [name, value] : before->items()) {
    if (!after->contains(name)) say(name + " removed (was " + short_text(value) + ")");
  }
}

}  // namespace

bool is_measuring_kind(const std::string& kind) {
  return kind == "baseline" || kind == "quantize" || kind == "fuse" || judges(kind);
}

std::string stage_key(const JobSpec& job, const StageSpec& stage,
                      const std::map<std::string, std::string>& keys_of_needs) {
  ContentHasher hasher;
  hasher.add_field("nightshift stage key 1");
  hasher.add_field(stage.kind);
  hasher.add_field(std::to_string(version_of(stage.kind)));
  hasher.add_field(params_text(stage));
  hasher.add_field(model_digest_of(job, stage));
  add_list(hasher, "inputs", input_contents(stage));
  if (is_measuring_kind(stage.kind)) hasher.add_field(bench_text(job.bench));
  if (judges(stage.kind)) hasher.add_field(red_lines_text(job.red_lines));
  if (stage.kind == "run") {
    std::vector<std::string> command;
    for (const std::string& word : stage.command) command.push_back(without_place(word, stage));
    add_list(hasher, "command", command);
    hasher.add_field(std::to_string(stage.environment.size()));
    for (const auto& [name, value] : stage.environment) {
      hasher.add_field(name);
      hasher.add_field(value);
    }
  }
  // The name of a need is part of the key: a stage reads its inputs by that name.
  hasher.add_field(std::to_string(keys_of_needs.size()));
  for (const auto& [name, key] : keys_of_needs) {
    hasher.add_field(name);
    hasher.add_field(key);
  }
  return hasher.hex();
}

std::vector<std::string> stage_keys(const JobSpec& job) {
  std::vector<std::string> keys;
  keys.reserve(job.stages.size());
  std::map<std::string_view, std::size_t> index;
  for (const StageSpec& stage : job.stages) {
    std::map<std::string, std::string> of_needs;
    for (const std::string& need : stage.needs) {
      const auto found = index.find(need);
      if (found != index.end()) of_needs.emplace(need, keys[found->second]);
    }
    index.emplace(stage.name, keys.size());
    keys.push_back(stage_key(job, stage, of_needs));
  }
  return keys;
}

std::string describe_difference(const JobSpec& old_job, const StageSpec& old_stage,
                                const JobSpec& new_job, const StageSpec& new_stage) {
  std::string out;
  const auto say = [&out](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (old_stage.kind != new_stage.kind) say("kind " + old_stage.kind + " -> " + new_stage.kind);
  describe_params(old_stage, new_stage, out);
  if (model_digest_of(old_job, old_stage) != model_digest_of(new_job, new_stage)) {
    say("content of the model");
  }
  for (const auto& [path, digest] : new_stage.input_digests) {
    const auto before = old_stage.input_digests.find(path);
    if (before != old_stage.input_digests.end() && before->second != digest) {
      say("content of " + path);
    }
  }
  if (out.empty() && input_contents(old_stage) != input_contents(new_stage)) say("inputs");
  if (is_measuring_kind(new_stage.kind) && bench_text(old_job.bench) != bench_text(new_job.bench)) {
    say("bench " + bench_text(old_job.bench) + " -> " + bench_text(new_job.bench));
  }
  if (judges(new_stage.kind) &&
      red_lines_text(old_job.red_lines) != red_lines_text(new_job.red_lines)) {
    say("red lines");
  }
  if (new_stage.kind == "run" && old_stage.command != new_stage.command) say("command");
  if (new_stage.kind == "run" && old_stage.environment != new_stage.environment) say("environment");
  if (old_stage.needs != new_stage.needs) say("needs");
  return out;
}

}  // namespace nightshift
