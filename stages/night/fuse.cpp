#include "schema/json.h"
#include "stages/engine/checkpoint.h"
#include "stages/night/measure.h"
#include "stages/night/stages.h"

namespace nightshift {

namespace {

struct FuseParams {
  FusionPlan plan;
  MatchSize match;
  std::string prompts;  // JSONL of chats; empty: the held-out sets
};

Result<FuseParams> params_from(const Json& json) {
  const std::string where = "params of fuse";
  const JsonReader reader(json, where);
  FuseParams params;
  params.plan.rules = fusion_rules();
  if (reader.has("rules")) {
    NS_TRY_ASSIGN(const Json* rules, reader.array("rules"));
    params.plan.rules.clear();
    for (const Json& rule : *rules) {
      if (rule.is_string()) params.plan.rules.push_back(rule.get<std::string>());
    }
    if (params.plan.rules.empty()) params.plan.rules = fusion_rules();
  }
  if (reader.has("ignore")) {
    NS_TRY_ASSIGN(const Json* ignore, reader.array("ignore"));
    for (const Json& pattern : *ignore) {
      if (pattern.is_string()) params.plan.ignore.push_back(pattern.get<std::string>());
    }
  }
  NS_TRY_ASSIGN(const auto prompts, reader.integer_or("token_match_prompts", 32, 1, 4096));
  NS_TRY_ASSIGN(const auto tokens, reader.integer_or("token_match_tokens", 64, 1, 65536));
  params.match.prompts = static_cast<int>(prompts);
  params.match.new_tokens = static_cast<int>(tokens);
  NS_TRY_ASSIGN(params.prompts, reader.string_or("prompts", ""));
  return params;
}

Status report_fusion(const StageContext& context, const std::string& digest) {
  NS_TRY_ASSIGN(auto engine, Engine::load(context.out, {}));
  const FusionReport& fusion = engine->fusion();
  context.report.metric("ops_before", fusion.ops_before + 1, "ops", digest);  // and sampling
  for (const auto& [rule, sites] : fusion.applied) {
    context.report.metric("fusion_sites", sites, "sites", digest, rule);
  }
  for (const FusionSkip& skip : fusion.skipped) {
    context.report.note("rule " + skip.rule + " not applied at " + skip.op + ": " + skip.reason);
  }
  return {};
}

}  // namespace

Result<StageEnd> run_fuse(const StageContext& context) {
  const std::string where = "params of fuse";
  NS_TRY_ASSIGN(const Json json, parse_json(context.order.params_json, where));
  NS_TRY_ASSIGN(const FuseParams params, params_from(json));
  NS_TRY_ASSIGN(const QualitySpec spec, quality_spec_from(json, where));
  NS_TRY_ASSIGN(const std::string input, context.input());
  NS_TRY_ASSIGN(const TextModel text, TextModel::open(input));
  NS_TRY_ASSIGN(CheckpointMeta meta, read_checkpoint_meta(input));

  NS_TRY(carry_files(input, context.out, Carry::link));
  meta.fusion = params.plan;
  NS_TRY(write_checkpoint_meta(context.out, meta));
  NS_TRY_ASSIGN(MeasurementRecord * record,
                measure_checkpoint(context, text, spec, {.speed = true, .quality = false}, meta));
  NS_TRY(report_fusion(context, record->model));

  context.report.phase("token match, fused against unfused");
  QualitySpec prompts = spec;
  if (!params.prompts.empty()) prompts.heldout = {{"prompts", params.prompts}};
  NS_TRY_ASSIGN(const auto stream, bench_stream(text, prompts, text.tokenizer().size()));
  NS_TRY_ASSIGN(const double match,
                token_match({context.out, false}, {context.out, true}, stream, params.match));
  record->numbers.token_match = match;
  context.report.metric("token_match", match, "fraction", record->model);
  NS_TRY(write_checkpoint_meta(context.out, meta));
  return StageEnd::ok;
}

}  // namespace nightshift
