// The fields of the structs that more than one text or message carries. Private to schema/*.cpp.
// Knows the structs and their bounds; must not know JSON or MessagePack (codec.h does).
#pragma once

#include "schema/codec.h"
#include "schema/job_spec.h"
#include "schema/messages.h"
#include "schema/red_line.h"
#include "schema/stage_contract.h"

namespace nightshift::codec {

inline constexpr std::int64_t tokens_max = 1 << 24;
inline constexpr std::int64_t count_max = 1 << 20;

const char* to_string(Limit::Side side);
std::optional<Limit::Side> side_from(std::string_view text);
const char* to_string(WatchdogMode mode);
std::optional<WatchdogMode> watchdog_mode_from(std::string_view text);

}  // namespace nightshift::codec

// In the namespace of the structs, so that the archives find them.
namespace nightshift {

template <class A>
void fields(A& a, codec::Ref<A, BenchSpec> m) {
  a.integer("batch", m.batch, 1, codec::count_max);
  a.integer("input_tokens", m.input_tokens, 1, codec::tokens_max);
  a.integer("output_tokens", m.output_tokens, 1, codec::tokens_max);
  a.integer("warmup", m.warmup, 0, codec::count_max);
  a.integer("repeats", m.repeats, 1, codec::count_max);
}

template <class A>
void fields(A& a, codec::Ref<A, Limit> m) {
  a.choice("side", m.side, codec::to_string, codec::side_from);
  a.number("value", m.value);
  a.flag("relative", m.relative);
  a.text("text", m.text);
}

template <class A>
void fields(A& a, codec::Ref<A, RedLines> m) {
  a.optional("throughput_tok_s", m.throughput_tok_s);
  a.optional("ttft_ms", m.ttft_ms);
  a.optional("tpot_ms", m.tpot_ms);
  a.optional("peak_memory_bytes", m.peak_memory_bytes);
  a.optional("token_match", m.token_match);
  a.number_map("accuracy_drop", m.accuracy_drop);
}

template <class A>
void fields(A& a, codec::Ref<A, RedLineResult> m) {
  a.name("name", m.name);
  a.may_miss().text("limit", m.limit);
  a.number("limit_value", m.limit_value);
  a.number("measured", m.measured);
  a.flag("at_least", m.at_least);
  a.flag("pass", m.pass);
  a.may_miss().prose("detail", m.detail);
}

template <class A>
void fields(A& a, codec::Ref<A, ResourceSpec> m) {
  a.may_miss().integer("gpu", m.gpu, 0, codec::count_max);
  a.may_miss().integer("gpu_share_percent", m.gpu_share_percent, 0, 99);
  a.may_miss().integer("memory_bytes", m.memory_bytes);
  a.may_miss().integer("cores", m.cores, 0, codec::count_max);
  a.may_miss().flag("exclusive", m.exclusive);
  a.may_miss().names("labels", m.labels);
  a.may_miss().text("temp", m.temp, codec::path_bytes_max);
}

template <class A>
void fields(A& a, codec::Ref<A, WatchdogSpec> m) {
  a.integer("interval_ms", m.interval_ms, 1);
  a.integer("log_silence_ms", m.log_silence_ms);
  a.integer("min_disk_free_bytes", m.min_disk_free_bytes);
  a.integer("memory_max_bytes", m.memory_max_bytes);
  a.choice("mode", m.mode, codec::to_string, codec::watchdog_mode_from);
}

template <class A>
void fields(A& a, codec::Ref<A, RetrySpec> m) {
  a.integer("max", m.max, 0, codec::count_max);
  a.integer("backoff_ms", m.backoff_ms);
}

template <class A>
void fields(A& a, codec::Ref<A, ProgressReport> m) {
  a.integer("done", m.done);
  a.may_miss().integer("of", m.of);
  a.may_miss().text("unit", m.unit);
  a.may_miss().number("rate", m.rate);
  a.may_miss().text("rate_unit", m.rate_unit);
}

template <class A>
void fields(A& a, codec::Ref<A, MetricReport> m) {
  a.name("name", m.name);
  a.number("value", m.value);
  a.may_miss().text("unit", m.unit);
  a.may_miss().text("group", m.group);
  a.may_miss().text("model", m.model);
}

template <class A>
void fields(A& a, codec::Ref<A, AttemptRef> m) {
  a.integer("job", m.job.value, 1);
  a.stage_name("stage", m.stage);
  a.integer("attempt", m.attempt.value, 1);
}

template <class A>
void fields(A& a, codec::Ref<A, StageOrder> m) {
  a.integer("job", m.job);
  a.text("job_name", m.job_name);
  a.stage_name("stage", m.stage);
  a.stage_name("kind", m.kind);
  a.integer("attempt", m.attempt, 1);
  a.text("model_path", m.model_path, codec::path_bytes_max);
  a.object("bench", m.bench);
  a.object("red_lines", m.red_lines);
  a.json_text("params", m.params_json);
  a.stage_names("needs", m.needs);
  a.text_map("inputs", m.inputs);
}

template <class A>
void fields(A& a, codec::Ref<A, WorkerResources> m) {
  a.integer("slots", m.slots, 0, codec::count_max);
  a.integer("gpu", m.gpu, 0, codec::count_max);
  a.integer("cores", m.cores, 0, codec::count_max);
  a.integer("memory_bytes", m.memory_bytes);
  a.names("labels", m.labels);
  a.text("device_class", m.device_class);
  a.integer("disk_quota_bytes", m.disk_quota_bytes);
}

template <class A>
void fields(A& a, codec::Ref<A, AttemptPulse> m) {
  a.object("ref", m.ref);
  a.integer("log_bytes", m.log_bytes);
  a.integer("memory_bytes", m.memory_bytes);
  a.integer("progress_age_ms", m.progress_age_ms);
  a.integer("log_age_ms", m.log_age_ms);
  a.integer("elapsed_ms", m.elapsed_ms);
  a.text("phase", m.phase);
  a.integer("quiet_left_ms", m.quiet_left_ms);
  a.optional("progress", m.progress);
  a.flag("preparing", m.preparing);
}

}  // namespace nightshift
