#include <algorithm>
#include <cstdio>

#include "schema/json.h"
#include "stages/engine/checkpoint.h"
#include "stages/night/measure.h"
#include "stages/night/speed.h"
#include "stages/night/stages.h"

namespace nightshift {

namespace {

bool is_relative(const std::optional<Limit>& limit) {
  return limit && limit->relative;
}

// A speed line relative to the baseline compares two times; those of two stages lie minutes apart.
bool asks_for_ratio(const RedLines& lines) {
  return is_relative(lines.throughput_tok_s) || is_relative(lines.ttft_ms) ||
         is_relative(lines.tpot_ms);
}

// The folder of an ancestor that holds the 16-bit model `digest`; empty when there is none any
// more.
Result<std::string> baseline_folder(const StageContext& context, const std::string& digest) {
  for (const auto& [stage, folder] : context.order.inputs) {
    NS_TRY_ASSIGN(const CheckpointMeta meta, read_checkpoint_meta(folder));
    const bool is_plain = meta.linears.empty() && meta.fusion.rules.empty();
    if (is_plain && meta.baseline() != nullptr && meta.baseline()->model == digest) return folder;
  }
  return std::string();
}

// Replaces the speeds in both by those of runs side by side, and says so.
Status measure_side_by_side(const StageContext& context, const TextModel& text,
                            const QualitySpec& spec, const std::string& baseline_digest,
                            Measurement& baseline, Measurement& measured) {
  NS_TRY_ASSIGN(const std::string folder, baseline_folder(context, baseline_digest));
  if (folder.empty()) {
    context.report.note(
        "speed lines are judged on the figures of the stages: no 16-bit checkpoint");
    return {};
  }
  context.report.phase("both models side by side");
  NS_TRY_ASSIGN(const auto stream, bench_stream(text, spec, text.tokenizer().size()));
  NS_TRY_ASSIGN(const auto figures,
                compare_speed({folder, context.out}, context.order.bench, stream, context.report));
  Measurement* const sides[] = {&baseline, &measured};
  for (std::size_t n = 0; n < 2; ++n) {
    sides[n]->throughput_tok_s = figures[n].throughput_tok_s.median;
    sides[n]->ttft_ms = figures[n].ttft_ms.median;
    sides[n]->tpot_ms = figures[n].tpot_ms.median;
  }
  char line[200];
  std::snprintf(line, sizeof line,
                "speed lines are judged on runs side by side: P %.0f against %.0f tok/s, D %.2f "
                "against %.2f ms at 16 bits",
                *measured.throughput_tok_s, *baseline.throughput_tok_s, *measured.ttft_ms,
                *baseline.ttft_ms);
  context.report.note(line);
  return {};
}

}  // namespace

Result<StageEnd> run_evaluate(const StageContext& context) {
  const std::string where = "params of evaluate";
  NS_TRY_ASSIGN(const Json json, parse_json(context.order.params_json, where));
  NS_TRY_ASSIGN(const QualitySpec spec, quality_spec_from(json, where));
  NS_TRY_ASSIGN(const std::string input, context.input());
  NS_TRY_ASSIGN(const TextModel text, TextModel::open(input));
  NS_TRY_ASSIGN(CheckpointMeta meta, read_checkpoint_meta(input));
  const MeasurementRecord* found = meta.baseline();
  if (found == nullptr) {
    return Error{ErrorCode::not_found, "no 16-bit numbers in the checkpoint before it", input,
                 "evaluate needs a baseline stage earlier in the same job"};
  }
  const std::string baseline_digest = found->model;
  Measurement baseline = meta.measured(baseline_digest);

  NS_TRY(carry_files(input, context.out, Carry::link));
  NS_TRY(write_checkpoint_meta(context.out, meta));
  NS_TRY_ASSIGN(MeasurementRecord * record,
                measure_checkpoint(context, text, spec, {.speed = false, .quality = true}, meta));
  const std::string digest = record->model;
  NS_TRY(write_checkpoint_meta(context.out, meta));

  Measurement measured = meta.measured(digest);
  if (asks_for_ratio(context.order.red_lines)) {
    NS_TRY(measure_side_by_side(context, text, spec, baseline_digest, baseline, measured));
  }
  const auto lines = check_red_lines(context.order.red_lines, baseline, measured, spec.groups);
  for (const RedLineResult& line : lines) context.report.red_line(line);
  const bool held =
      std::all_of(lines.begin(), lines.end(), [](const RedLineResult& l) { return l.pass; });
  return held ? StageEnd::ok : StageEnd::red_line;
}

}  // namespace nightshift
