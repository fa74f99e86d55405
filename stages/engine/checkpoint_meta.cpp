#include "stages/engine/checkpoint_meta.h"

#include "schema/json.h"

namespace nightshift {

namespace {

// The scalar numbers of a Measurement, by the name they have in files.
struct NumberField {
  const char* name;
  std::optional<double> Measurement::*field;
};
constexpr NumberField number_fields[] = {
    {"throughput_tok_s", &Measurement::throughput_tok_s},
    {"ttft_ms", &Measurement::ttft_ms},
    {"tpot_ms", &Measurement::tpot_ms},
    {"peak_memory_bytes", &Measurement::peak_memory_bytes},
    {"size_bytes", &Measurement::size_bytes},
    {"token_match", &Measurement::token_match},
    {"ops", &Measurement::ops},
    {"launches", &Measurement::launches},
};

Json linears_json(const CheckpointMeta& meta) {
  Json linears = Json::object();
  for (const auto& [name, linear] : meta.linears) {
    linears[name] = {{"format", linear.format},
                     {"activation", linear.activation.per_token ? "per_token" : "static"},
                     {"clip", linear.activation.clip}};
  }
  return linears;
}

Json fusion_json(const CheckpointMeta& meta) {
  return {{"rules", meta.fusion.rules}, {"ignore", meta.fusion.ignore}};
}

Json kv_json(const CheckpointMeta& meta) {
  return {{"format", meta.kv.format},
          {"block_tokens", meta.kv.block_tokens},
          {"policy", meta.kv.policy}};
}

Json record_json(const MeasurementRecord& record) {
  Json json = {{"stage", record.stage}, {"model", record.model}};
  for (const NumberField& field : number_fields) {
    if (const auto& value = record.numbers.*field.field) json[field.name] = *value;
  }
  json["accuracy"] = record.numbers.accuracy;
  json["perplexity"] = record.numbers.perplexity;
  return json;
}

Status read_groups(const JsonReader& reader, const char* key, std::map<std::string, double>& into) {
  if (!reader.has(key)) return {};
  NS_TRY_ASSIGN(const Json* groups, reader.object(key));
  for (const auto& [name, value] : groups->items()) {
    if (!value.is_number()) {
      return Error{ErrorCode::corrupt, "measurement '" + name + "' is not a number", key, ""};
    }
    into[name] = value.get<double>();
  }
  return {};
}

Result<MeasurementRecord> record_from(const Json& json, const std::string& where) {
  const JsonReader reader(json, where);
  MeasurementRecord record;
  NS_TRY_ASSIGN(record.stage, reader.string("stage"));
  NS_TRY_ASSIGN(record.model, reader.string("model"));
  for (const NumberField& field : number_fields) {
    if (!reader.has(field.name)) continue;
    NS_TRY_ASSIGN(record.numbers.*field.field, reader.number(field.name));
  }
  NS_TRY(read_groups(reader, "accuracy", record.numbers.accuracy));
  NS_TRY(read_groups(reader, "perplexity", record.numbers.perplexity));
  return record;
}

Result<LinearFormat> linear_from(const Json& json, const std::string& where) {
  const JsonReader reader(json, where);
  LinearFormat linear;
  NS_TRY_ASSIGN(linear.format, reader.string("format"));
  if (linear.format != "int8") {
    return Error{ErrorCode::unsupported, "format '" + linear.format + "' is not known", where,
                 "this version runs int8 and 16-bit linears"};
  }
  NS_TRY_ASSIGN(const std::string activation, reader.string("activation"));
  linear.activation.per_token = activation != "static";
  NS_TRY_ASSIGN(const double clip, reader.number("clip"));
  linear.activation.clip = static_cast<float>(clip);
  if (clip < 0 || (!linear.activation.per_token && clip == 0)) {
    return Error{ErrorCode::corrupt, "clip " + std::to_string(clip) + " cannot be used", where,
                 "a static activation scale needs a clip above 0"};
  }
  return linear;
}

Result<std::vector<std::string>> strings_from(const Json& object, const char* key,
                                              const std::string& where) {
  NS_TRY_ASSIGN(const Json* list, JsonReader(object, where).array(key));
  std::vector<std::string> texts;
  for (const Json& item : *list) {
    if (!item.is_string()) {
      return Error{ErrorCode::corrupt, std::string(key) + " holds something that is no text", where,
                   ""};
    }
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

Status read_policies(const JsonReader& reader, const std::string& where, CheckpointMeta& meta) {
  NS_TRY_ASSIGN(const Json* fusion, reader.object("fusion"));
  NS_TRY_ASSIGN(meta.fusion.rules, strings_from(*fusion, "rules", where + " fusion"));
  NS_TRY_ASSIGN(meta.fusion.ignore, strings_from(*fusion, "ignore", where + " fusion"));
  NS_TRY_ASSIGN(const Json* kv, reader.object("kv"));
  const JsonReader kv_reader(*kv, where + " kv");
  NS_TRY_ASSIGN(meta.kv.format, kv_reader.string("format"));
  if (meta.kv.format != "bf16" && meta.kv.format != "f32") {
    return Error{ErrorCode::unsupported, "kv format '" + meta.kv.format + "' is not known", where,
                 "this version has bf16 and f32"};
  }
  NS_TRY_ASSIGN(const auto block_tokens, kv_reader.integer("block_tokens", 1, 1 << 20));
  meta.kv.block_tokens = static_cast<int>(block_tokens);
  NS_TRY_ASSIGN(meta.kv.policy, kv_reader.string("policy"));
  return {};
}

}  // namespace

Measurement CheckpointMeta::measured(const std::string& digest) const {
  Measurement all;
  for (const MeasurementRecord& record : measurements) {
    if (record.model != digest) continue;
    for (const NumberField& field : number_fields) {
      if (record.numbers.*field.field) all.*field.field = record.numbers.*field.field;
    }
    for (const auto& [group, value] : record.numbers.accuracy) all.accuracy[group] = value;
    for (const auto& [set, value] : record.numbers.perplexity) all.perplexity[set] = value;
  }
  return all;
}

const MeasurementRecord* CheckpointMeta::baseline() const {
  for (const MeasurementRecord& record : measurements) {
    if (record.stage == "baseline") return &record;
  }
  return nullptr;
}

std::string computation_text(const CheckpointMeta& meta) {
  return dump_json(
      {{"linears", linears_json(meta)}, {"fusion", fusion_json(meta)}, {"kv", kv_json(meta)}});
}

std::string to_json_text(const CheckpointMeta& meta) {
  Json records = Json::array();
  for (const MeasurementRecord& record : meta.measurements) records.push_back(record_json(record));
  return dump_json_pretty({{"version", 1},
                           {"stage", meta.stage},
                           {"linears", linears_json(meta)},
                           {"fusion", fusion_json(meta)},
                           {"kv", kv_json(meta)},
                           {"calibration_digest", meta.calibration_digest},
                           {"measurements", records}});
}

Result<CheckpointMeta> checkpoint_meta_from_json(std::string_view text, const std::string& where) {
  NS_TRY_ASSIGN(const Json json, parse_json(text, where));
  const JsonReader reader(json, where);
  NS_TRY_ASSIGN(const auto version, reader.integer("version"));
  if (version != 1) {
    return Error{ErrorCode::unsupported, "version " + std::to_string(version) + " is not known",
                 where, "this Nightshift reads version 1"};
  }
  CheckpointMeta meta;
  NS_TRY_ASSIGN(meta.stage, reader.string("stage"));
  NS_TRY_ASSIGN(meta.calibration_digest, reader.string_or("calibration_digest", ""));
  NS_TRY_ASSIGN(const Json* linears, reader.object("linears"));
  for (const auto& [name, value] : linears->items()) {
    NS_TRY_ASSIGN(meta.linears[name], linear_from(value, where + " " + name));
  }
  NS_TRY(read_policies(reader, where, meta));
  NS_TRY_ASSIGN(const Json* records, reader.array("measurements"));
  for (const Json& record : *records) {
    NS_TRY_ASSIGN(MeasurementRecord read, record_from(record, where + " measurements"));
    meta.measurements.push_back(std::move(read));
  }
  return meta;
}

}  // namespace nightshift
