#include "stages/night/unit_trial.h"

#include <cmath>
#include <span>

#include "stages/engine/step_packer.h"
#include "stages/night/quantize_rows.h"

namespace nightshift {

namespace {

using Packed = std::vector<kernels::PackedMatrix>;

// Sums of squares over all probe tokens.
struct Difference {
  double error = 0;
  double reference = 0;
  double deviation() const { return reference > 0 ? std::sqrt(error / reference) : 0; }
};

// A unit with its int8 matrices for one way to quantize activations.
struct Trial {
  const PlanUnit* unit = nullptr;
  ActivationChoice choice;
  std::map<int, Packed> matrices;  // by op
  Difference difference;
};

Result<Packed> pack_op(const Engine& engine, const Weights& weights, const Op& op,
                       const kernels::ActivationQuant& activation) {
  Packed packed;
  for (const std::string& name : op.weights) {
    NS_TRY_ASSIGN(const MatrixF32 matrix, weights.matrix(name));
    for (float value : matrix.values) {
      if (!std::isfinite(value)) {
        return Error{ErrorCode::corrupt, "weight " + name + " holds a NaN or an infinity",
                     "quantize", "the model is broken: look at where it came from"};
      }
    }
    const Int8Rows rows = quantize_rows(matrix.values.data(), matrix.n, matrix.k);
    packed.push_back(engine.backend().pack_int8(rows.values.data(), rows.scale.data(), matrix.n,
                                                matrix.k, activation));
  }
  return packed;
}

// Hangs behind every unit of the 16-bit run and reruns it with int8 weights on the same inputs.
class TrialObserver : public Observer {
 public:
  TrialObserver(Engine& engine, std::vector<Trial>& trials) : engine_(engine) {
    for (Trial& trial : trials) by_last_op_[trial.unit->last_op].push_back(&trial);
  }

  void after(const Op& op, const Executor&) override {
    const int index = static_cast<int>(&op - engine_.graph().ops.data());
    const auto found = by_last_op_.find(index);
    if (found == by_last_op_.end()) return;
    for (Trial* trial : found->second) run(*trial);
  }

 private:
  std::vector<float> outputs(const PlanUnit& unit) const {
    std::vector<float> values;
    for (int id : unit.outputs) {
      const auto width =
          static_cast<std::size_t>(engine_.graph().values[static_cast<std::size_t>(id)].width);
      const auto count = static_cast<std::size_t>(engine_.executor().rows(id)) * width;
      const float* from = engine_.executor().value(id);
      values.insert(values.end(), from, from + count);
    }
    return values;
  }

  void exchange(Trial& trial) {
    for (auto& [op, matrices] : trial.matrices) {
      matrices = engine_.executor().exchange_matrices(op, std::move(matrices));
    }
  }

  void run(Trial& trial) {
    const PlanUnit& unit = *trial.unit;
    const std::vector<float> reference = outputs(unit);
    exchange(trial);
    engine_.executor().rerun(unit.ops.front(), unit.last_op);
    const std::vector<float> changed = outputs(unit);
    exchange(trial);
    engine_.executor().rerun(unit.ops.front(), unit.last_op);  // the step goes on at 16 bits
    for (std::size_t n = 0; n < reference.size(); ++n) {
      const double error = static_cast<double>(changed[n]) - static_cast<double>(reference[n]);
      trial.difference.error += error * error;
      trial.difference.reference +=
          static_cast<double>(reference[n]) * static_cast<double>(reference[n]);
    }
  }

  Engine& engine_;
  std::map<int, std::vector<Trial*>> by_last_op_;
};

Status run_probe(Engine& engine, const std::vector<std::vector<std::int32_t>>& probe,
                 const std::function<void(std::int64_t, std::int64_t)>& progress) {
  for (std::size_t n = 0; n < probe.size(); ++n) {
    NS_TRY_ASSIGN(const SequenceId sequence,
                  engine.cache().open(static_cast<int>(probe[n].size())));
    StepPacker packer(engine);
    packer.add(sequence, probe[n], probe[n].size() - 1, 0);
    packer.flush();
    engine.cache().close(sequence);
    progress(static_cast<std::int64_t>(n) + 1, static_cast<std::int64_t>(probe.size()));
  }
  return {};
}

Result<std::vector<Trial>> make_trials(Engine& engine, const Weights& weights,
                                       const std::vector<PlanUnit>& units,
                                       const Calibration& calibration, const std::string& mode) {
  std::vector<Trial> trials;
  for (const PlanUnit& unit : units) {
    if (unit.format != "int8") continue;
    for (ActivationChoice& choice : activation_choices(engine.graph(), unit, calibration, mode)) {
      Trial trial{&unit, std::move(choice), {}, {}};
      for (int op : unit.ops) {
        NS_TRY_ASSIGN(trial.matrices[op],
                      pack_op(engine, weights, engine.graph().ops[static_cast<std::size_t>(op)],
                              trial.choice.by_op.at(op)));
      }
      trials.push_back(std::move(trial));
    }
  }
  return trials;
}

}  // namespace

std::vector<ActivationChoice> activation_choices(const Graph& graph, const PlanUnit& unit,
                                                 const Calibration& calibration,
                                                 const std::string& mode) {
  ActivationChoice fixed{"static clip", {}}, clipped{"per token, clipped", {}},
      plain{"per token", {}};
  bool calibrated = true;
  for (int op : unit.ops) {
    const InputStatistics* input =
        calibration.input_of(graph.ops[static_cast<std::size_t>(op)].name);
    const float clip = input == nullptr ? 0.0f : input->clip;
    calibrated = calibrated && clip > 0;
    fixed.by_op[op] = {clip, false};
    clipped.by_op[op] = {clip, true};
    plain.by_op[op] = {0.0f, true};
  }
  std::vector<ActivationChoice> choices;
  if (calibrated && mode == "static") choices.push_back(fixed);
  if (calibrated) choices.push_back(clipped);
  choices.push_back(plain);
  return choices;
}

Result<std::map<std::string, UnitVerdict>> try_units(
    Engine& engine, const Weights& weights, const std::vector<PlanUnit>& units,
    const Calibration& calibration, const std::string& mode, double limit,
    const std::vector<std::vector<std::int32_t>>& probe,
    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  NS_TRY_ASSIGN(std::vector<Trial> trials, make_trials(engine, weights, units, calibration, mode));
  TrialObserver observer(engine, trials);
  engine.executor().set_observer(&observer);
  const Status ran = run_probe(engine, probe, progress);
  engine.executor().set_observer(nullptr);
  NS_TRY(ran);

  std::map<std::string, UnitVerdict> verdicts;
  for (const Trial& trial : trials) {
    UnitVerdict& verdict = verdicts[trial.unit->name];
    const double deviation = trial.difference.deviation();
    verdict.tried.emplace_back(trial.choice.name, deviation);
    if (verdict.format == "int8") continue;  // a bolder choice was good enough
    verdict.deviation = deviation;
    verdict.format = deviation <= limit ? "int8" : "bf16";
    if (verdict.format == "int8") verdict.activation = trial.choice;
  }
  return verdicts;
}

}  // namespace nightshift
