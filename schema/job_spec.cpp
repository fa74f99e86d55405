#include "schema/job_spec.h"

#include <string_view>
#include <unordered_set>

#include "schema/codec_fields.h"

namespace nightshift {

using codec::Ref;

template <class A>
void fields(A& a, Ref<A, NightSpec> m) {
  a.text("start", m.start);
  a.text("deadline", m.deadline);
  a.text("zone", m.zone);
}

template <class A>
void fields(A& a, Ref<A, NotifySpec> m) {
  a.names("on", m.on);
  a.text("webhook", m.webhook, codec::path_bytes_max);
  a.text("command", m.command, codec::prose_bytes_max);
  a.text("email_to", m.email_to, codec::path_bytes_max);
  a.text("email_smtp", m.email_smtp, codec::path_bytes_max);
}

template <class A>
void fields(A& a, Ref<A, StageSpec> m) {
  a.stage_name("name", m.name);
  a.stage_name("kind", m.kind);
  a.may_miss().text("group", m.group);
  a.may_miss().stage_names("needs", m.needs);
  a.may_miss().json_text("params", m.params_json);
  a.may_miss().names("inputs", m.inputs, codec::path_bytes_max);
  a.may_miss().text_map("input_digests", m.input_digests);
  a.may_miss().text("model_path", m.model_path, codec::path_bytes_max);
  a.may_miss().text("model_digest", m.model_digest);
  a.may_miss().names("command", m.command, codec::prose_bytes_max);
  a.may_miss().text_map("environment", m.environment, codec::prose_bytes_max);
  a.may_miss().integer("wall_limit_ms", m.wall_limit_ms);
  a.may_miss().integer("expected_ms", m.expected_ms);
  a.may_miss().object("resources", m.resources);
  a.object("retry", m.retry);
}

template <class A>
void fields(A& a, Ref<A, JobSpec> m) {
  a.name("name", m.name);
  a.text("source_path", m.source_path, codec::path_bytes_max);
  a.text("model_path", m.model_path, codec::path_bytes_max);
  a.text("model_digest", m.model_digest);
  a.object("bench", m.bench);
  a.object("red_lines", m.red_lines);
  a.object("night", m.night);
  a.object("watchdog", m.watchdog);
  a.object("retry", m.retry);
  a.object("resources", m.resources);
  a.list("notify", m.notify);
  a.integer("priority", m.priority, INT32_MIN, INT32_MAX);
  a.list("stages", m.stages);
}

namespace {

Error refused(const std::string& what, const std::string& where) {
  return Error{ErrorCode::invalid_argument, what, where, ""};
}

Status check_stages(const std::vector<StageSpec>& stages, const std::string& where) {
  if (stages.empty()) return refused("stages: there is none", where);
  std::unordered_set<std::string_view> earlier;
  for (const StageSpec& stage : stages) {
    for (const std::string& needed : stage.needs) {
      if (!earlier.contains(needed)) {
        return refused("stages: `" + stage.name + "` needs `" + needed +
                           "`, which is not among the stages before it",
                       where);
      }
    }
    if (!earlier.insert(stage.name).second) {
      return refused("stages: two are named `" + stage.name + "`", where);
    }
  }
  return {};
}

}  // namespace

const std::string& model_path_of(const JobSpec& job, const StageSpec& stage) {
  return stage.model_path.empty() ? job.model_path : stage.model_path;
}

const std::string& model_digest_of(const JobSpec& job, const StageSpec& stage) {
  return stage.model_path.empty() ? job.model_digest : stage.model_digest;
}

// Sparse: a stage of a large job says only what is not usual, and is read in a third of the time.
std::string to_json_text(const JobSpec& spec) {
  return dump_json(codec::write_object(spec, true));
}

Result<JobSpec> job_spec_from_json(std::string_view text, const std::string& where) {
  NS_TRY_ASSIGN(const Json json, parse_json(text, where));
  NS_TRY_ASSIGN(JobSpec spec, codec::read_object<JobSpec>(json, where, true));
  NS_TRY(check_stages(spec.stages, where));
  return spec;
}

}  // namespace nightshift
