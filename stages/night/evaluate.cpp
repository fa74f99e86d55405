#include <algorithm>

#include "schema/json.h"
#include "stages/engine/checkpoint.h"
#include "stages/night/measure.h"
#include "stages/night/stages.h"

namespace nightshift {

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
  const Measurement baseline = meta.measured(found->model);

  NS_TRY(carry_files(input, context.out, Carry::link));
  NS_TRY(write_checkpoint_meta(context.out, meta));
  NS_TRY_ASSIGN(MeasurementRecord * record,
                measure_checkpoint(context, text, spec, {.speed = false, .quality = true}, meta));
  const std::string digest = record->model;
  NS_TRY(write_checkpoint_meta(context.out, meta));

  const auto lines =
      check_red_lines(context.order.red_lines, baseline, meta.measured(digest), spec.groups);
  for (const RedLineResult& line : lines) context.report.red_line(line);
  const bool held =
      std::all_of(lines.begin(), lines.end(), [](const RedLineResult& l) { return l.pass; });
  return held ? StageEnd::ok : StageEnd::red_line;
}

}  // namespace nightshift
