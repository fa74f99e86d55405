#include "schema/json.h"
#include "stages/engine/checkpoint.h"
#include "stages/night/measure.h"
#include "stages/night/stages.h"

namespace nightshift {

Result<StageEnd> run_baseline(const StageContext& context) {
  const std::string where = "params of baseline";
  NS_TRY_ASSIGN(const Json params, parse_json(context.order.params_json, where));
  NS_TRY_ASSIGN(const QualitySpec spec, quality_spec_from(params, where));
  NS_TRY_ASSIGN(const TextModel text, TextModel::open(context.order.model_path));

  // The user's folder is copied: what it becomes tomorrow must not change tonight's checkpoint.
  context.report.phase("copying the model", 600);
  NS_TRY(carry_files(context.order.model_path, context.out, Carry::copy));
  CheckpointMeta meta;
  NS_TRY(write_checkpoint_meta(context.out, meta));
  NS_TRY_ASSIGN(MeasurementRecord * record,
                measure_checkpoint(context, text, spec, {.speed = true, .quality = true}, meta));
  record->numbers.token_match = 1.0;  // with itself: every later row is read against this one
  context.report.metric("token_match", 1.0, "fraction", record->model);
  NS_TRY(write_checkpoint_meta(context.out, meta));
  return StageEnd::ok;
}

}  // namespace nightshift
