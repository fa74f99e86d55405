#include "stages/night/calibration.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "schema/json.h"

namespace nightshift {

void AbsHistogram::make_room(float abs_max) {
  if (abs_max <= 0) return;
  if (width_ == 0) {
    width_ = abs_max / bins_first;
    // The largest value itself must not fall on the far edge.
    if (width_ <= 0) width_ = 1e-38f;
    counts_.assign(bins_first, 0);
  }
  const auto needed = [&] {
    return static_cast<double>(abs_max) / static_cast<double>(width_) + 1;
  };
  while (needed() > bins_max) {
    for (std::size_t b = 0; b < counts_.size(); b += 2) {
      counts_[b / 2] = counts_[b] + (b + 1 < counts_.size() ? counts_[b + 1] : 0);
    }
    counts_.resize((counts_.size() + 1) / 2);
    width_ *= 2;
  }
  counts_.resize(std::max(counts_.size(), static_cast<std::size_t>(needed())), 0);
}

std::uint64_t AbsHistogram::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
}

float AbsHistogram::percentile(double percent) const {
  const double wanted = static_cast<double>(total()) * percent / 100.0;
  double below = 0;
  for (std::size_t b = 0; b < counts_.size(); ++b) {
    below += static_cast<double>(counts_[b]);
    if (below >= wanted && below > 0) return width_ * static_cast<float>(b + 1);
  }
  return 0;
}

const InputStatistics* Calibration::input_of(const std::string& op) const {
  for (const auto& [value, statistics] : inputs) {
    const auto& ops = statistics.ops;
    if (std::find(ops.begin(), ops.end(), op) != ops.end()) return &statistics;
  }
  return nullptr;
}

std::string to_json_text(const Calibration& calibration) {
  Json inputs = Json::object();
  for (const auto& [value, s] : calibration.inputs) {
    inputs[value] = {{"ops", s.ops},
                     {"rows", s.rows},
                     {"abs_max", s.abs_max},
                     {"clip", s.clip},
                     {"channel_abs_max", s.channel_abs_max}};
  }
  return dump_json({{"version", 1},
                    {"percentile", calibration.percentile},
                    {"samples", calibration.samples},
                    {"tokens", calibration.tokens},
                    {"samples_by_group", calibration.samples_by_group},
                    {"inputs", inputs},
                    {"expert_tokens", calibration.expert_tokens}}) +
         "\n";
}

namespace {

Result<InputStatistics> input_from(const Json& json, const std::string& where) {
  const JsonReader reader(json, where);
  InputStatistics input;
  NS_TRY_ASSIGN(const Json* ops, reader.array("ops"));
  for (const Json& op : *ops) input.ops.push_back(op.is_string() ? op.get<std::string>() : "");
  NS_TRY_ASSIGN(input.rows, reader.integer("rows", 0));
  NS_TRY_ASSIGN(const double abs_max, reader.number("abs_max"));
  NS_TRY_ASSIGN(const double clip, reader.number("clip"));
  input.abs_max = static_cast<float>(abs_max);
  input.clip = static_cast<float>(clip);
  NS_TRY_ASSIGN(const Json* channels, reader.array("channel_abs_max"));
  for (const Json& channel : *channels) {
    input.channel_abs_max.push_back(channel.is_number() ? channel.get<float>() : 0.0f);
  }
  return input;
}

}  // namespace

Result<Calibration> calibration_from_json(std::string_view text, const std::string& where) {
  NS_TRY_ASSIGN(const Json json, parse_json(text, where));
  const JsonReader reader(json, where);
  Calibration calibration;
  NS_TRY_ASSIGN(calibration.percentile, reader.number("percentile"));
  NS_TRY_ASSIGN(calibration.samples, reader.integer("samples", 0));
  NS_TRY_ASSIGN(calibration.tokens, reader.integer("tokens", 0));
  NS_TRY_ASSIGN(const Json* inputs, reader.object("inputs"));
  for (const auto& [value, input] : inputs->items()) {
    NS_TRY_ASSIGN(calibration.inputs[value], input_from(input, where + " " + value));
  }
  NS_TRY_ASSIGN(const Json* experts, reader.object("expert_tokens"));
  for (const auto& [layer, counts] : experts->items()) {
    for (const Json& count : counts) {
      calibration.expert_tokens[layer].push_back(
          count.is_number_integer() ? count.get<std::int64_t>() : 0);
    }
  }
  return calibration;
}

}  // namespace nightshift
