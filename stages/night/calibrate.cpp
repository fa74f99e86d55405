#include <algorithm>

#include "schema/content_hash.h"
#include "schema/json.h"
#include "stages/engine/checkpoint.h"
#include "stages/engine/step_packer.h"
#include "stages/model_io/files.h"
#include "stages/night/calibration.h"
#include "stages/night/stages.h"
#include "stages/night/text_model.h"

namespace nightshift {

namespace {

struct CalibrateParams {
  std::string data;
  std::int64_t samples = 0;
  std::int64_t max_tokens = 0;
  std::int64_t batch = 0;
  std::int64_t steps = 0;
  double percentile = 0;
};

Result<CalibrateParams> params_from(const std::string& text) {
  const std::string where = "params of calibrate";
  NS_TRY_ASSIGN(const Json json, parse_json(text, where));
  const JsonReader reader(json, where);
  CalibrateParams params;
  NS_TRY_ASSIGN(params.data, reader.string("data"));
  NS_TRY_ASSIGN(params.samples, reader.integer("samples", 1));
  NS_TRY_ASSIGN(params.max_tokens, reader.integer("max_tokens", 1));
  NS_TRY_ASSIGN(params.batch, reader.integer("batch", 1));
  NS_TRY_ASSIGN(params.steps, reader.integer("steps", 1));
  NS_TRY_ASSIGN(params.percentile, reader.number("percentile"));
  return params;
}

// Collects statistics of what every linear reads, while steps run.
class InputObserver : public Observer {
 public:
  InputObserver(Engine& engine, double percentile) : engine_(engine), percentile_(percentile) {
    for (const Op& op : engine.graph().ops) {
      if (op.kind != OpKind::linear && op.kind != OpKind::grouped_linear) continue;
      inputs_[op.in[0]].statistics.ops.push_back(op.name);
    }
  }

  void before(const Op& op, const Executor& executor) override {
    if (op.kind != OpKind::linear && op.kind != OpKind::grouped_linear) return;
    Input& input = inputs_[op.in[0]];
    if (op.name != input.statistics.ops.front()) return;  // another reader of the same value
    const int rows = executor.rows(op.in[0]);
    if (rows == 0) return;
    const int width = engine_.graph().values[static_cast<std::size_t>(op.in[0])].width;
    const float* x = executor.value(op.in[0]);
    input.statistics.channel_abs_max.resize(static_cast<std::size_t>(width), 0.0f);
    float* channels = input.statistics.channel_abs_max.data();
    if (!engine_.backend().channel_abs_max(engine_.context(), x, rows, width, channels)) {
      if (broken_op_.empty()) broken_op_ = op.name;
      return;
    }
    input.statistics.rows += rows;
    input.statistics.abs_max = *std::max_element(channels, channels + width);
    input.histogram.make_room(input.statistics.abs_max);
    auto& counts = input.histogram.counts();
    if (counts.empty()) return;  // only zeros so far
    engine_.backend().abs_histogram(
        engine_.context(), x, static_cast<std::size_t>(rows) * static_cast<std::size_t>(width),
        input.histogram.width(), static_cast<int>(counts.size()), counts.data());
  }

  void after(const Op& op, const Executor& executor) override {
    if (op.kind != OpKind::expert_sort) return;
    const std::int32_t* offsets = executor.int_value(op.out[0]);
    auto& tokens = expert_tokens_["layers." + std::to_string(op.layer)];
    tokens.resize(static_cast<std::size_t>(engine_.config().experts), 0);
    for (std::size_t e = 0; e < tokens.size(); ++e) tokens[e] += offsets[e + 1] - offsets[e];
  }

  // The op whose input held a NaN or an infinity; empty when none did.
  const std::string& broken_op() const { return broken_op_; }

  void finish(Calibration& calibration) {
    for (auto& [value, input] : inputs_) {
      input.statistics.clip = input.histogram.percentile(percentile_);
      const auto& name = engine_.graph().values[static_cast<std::size_t>(value)].name;
      calibration.inputs[name] = std::move(input.statistics);
    }
    calibration.expert_tokens = std::move(expert_tokens_);
  }

 private:
  struct Input {
    InputStatistics statistics;
    AbsHistogram histogram;
  };
  Engine& engine_;
  double percentile_;
  std::map<int, Input> inputs_;  // by value id
  std::map<std::string, std::vector<std::int64_t>> expert_tokens_;
  std::string broken_op_;
};

Result<std::vector<EncodedChat>> read_samples(const TextModel& text,
                                              const CalibrateParams& params) {
  NS_TRY_ASSIGN(const auto chats, read_chats(params.data));
  const std::int64_t wanted = std::min(params.samples, params.batch * params.steps);
  std::vector<EncodedChat> samples;
  for (const ChatSample& chat : chats) {
    if (static_cast<std::int64_t>(samples.size()) == wanted) break;
    NS_TRY_ASSIGN(EncodedChat encoded, text.encode(chat));
    if (static_cast<std::int64_t>(encoded.ids.size()) > params.max_tokens) {
      encoded.ids.resize(static_cast<std::size_t>(params.max_tokens));
    }
    if (!encoded.ids.empty()) samples.push_back(std::move(encoded));
  }
  return samples;
}

std::int64_t longest_of(std::span<const EncodedChat> samples) {
  std::size_t longest = 0;
  for (const EncodedChat& sample : samples) longest = std::max(longest, sample.ids.size());
  return static_cast<std::int64_t>(longest);
}

// One step of calibration: the samples together through the model, each from an empty cache.
Status run_step(Engine& engine, std::span<const EncodedChat> samples) {
  std::vector<SequenceId> open;
  StepPacker packer(engine);
  Status status;
  for (const EncodedChat& sample : samples) {
    auto sequence = engine.cache().open(static_cast<int>(sample.ids.size()));
    if (!sequence) {
      status = sequence.error();
      break;
    }
    open.push_back(*sequence);
    packer.add(*sequence, sample.ids, sample.ids.size() - 1, 0);
  }
  if (status) packer.flush();
  for (SequenceId sequence : open) engine.cache().close(sequence);
  return status;
}

void report_experts(const Calibration& calibration, StageReporter& report,
                    const std::string& digest) {
  for (const auto& [layer, tokens] : calibration.expert_tokens) {
    std::int64_t total = 0;
    for (std::int64_t count : tokens) total += count;
    for (std::size_t e = 0; e < tokens.size(); ++e) {
      const double share =
          total == 0 ? 0 : static_cast<double>(tokens[e]) / static_cast<double>(total);
      report.metric("expert_share", share, "fraction", digest, layer + "." + std::to_string(e));
      if (tokens[e] == 0) {
        report.note(layer + " expert " + std::to_string(e) +
                    " was reached by no calibration token: its scales come from its weights alone");
      }
    }
  }
}

}  // namespace

Result<StageEnd> run_calibrate(const StageContext& context) {
  NS_TRY_ASSIGN(const CalibrateParams params, params_from(context.order.params_json));
  NS_TRY_ASSIGN(const std::string input, context.input());
  NS_TRY_ASSIGN(const TextModel text, TextModel::open(input));
  NS_TRY_ASSIGN(const auto samples, read_samples(text, params));
  if (static_cast<std::int64_t>(samples.size()) < params.batch * params.steps) {
    context.report.note("calibration asked for " + std::to_string(params.batch) + " x " +
                        std::to_string(params.steps) + " samples, " +
                        std::to_string(samples.size()) + " are there");
  }

  EngineOptions options;
  options.kv_tokens = params.batch * (longest_of(samples) + 64);  // 64: whole blocks
  options.apply_fusion = false;
  NS_TRY_ASSIGN(auto engine, Engine::load(input, options));
  InputObserver observer(*engine, params.percentile);
  engine->executor().set_observer(&observer);

  Calibration calibration;
  calibration.percentile = params.percentile;
  context.report.phase("calibration");
  const auto batch = static_cast<std::size_t>(params.batch);
  const std::int64_t steps = static_cast<std::int64_t>((samples.size() + batch - 1) / batch);
  for (std::size_t at = 0; at < samples.size(); at += batch) {
    const auto step = std::span(samples).subspan(at, std::min(batch, samples.size() - at));
    NS_TRY(run_step(*engine, step));
    if (!observer.broken_op().empty()) {
      return Error{ErrorCode::invalid_argument,
                   "NaN or infinity in the input of " + observer.broken_op() + " at samples " +
                       std::to_string(at + 1) + " to " + std::to_string(at + step.size()),
                   params.data, "look at these samples, or at the weights before that op"};
    }
    for (const EncodedChat& sample : step) {
      calibration.samples += 1;
      calibration.tokens += static_cast<std::int64_t>(sample.ids.size());
      calibration.samples_by_group[sample.group] += 1;
    }
    context.report.progress(static_cast<std::int64_t>(at / batch) + 1, steps, "steps");
  }
  observer.finish(calibration);

  NS_TRY(carry_files(input, context.out, Carry::link));
  const std::string json = to_json_text(calibration);
  NS_TRY(write_file(join_path(context.out, "calibration.json"), json));
  CheckpointMeta meta = engine->meta();
  meta.calibration_digest = hash_bytes(json);
  meta.stage = context.order.stage;
  NS_TRY_ASSIGN(const std::string digest, model_digest(context.out, meta));
  context.report.metric("model", 1, "", digest);
  context.report.metric("calibration_samples", static_cast<double>(calibration.samples), "samples",
                        digest);
  context.report.metric("calibration_tokens", static_cast<double>(calibration.tokens), "tokens",
                        digest);
  for (const auto& [group, count] : calibration.samples_by_group) {
    context.report.metric("calibration_samples_of", static_cast<double>(count), "samples",
                          digest, group);
  }
  report_experts(calibration, context.report, digest);
  NS_TRY(write_checkpoint_meta(context.out, meta));
  return StageEnd::ok;
}

}  // namespace nightshift
