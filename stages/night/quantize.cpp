#include <algorithm>
#include <cstdio>

#include "schema/json.h"
#include "stages/engine/checkpoint.h"
#include "stages/model_io/files.h"
#include "stages/night/measure.h"
#include "stages/night/quantize_rows.h"
#include "stages/night/stages.h"
#include "stages/night/unit_trial.h"

namespace nightshift {

namespace {

constexpr std::size_t probe_samples = 32;
constexpr std::size_t probe_tokens_max = 512;

struct QuantizeParams {
  PlanRules rules;
  std::string activations;
  double deviation_limit = 0;
};

Result<QuantizeParams> params_from(const Json& json) {
  const std::string where = "params of quantize";
  const JsonReader reader(json, where);
  QuantizeParams params;
  NS_TRY_ASSIGN(params.activations, reader.string_or("activations", "dynamic"));
  NS_TRY_ASSIGN(params.deviation_limit, reader.number_or("deviation_limit", 0.05));
  if (reader.has("keep")) {
    NS_TRY_ASSIGN(const Json* keep, reader.array("keep"));
    for (const Json& pattern : *keep) {
      if (pattern.is_string()) params.rules.keep.push_back(pattern.get<std::string>());
    }
  }
  if (reader.has("override")) {
    NS_TRY_ASSIGN(const Json* overrides, reader.object("override"));
    for (const auto& [pattern, format] : overrides->items()) {
      params.rules.overrides[pattern] = format.is_string() ? format.get<std::string>() : "";
    }
  }
  return params;
}

// Samples that calibration has not seen where there are held-out sets, spread over them.
Result<std::vector<std::vector<TokenId>>> probe_samples_of(const TextModel& text,
                                                           const QualitySpec& spec,
                                                           std::int64_t vocab_size) {
  std::vector<std::vector<TokenId>> probe;
  for (const auto& [set, path] : spec.heldout) {
    NS_TRY_ASSIGN(const auto chats, read_chats(path));
    const std::size_t wanted =
        std::min(chats.size(), std::max<std::size_t>(1, probe_samples / spec.heldout.size()));
    for (std::size_t n = 0; n < wanted; ++n) {
      NS_TRY_ASSIGN(EncodedChat chat, text.encode(chats[n * chats.size() / wanted]));
      chat.ids.resize(std::min(chat.ids.size(), probe_tokens_max));
      probe.push_back(std::move(chat.ids));
    }
  }
  if (probe.empty()) {
    NS_TRY_ASSIGN(const auto stream, bench_stream(text, spec, vocab_size));
    probe = cut_prompts(stream, 8, 256);
  }
  return probe;
}

// Which linears are int8, with how their inputs are quantized; the report of it.
void settle_plan(const Graph& graph, std::vector<PlanUnit>& units,
                 const std::map<std::string, UnitVerdict>& verdicts, double limit,
                 CheckpointMeta& meta, StageReporter& report, const std::string& digest) {
  for (PlanUnit& unit : units) {
    const auto found = verdicts.find(unit.name);
    if (found == verdicts.end()) continue;
    const UnitVerdict& verdict = found->second;
    report.metric("deviation", verdict.deviation, "fraction", digest, unit.name);
    unit.format = verdict.format;
    std::string tried;
    for (const auto& [choice, deviation] : verdict.tried) {
      char number[32];
      std::snprintf(number, sizeof number, "%.4f", deviation);
      tried += (tried.empty() ? "" : ", ") + choice + " " + number;
    }
    if (verdict.format != "int8") {
      report.note(unit.name + " put back to 16 bits: deviation above " + std::to_string(limit) +
                  " (" + tried + ")");
      continue;
    }
    unit.reason += "; inputs " + verdict.activation.name + " (" + tried + ")";
    for (int op : unit.ops) {
      for (const std::string& weight : graph.ops[static_cast<std::size_t>(op)].weights) {
        meta.linears[weight] = {"int8", verdict.activation.by_op.at(op)};
      }
    }
  }
  for (const PlanUnit& unit : units) {
    report.note("plan: " + unit.name + " " + unit.format + ": " + unit.reason);
  }
}

// Streams the weights out: what the plan makes int8 with its scales, the rest as it is.
Status write_weights(const WeightFiles& files, const Weights& weights, const CheckpointMeta& meta,
                     const std::string& folder, StageReporter& report) {
  std::vector<TensorDecl> tensors;
  const auto linear_of = [&](const std::string& tensor) -> std::string {
    if (!tensor.ends_with(".weight")) return {};
    const std::string name = tensor.substr(0, tensor.size() - 7);
    return meta.linears.count(name) != 0 ? name : std::string();
  };
  for (const TensorView* tensor : files.tensors()) {
    if (linear_of(tensor->name).empty()) {
      tensors.push_back({tensor->name, tensor->dtype, tensor->shape});
    } else {
      tensors.push_back({tensor->name, DType::i8, tensor->shape});
      tensors.push_back({tensor->name + "_scale", DType::bf16, {tensor->shape[0], 1}});
    }
  }
  NS_TRY_ASSIGN(auto writer,
                SafetensorsWriter::create(join_path(folder, "model.safetensors"), tensors));
  const std::vector<TensorDecl> order = writer.order();
  for (std::size_t n = 0; n < order.size(); ++n) {
    const std::string& name = order[n].name;
    const bool is_scale = order[n].dtype == DType::bf16 && name.ends_with(".weight_scale");
    const std::string linear = linear_of(is_scale ? name.substr(0, name.size() - 6) : name);
    if (linear.empty()) {
      NS_TRY(writer.append(name, files.find(name)->span()));
    } else {
      // A scale and its values are rounded twice, far apart in the file, to the same numbers.
      NS_TRY_ASSIGN(const MatrixF32 matrix, weights.matrix(linear));
      const Int8Rows rows = quantize_rows(matrix.values.data(), matrix.n, matrix.k);
      NS_TRY(writer.append(name, is_scale ? std::as_bytes(std::span(rows.scale_bits))
                                          : std::as_bytes(std::span(rows.values))));
    }
    report.progress(static_cast<std::int64_t>(n) + 1, static_cast<std::int64_t>(order.size()),
                    "tensors");
  }
  return writer.finish();
}

Result<Calibration> read_calibration(const std::string& folder) {
  const std::string path = join_path(folder, "calibration.json");
  if (!file_exists(path)) {
    return Error{ErrorCode::not_found, "no calibration.json in the checkpoint before it", folder,
                 "quantize needs a calibrate stage before it"};
  }
  NS_TRY_ASSIGN(const std::string text, read_file(path, 1u << 30));
  return calibration_from_json(text, path);
}

// Decides the plan by trial and writes the quantized weights; the meta of the new checkpoint.
Result<CheckpointMeta> quantize_weights(const StageContext& context, const std::string& input,
                                        const QuantizeParams& params, const QualitySpec& spec,
                                        const TextModel& text) {
  EngineOptions options;
  options.apply_fusion = false;
  options.keep_values = true;
  options.step_rows_max = static_cast<int>(probe_tokens_max);
  NS_TRY_ASSIGN(auto engine, Engine::load(input, options));
  CheckpointMeta meta = engine->meta();
  if (!meta.linears.empty()) {
    return Error{ErrorCode::unsupported, "the checkpoint before it is quantized already", input,
                 "quantize a 16-bit model"};
  }
  NS_TRY_ASSIGN(const Calibration calibration, read_calibration(input));
  NS_TRY_ASSIGN(std::vector<PlanUnit> units, plan_units(engine->graph(), params.rules));
  NS_TRY_ASSIGN(const WeightFiles files, WeightFiles::open(input));
  const Weights weights(files, engine->meta());
  NS_TRY_ASSIGN(const auto probe, probe_samples_of(text, spec, engine->config().vocab_size));
  context.report.phase("deviation of each unit");
  NS_TRY_ASSIGN(const auto verdicts,
                try_units(*engine, weights, units, calibration, params.activations,
                          params.deviation_limit, probe, [&](std::int64_t done, std::int64_t of) {
                            context.report.progress(done, of, "samples");
                          }));
  NS_TRY_ASSIGN(const std::string digest, model_digest(input, engine->meta()));
  settle_plan(engine->graph(), units, verdicts, params.deviation_limit, meta, context.report,
              digest);
  context.report.phase("writing weights", 120);
  NS_TRY(write_weights(files, weights, meta, context.out, context.report));
  return meta;
}

}  // namespace

Result<StageEnd> run_quantize(const StageContext& context) {
  const std::string where = "params of quantize";
  NS_TRY_ASSIGN(const Json json, parse_json(context.order.params_json, where));
  NS_TRY_ASSIGN(const QuantizeParams params, params_from(json));
  NS_TRY_ASSIGN(const QualitySpec spec, quality_spec_from(json, where));
  NS_TRY_ASSIGN(const std::string input, context.input());
  NS_TRY_ASSIGN(const TextModel text, TextModel::open(input));

  NS_TRY(carry_files(input, context.out, Carry::link, false));
  NS_TRY_ASSIGN(CheckpointMeta meta, quantize_weights(context, input, params, spec, text));
  NS_TRY(write_checkpoint_meta(context.out, meta));

  NS_TRY_ASSIGN(MeasurementRecord * record,
                measure_checkpoint(context, text, spec, {.speed = true, .quality = true}, meta));
  context.report.phase("token match with the 16-bit model");
  NS_TRY_ASSIGN(const auto stream, bench_stream(text, spec, text.tokenizer().size()));
  NS_TRY_ASSIGN(const double match, token_match({input}, {context.out}, stream, {}));
  record->numbers.token_match = match;
  context.report.metric("token_match", match, "fraction", record->model);
  NS_TRY(write_checkpoint_meta(context.out, meta));
  return StageEnd::ok;
}

}  // namespace nightshift
