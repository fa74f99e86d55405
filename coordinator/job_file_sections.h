// The sections of a job file beside its stages. Private to job_file*.cpp. Knows their words; must
// not know stages.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/yaml_reader.h"
#include "schema/job_spec.h"

namespace nightshift {

// What baseline, quantize, fuse and evaluate measure accuracy and perplexity on.
struct Evaluation {
  std::string tasks;                                        // path, empty: none
  std::map<std::string, std::string> heldout;               // name -> path
  std::map<std::string, std::vector<std::string>> groups;   // class -> task groups
};

// Where relative paths begin, and where problems go.
struct JobFileContext {
  std::string folder;
  YamlProblems& problems;

  // Absolute and normal; `~` is refused, because it means another home on another machine.
  std::string resolve(const YamlMap& map, const char* key, const std::string& text) const;
  // Reads the path at `key` when there is one.
  void path(const YamlMap& map, const char* key, std::string& value) const;
};

// Each reads the section at its key of `map` over the values that are there; absent changes
// nothing.
// The map {path: FOLDER} at `model`, which must be there.
void read_model(const YamlMap& map, std::string& path, const JobFileContext& context);
void read_night(const YamlMap& map, NightSpec& night, YamlProblems& problems);
void read_bench(const YamlMap& map, BenchSpec& bench, YamlProblems& problems);
void read_red_lines(const YamlMap& map, RedLines& lines, YamlProblems& problems);
void read_watchdog(const YamlMap& map, WatchdogSpec& watchdog, YamlProblems& problems);
void read_retry(const YamlMap& map, RetrySpec& retry, YamlProblems& problems);
void read_resources(const YamlMap& map, ResourceSpec& resources, const JobFileContext& context);
void read_notify(const YamlMap& map, std::vector<NotifySpec>& notify, YamlProblems& problems);
// The keys tasks, heldout and groups of `map` itself.
void read_evaluation(const YamlMap& map, Evaluation& evaluation, const JobFileContext& context);
// A map whose keys are the user's own words and whose values are texts.
void read_text_map(const YamlMap& map, const char* key, std::map<std::string, std::string>& texts,
                   YamlProblems& problems);

}  // namespace nightshift
