#include "coordinator/job_file_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "coordinator/content_key.h"
#include "coordinator/job_file_keys.h"
#include "schema/json.h"
#include "schema/messages.h"
#include "schema/text.h"

namespace nightshift {
namespace {

constexpr std::int64_t tokens_max = 1 << 24;
constexpr std::int64_t count_max = 1 << 30;
// Of parameters and paths of all stages: the spec is one text in one message, with quotes escaped.
constexpr std::size_t spec_bytes_max = wire::text_bytes_max / 2;

// What the readers of one kind's parameters share.
struct Parameters {
  const YamlMap& map;
  const JobFileContext& context;
  StageDraft& draft;
  Json json = Json::object();

  void whole(const char* key, int fallback, std::int64_t min, std::int64_t max) {
    map.whole(key, fallback, min, max);
    json[key] = fallback;
  }
  void flag(const char* key, bool fallback) {
    map.flag(key, fallback);
    json[key] = fallback;
  }
  void word(const char* key, std::string fallback, const std::vector<std::string>& allowed) {
    map.word(key, fallback, allowed);
    json[key] = fallback;
  }
  void texts(const char* key) {
    std::vector<std::string> values;
    map.texts(key, values);
    json[key] = values;
  }
  // A data file: its content is part of the stage's key.
  void file(const char* key, bool required) {
    std::string path;
    context.path(map, key, path);
    if (required && !map.has(key)) map.problem(key, "is missing");
    json[key] = path;
    input(path);
  }
  void input(const std::string& path) {
    if (!path.empty()) draft.spec.inputs.push_back(path);
  }
  void evaluation() {
    const Evaluation& files = draft.evaluation;
    json["tasks"] = files.tasks;
    json["heldout"] = files.heldout;
    json["groups"] = files.groups;
    input(files.tasks);
    for (const auto& [name, path] : files.heldout) input(path);
  }
};

void read_calibrate(Parameters& p) {
  p.file("data", true);
  p.whole("samples", 1024, 1, count_max);
  p.whole("max_tokens", 2048, 1, tokens_max);
  p.whole("batch", 8, 1, 65'536);
  p.whole("steps", 128, 1, count_max);
  double percentile = 99.9;
  p.map.number("percentile", percentile, 50, 100);
  p.json["percentile"] = percentile;
}

void read_quantize(Parameters& p) {
  p.word("scheme", "auto", {"auto", "int8"});
  p.word("prefer", "int8", {"int8"});
  p.texts("keep");
  p.word("activations", "dynamic", {"static", "dynamic"});
  double limit = 0.05;
  p.map.fraction("deviation_limit", limit);
  p.json["deviation_limit"] = limit;
  std::map<std::string, std::string> formats;
  read_text_map(p.map, "override", formats, p.context.problems);
  for (const auto& [pattern, format] : formats) {
    if (format == "bf16" || format == "int8") continue;
    p.context.problems.add(p.map.node("override")->find(pattern)->value->place,
                           fmt::format("{}: `{}` is not known", p.map.path("override"),
                                       clip_utf8(format, 60)),
                           suggestion(format, {"bf16", "int8"}));
  }
  p.json["override"] = formats;
  p.evaluation();
}

void read_fuse(Parameters& p) {
  p.texts("ignore");
  p.flag("same_precision_only", true);
  p.texts("rules");
  p.file("prompts", false);
  p.whole("token_match_prompts", 32, 1, 4096);
  p.whole("token_match_tokens", 64, 1, 65'536);
  p.evaluation();
}

void read_evaluate(Parameters& p) {
  p.evaluation();
  const YamlNode* node = p.map.node("repair");
  if (!node) return;
  const YamlMap repair(*node, p.map.path("repair"), job_file_keys("repair"), p.context.problems);
  int rounds = 0;
  std::string from;
  repair.whole("rounds", rounds, 0, 1000);
  repair.text("from", from);
  p.context.problems.warn(node->place,
                          p.map.path("repair") + " is not built yet: a breach ends the night");
}

// [least, greatest]; one number alone is both.
void read_range(Parameters& p, const char* key, int least, int greatest) {
  std::vector<std::string> texts;
  const YamlNode* node = p.map.node(key);
  if (node) {
    const bool pair = node->kind == YamlNode::Kind::list && node->items.size() == 2;
    if (!pair) {
      p.map.problem(key, "expected [least, greatest], found " + kind_text(*node), "like [64, 512]");
    } else {
      YamlNode both;
      both.kind = YamlNode::Kind::map;
      both.place = node->place;
      both.entries = {{"least", node->items[0]->place, node->items[0]},
                      {"greatest", node->items[1]->place, node->items[1]}};
      const YamlMap map(both, p.map.path(key), {"least", "greatest"}, p.context.problems);
      map.whole("least", least, 1, tokens_max);
      map.whole("greatest", greatest, 1, tokens_max);
      if (greatest < least) p.map.problem(key, fmt::format("{} is more than {}", least, greatest));
    }
  }
  p.json[key] = {least, greatest};
}

void read_soak(Parameters& p, const BenchSpec& bench) {
  p.whole("requests", 2000, 1, count_max);
  p.whole("concurrency", 32, 1, 4096);
  // A real mix has short ones too; the longest are those of the bench.
  read_range(p, "input_tokens", std::max(1, bench.input_tokens / 8), bench.input_tokens);
  read_range(p, "output_tokens", std::max(1, bench.output_tokens / 8), bench.output_tokens);
  std::int64_t timeout_ms = 60'000;
  p.map.duration("timeout", timeout_ms, 1);
  p.json["timeout"] = timeout_ms;
  p.file("data", false);
}

void read_run(Parameters& p) {
  StageSpec& spec = p.draft.spec;
  const YamlNode* command = p.map.node("command");
  p.map.texts("command", spec.command);
  if (!command) {
    p.map.problem("command", "is missing", "command: [python3, my_stage.py]");
  } else if (command->kind == YamlNode::Kind::scalar) {
    spec.command = {"/bin/sh", "-c", command->text};
  }
  if (command && spec.command.empty()) p.map.problem("command", "is empty");
  read_text_map(p.map, "environment", spec.environment, p.context.problems);
  for (const auto& [name, value] : spec.environment) {
    const bool fine = name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                             "0123456789_") == std::string::npos &&
                      !(name[0] >= '0' && name[0] <= '9');
    if (fine && !name.starts_with("NIGHTSHIFT_")) continue;
    p.map.problem("environment", fmt::format("`{}` {}", name,
                                             fine ? "is set by Nightshift itself"
                                                  : "is not the name of a variable"));
  }
  p.flag("checkpoint", false);
  std::vector<std::string> inputs;
  p.map.texts("inputs", inputs);
  for (const std::string& text : inputs) p.input(p.context.resolve(p.map, "inputs", text));
}

void read_parameters(const YamlMap& map, const JobSpec& job, const JobFileContext& context,
                     StageDraft& draft) {
  Parameters p{map, context, draft};
  const std::string& kind = draft.spec.kind;
  if (kind == "baseline") p.evaluation();
  if (kind == "calibrate") read_calibrate(p);
  if (kind == "quantize") read_quantize(p);
  if (kind == "fuse") read_fuse(p);
  if (kind == "evaluate") read_evaluate(p);
  if (kind == "soak") read_soak(p, job.bench);
  if (kind == "run") read_run(p);
  std::vector<std::string>& inputs = draft.spec.inputs;
  std::sort(inputs.begin(), inputs.end());
  inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
  draft.spec.params_json = dump_json(p.json);
}

// Empty when the kind is unknown or not built; the problem is then in the list.
std::string kind_of(const YamlEntry& entry, YamlProblems& problems) {
  std::string kind = entry.key;
  YamlPlace place = entry.place;
  const YamlEntry* given = entry.value->find("kind");
  if (given) {
    if (given->value->kind != YamlNode::Kind::scalar) {
      problems.add(given->value->place, "stages." + entry.key + ".kind: expected a word");
      return "";
    }
    kind = given->value->text;
    place = given->value->place;
  }
  const std::vector<std::string>& kinds = stage_kinds();
  if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return kind;
  const std::vector<std::string>& unbuilt = unbuilt_stage_kinds();
  if (std::find(unbuilt.begin(), unbuilt.end(), kind) != unbuilt.end()) {
    problems.add(place, fmt::format("stages.{}: kind `{}` is not built yet in this version",
                                    entry.key, kind),
                 fmt::format("supported: {}", fmt::join(kinds, ", ")), ErrorCode::unsupported);
  } else if (!given && entry.value->find("command")) {
    problems.add(place, fmt::format("stages.{}: a command without `kind: run`", entry.key),
                 "add kind: run");
  } else {
    problems.add(place, fmt::format("stages.{}: `{}` is not a kind of stage", entry.key,
                                    clip_utf8(kind, 60)),
                 suggestion(kind, kinds) +
                     (given ? "" : "; for another name add kind: to the stage"));
  }
  return "";
}

void read_needs(const YamlMap& map, StageDraft& draft, YamlProblems& problems) {
  std::vector<std::string> needs;
  map.texts("needs", needs);
  const YamlNode* node = map.node("needs");
  std::set<std::string> seen;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    const bool listed = node->kind == YamlNode::Kind::list;
    const YamlPlace place = listed ? node->items[i]->place : node->place;
    if (!seen.insert(needs[i]).second) {
      problems.add(place, map.path("needs") + ": `" + clip_utf8(needs[i], 60) + "` is there twice");
    }
    draft.needs.emplace_back(needs[i], place);
  }
  const std::string usual = usual_need_of(draft.spec.kind);
  if (draft.needs.empty() && !usual.empty() && (!node || node->kind == YamlNode::Kind::list)) {
    problems.add(draft.place, fmt::format("stages.{}: says not what it needs", draft.title),
                 fmt::format("{} usually needs {}: add needs: {}", draft.spec.kind, usual, usual));
  }
}

// Tasks, held-out sets and groups for all: the section, or else what `evaluate` says, so that the
// 16-bit numbers exist to compare with.
Evaluation shared_evaluation(const YamlMap& map, const YamlNode& stages,
                             const JobFileContext& context) {
  Evaluation shared;
  if (const YamlNode* section = map.node("evaluation")) {
    const YamlMap part(*section, "evaluation", job_file_keys("evaluation"), context.problems);
    read_evaluation(part, shared, context);
    return shared;
  }
  YamlProblems reported_later;
  for (const YamlEntry& entry : stages.entries) {
    if (kind_of(entry, reported_later) != "evaluate") continue;
    const YamlMap part(*entry.value, "", stage_keys_of("evaluate"), reported_later);
    read_evaluation(part, shared, {context.folder, reported_later});
    break;
  }
  return shared;
}

struct StageReader {
  const JobSpec& job;
  const Evaluation shared;
  const JobFileContext& context;
  std::vector<StageDraft> drafts;
  std::size_t bytes = 0;

  // False when nothing more should be read.
  bool read(const YamlEntry& entry) {
    if (!is_stage_name(entry.key)) {
      context.problems.add(entry.place,
                           fmt::format("stages: `{}` is not a name", clip_utf8(entry.key, 80)),
                           "1 to 64 of a-z, 0-9, _ and -: it is also a folder");
      return true;
    }
    if (is_matrix(*entry.value)) return read_matrix_stage(entry);
    read_stage(entry, drafts.emplace_back());
    return has_room(entry);
  }

 private:
  bool read_matrix_stage(const YamlEntry& entry) {
    const std::string name = "stages." + entry.key;
    const std::optional<Matrix> matrix = read_matrix(*entry.value, name, context.problems);
    if (!matrix) {
      begin(entry, drafts.emplace_back());  // others may need it
      return true;
    }
    for (const Combination& combination : matrix->combinations) {
      StageDraft& draft = drafts.emplace_back();
      draft.axes = combination;
      const YamlRef node = substitute(entry.value, combination, name, context.problems);
      read_stage({entry.key, entry.place, node}, draft);
      draft.spec.group = entry.key;
      draft.spec.name = matrix_stage_name(entry.key, combination);
      if (!is_stage_name(draft.spec.name)) {
        context.problems.add(
            entry.place,
            fmt::format("{}: makes a stage with a name of {} bytes, the most is "
                        "{}: {}",
                        name, draft.spec.name.size(), stage_name_bytes_max, draft.spec.name),
            "shorter values, or a shorter name");
        return true;
      }
      if (!has_room(entry)) return false;
    }
    return true;
  }

  bool has_room(const YamlEntry& entry) {
    const StageSpec& spec = drafts.back().spec;
    bytes += spec.params_json.size() + spec.model_path.size();
    for (const std::string& path : spec.inputs) bytes += 2 * path.size();
    for (const std::string& word : spec.command) bytes += word.size();
    for (const auto& [variable, value] : spec.environment) bytes += variable.size() + value.size();
    if (bytes <= spec_bytes_max) return true;
    context.problems.add(entry.place,
                         fmt::format("stages.{}: the stages so far have more than {} MiB of "
                                     "parameters and paths",
                                     entry.key, spec_bytes_max >> 20),
                         "a job is submitted in one message; make several of it");
    return false;
  }

  void begin(const YamlEntry& entry, StageDraft& draft) const {
    draft.spec.name = entry.key;
    draft.title = entry.key;
    draft.place = entry.place;
    draft.spec.retry = job.retry;
    draft.spec.resources = job.resources;
  }

  void read_stage(const YamlEntry& entry, StageDraft& draft) const {
    begin(entry, draft);
    draft.spec.kind = kind_of(entry, context.problems);
    if (draft.spec.kind.empty()) {
      // Its own keys cannot be judged, but what it needs belongs to the graph.
      YamlProblems ignored;
      read_needs(YamlMap(*entry.value, "", {}, ignored), draft, ignored);
      return;
    }
    const YamlMap map(*entry.value, "stages." + entry.key, stage_keys_of(draft.spec.kind),
                      context.problems);
    read_needs(map, draft, context.problems);
    if (map.has("model")) read_model(map, draft.spec.model_path, context);
    if (draft.spec.model_path == job.model_path) draft.spec.model_path.clear();
    map.duration("wall_limit", draft.spec.wall_limit_ms);
    map.duration("expected", draft.spec.expected_ms);
    read_retry(map, draft.spec.retry, context.problems);
    read_resources(map, draft.spec.resources, context);
    if (is_measuring_kind(draft.spec.kind)) draft.evaluation = shared;
    if (draft.spec.kind == "baseline" || draft.spec.kind == "evaluate") {
      read_evaluation(map, draft.evaluation, context);
    }
    read_parameters(map, job, context, draft);
  }
};

// Before any is made: what a matrix stands for is a product, and one digit too many is soon there.
bool are_too_many(const YamlMap& map, const YamlNode& stages) {
  double all = 0;
  const YamlEntry* largest = nullptr;
  double most = 0;
  for (const YamlEntry& entry : stages.entries) {
    const double count = count_combinations(*entry.value);
    all += count;
    if (count <= most) continue;
    most = count;
    largest = &entry;
  }
  if (all <= static_cast<double>(job_stages_max)) return false;
  const std::string which =
      most > 1 ? fmt::format(", {:.0f} of them of `{}`", most, clip_utf8(largest->key, 60)) : "";
  map.problem("stages", fmt::format("{:.0f} stages{}, the most is {}", all, which, job_stages_max),
              most > 1 ? "a shorter range, or several jobs" : "make several jobs of it");
  return true;
}

// Also as variables (NIGHTSHIFT_INPUT_QUANTIZE_INT8_1), where - and _ are the same.
void check_distinct(const std::vector<StageDraft>& drafts, YamlProblems& problems) {
  std::unordered_map<std::string, const StageDraft*> seen;
  for (const StageDraft& draft : drafts) {
    std::string variable = draft.spec.name;
    std::replace(variable.begin(), variable.end(), '-', '_');
    const auto [at, fresh] = seen.emplace(std::move(variable), &draft);
    if (fresh || (draft.axes.empty() && at->second->axes.empty())) continue;
    problems.add(draft.place,
                 fmt::format("stages.{}: two stages would be named `{}` and `{}`", draft.title,
                             at->second->spec.name, draft.spec.name),
                 "as folders and variables they would be the same");
    return;
  }
}

}  // namespace

std::vector<StageDraft> read_stages(const YamlMap& map, const JobSpec& job,
                                    const JobFileContext& context) {
  const YamlNode* stages = map.node("stages");
  if (!stages || stages->entries.empty()) {
    map.problem("stages", stages && stages->kind != YamlNode::Kind::map &&
                                  stages->kind != YamlNode::Kind::null
                              ? "expected a map, found " + kind_text(*stages)
                              : "there is none",
                "stages: {baseline: {}, ...}");
    return {};
  }
  if (are_too_many(map, *stages)) return {};
  StageReader reader{job, shared_evaluation(map, *stages, context), context, {}};
  for (const YamlEntry& entry : stages->entries) {
    if (!reader.read(entry)) return {};
  }
  check_distinct(reader.drafts, context.problems);
  return std::move(reader.drafts);
}

}  // namespace nightshift
