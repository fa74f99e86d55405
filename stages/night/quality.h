// Accuracy and perplexity of a checkpoint on the job's own data. Knows tasks and groups; must not
// know clocks or red lines.
//
//   accuracy    multiple choice: the choice with the largest log-likelihood per token wins; a tie
//               gives its share (1/n when n choices are equal and the right one is among them).
//   perplexity  exp of the mean negative log-likelihood of the answers' tokens (the last assistant
//               message of each held-out chat, and what ends it).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "schema/json_fwd.h"
#include "schema/result.h"
#include "stages/engine/engine.h"
#include "stages/night/stage_context.h"
#include "stages/night/text_model.h"

namespace nightshift {

// What the job file's `evaluation` section gives to every stage that measures.
struct QualitySpec {
  std::string tasks;                                       // JSONL of items; empty: none
  std::map<std::string, std::string> heldout;              // set -> JSONL of chats
  std::map<std::string, std::vector<std::string>> groups;  // class ("target") -> task groups
};
Result<QualitySpec> quality_spec_from(const Json& params, const std::string& where);

struct GroupScore {
  double accuracy = 0;
  double standard_error = 0;  // sqrt(p (1 - p) / items)
  int items = 0;
  int ties = 0;
};

struct QualityResult {
  std::map<std::string, GroupScore> accuracy;  // by task group, and "all"
  std::map<std::string, double> perplexity;    // by held-out set, and "all"
  std::map<std::string, double> item_scores;   // item id -> 0, 1 or the share of a tie
};

// The tie rule above. `scores`: log-likelihood per token of each choice.
struct ItemScore {
  double share = 0;
  bool is_tie = false;
};
ItemScore score_item(const std::vector<double>& scores, std::size_t answer);

// An engine with room for scoring. `precision` as in EngineOptions.
Result<std::unique_ptr<Engine>> load_for_scoring(const std::string& checkpoint);

Result<QualityResult> measure_quality(Engine& engine, const TextModel& text,
                                      const QualitySpec& spec, StageReporter& report);

void report_quality(const QualityResult& quality, const std::string& digest, StageReporter& report,
                    Measurement& numbers);

}  // namespace nightshift
