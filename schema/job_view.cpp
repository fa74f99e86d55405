#include "schema/job_view.h"

#include "schema/codec_fields.h"

namespace nightshift {

using codec::Ref;

template <class A>
void fields(A& a, Ref<A, AttemptView> m) {
  a.integer("attempt", m.attempt, 1);
  a.text("worker", m.worker);
  a.optional_choice("outcome", m.outcome, to_string, outcome_from);
  a.prose("reason", m.reason);
  a.integer("started_ms", m.started_ms);
  a.integer("ended_ms", m.ended_ms);
  a.integer("elapsed_ms", m.elapsed_ms);
  a.prose("log_tail", m.log_tail);
}

template <class A>
void fields(A& a, Ref<A, StageView> m) {
  a.stage_name("name", m.name);
  a.text("kind", m.kind);
  a.choice("state", m.state, to_string, stage_state_from);
  a.integer("attempt", m.attempt);
  a.stage_names("needs", m.needs);
  a.text("worker", m.worker);
  a.prose("waiting_reason", m.waiting_reason);
  a.prose("reuse_reason", m.reuse_reason);
  a.optional("pulse", m.pulse);
  a.integer("pulse_age_ms", m.pulse_age_ms);
  a.text("checkpoint_path", m.checkpoint_path, codec::path_bytes_max);
  a.text("checkpoint_digest", m.checkpoint_digest);
  a.integer("checkpoint_bytes", m.checkpoint_bytes);
  a.list("attempts", m.attempts);
  a.list("metrics", m.metrics);
  a.list("red_lines", m.red_lines);
  a.names("notes", m.notes, codec::prose_bytes_max);
  a.may_miss().text("group", m.group);
}

template <class A>
void fields(A& a, Ref<A, EventView> m) {
  a.integer("at_ms", m.at_ms);
  a.prose("text", m.text);
}

template <class A>
void fields(A& a, Ref<A, JobView> m) {
  a.integer("job", m.job.value);
  a.text("name", m.name);
  a.text("user", m.user);
  a.choice("state", m.state, to_string, job_state_from);
  a.text("model_path", m.model_path, codec::path_bytes_max);
  a.text("source_path", m.source_path, codec::path_bytes_max);
  a.integer("submitted_ms", m.submitted_ms);
  a.integer("ended_ms", m.ended_ms);
  a.list("stages", m.stages);
  a.list("events", m.events);
}

template <class A>
void fields(A& a, Ref<A, WorkerView> m) {
  a.text("name", m.name);
  a.text("host", m.host);
  a.integer("pid", m.pid);
  a.text("state", m.state);
  a.integer("last_word_ms", m.last_word_ms);
  a.object("resources", m.resources);
  a.names("running", m.running);
  a.integer("disk_free_bytes", m.disk_free_bytes, -1);
}

template <class A>
void fields(A& a, Ref<A, ResumeStep> m) {
  a.stage_name("stage", m.stage);
  a.flag("rerun", m.rerun);
  a.prose("reason", m.reason);
}

Json to_json(const JobView& view) { return codec::write_object(view); }
Json to_json(const WorkerView& view) { return codec::write_object(view); }
Json to_json(const ResumeStep& step) { return codec::write_object(step); }

Result<JobView> job_view_from_json(const Json& json) {
  return codec::read_object<JobView>(json, "job view", true);
}

Result<WorkerView> worker_view_from_json(const Json& json) {
  return codec::read_object<WorkerView>(json, "worker view");
}

Result<ResumeStep> resume_step_from_json(const Json& json) {
  return codec::read_object<ResumeStep>(json, "resume step");
}

}  // namespace nightshift
