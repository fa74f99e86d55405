// The verbs of people: each takes a JSON object and gives one back. Half of Desk.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "coordinator/resume.h"
#include "coordinator/scheduler.h"
#include "coordinator/server_desk.h"
#include "coordinator/views.h"
#include "schema/json.h"
#include "schema/log_piece.h"
#include "schema/text.h"

namespace nightshift {

namespace {

constexpr std::int64_t log_piece_bytes_max = 256 * 1024;

Error no_such_stage(const Job& job, const std::string& stage) {
  std::vector<std::string> names;
  for (const StageSpec& spec : job.spec.stages) names.push_back(spec.name);
  const std::string near = did_you_mean(stage, names);
  return Error{ErrorCode::not_found, fmt::format("job {} has no stage {}", job.id.value, stage), "",
               near.empty() ? "" : fmt::format("did you mean {}?", near)};
}

// How much of the end of `bytes` is the beginning of a UTF-8 character: it is left for next time.
std::size_t unfinished_utf8(std::string_view bytes) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, bytes.size()); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

// `asked`: the offset that the person's program has sent.
Json log_json(const AttemptRef& ref, bool is_open, std::int64_t asked, LogPiece piece) {
  const auto [offset, size] = std::pair(piece.offset, piece.size);
  std::string& bytes = piece.bytes;
  const bool is_tail = offset + static_cast<std::int64_t>(bytes.size()) >= size;
  const std::size_t unfinished = is_tail && !is_open ? 0 : unfinished_utf8(bytes);
  if (unfinished < bytes.size()) bytes.resize(bytes.size() - unfinished);
  const std::int64_t next = offset + static_cast<std::int64_t>(bytes.size());
  return {{"job", ref.job.value},
          {"stage", ref.stage},
          {"attempt", ref.attempt.value},
          {"offset", offset},
          {"next", next},
          {"size", size},
          {"open", is_open},
          {"text", to_utf8(bytes)},
          {"left_out", log_bytes_left_out(asked, offset, size)}};
}

// Which stage a person means who names none: the one that runs, else that went wrong, else the last
// that ran.
const StageSpec* telling_stage(const Job& job) {
  const StageSpec* found = nullptr;
  int best = -1;
  for (std::size_t i = 0; i < job.stages.size(); ++i) {
    const Stage& stage = job.stages[i];
    if (stage.attempts.empty()) continue;
    const int rank = is_active(stage.state) ? 2 : stage.state == StageState::failed ? 1 : 0;
    if (rank < best) continue;
    best = rank;
    found = &job.spec.stages[i];
  }
  return found;
}

}  // namespace

Result<JobId> Desk::find_job_id(const Json& arguments) const {
  const JsonReader reader(arguments, "arguments");
  NS_TRY_ASSIGN(const std::string word, reader.string("job"));
  const Core& core = engine_.core();
  std::int64_t number = 0;
  const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (failed == std::errc() && end == word.data() + word.size()) {
    if (core.jobs.contains({number})) return JobId{number};
    const auto quarantined = core.quarantined.find({number});
    if (quarantined != core.quarantined.end()) {
      return Error{ErrorCode::corrupt, fmt::format("job {} is set aside: {}", number,
                                                   quarantined->second), "", ""};
    }
  }
  for (auto job = core.jobs.rbegin(); job != core.jobs.rend(); ++job) {
    if (job->second.spec.name == word) return job->first;
  }
  std::vector<std::string> names;
  for (const auto& [id, job] : core.jobs) names.push_back(job.spec.name);
  const std::string near = did_you_mean(word, names);
  return Error{ErrorCode::not_found, fmt::format("there is no job {}", word), "",
               near.empty() ? "`nightshift status` lists the jobs"
                            : fmt::format("did you mean {}?", near)};
}

Result<Json> Desk::ping(Now now) const {
  const Core& core = engine_.core();
  return Json{{"pid", ::getpid()},
              {"home", home_.root()},
              {"epoch", core.epoch.value},
              {"wall_ms", now.wall_ms},
              {"jobs", core.jobs.size()},
              {"workers", core.workers.size()},
              {"counters",
               {{"messages", counters_.messages},
                {"garbage", counters_.garbage},
                {"misdirected", counters_.misdirected},
                {"unknown_workers", counters_.unknown_workers},
                {"unreachable", counters_.unreachable},
                {"failed_commits", counters_.failed_commits},
                {"flooded", counters_.flooded},
                {"refused_keys", counters_.refused_keys},
                {"checkpoint_bytes", counters_.checkpoint_bytes},
                {"reports_refused", core.counters.reports_refused}}}};
}

Result<Json> Desk::status(const Json& arguments, Now now) const {
  if (arguments.contains("job")) {
    NS_TRY_ASSIGN(const JobId id, find_job_id(arguments));
    const auto view = make_job_view(engine_.core(), engine_.options().scheduler, id, now);
    if (!view) return Error{ErrorCode::internal, "the job cannot be shown", "", ""};
    return Json{{"job", to_json(*view)}};
  }
  std::vector<JobView> list = make_job_list(engine_.core());
  const std::size_t all = list.size();
  const std::size_t first = all > options_.jobs_listed_max ? all - options_.jobs_listed_max : 0;
  Json jobs = Json::array();
  for (std::size_t i = first; i < all; ++i) jobs.push_back(to_json(list[i]));
  return Json{{"jobs", std::move(jobs)}, {"total", all}};
}

Result<Json> Desk::workers(Now now) const {
  Json list = Json::array();
  const std::int64_t silent_ms = engine_.options().lease_ms / 2;
  for (const WorkerView& view : make_worker_views(engine_.core(), silent_ms, now)) {
    list.push_back(to_json(view));
  }
  return Json{{"workers", std::move(list)}};
}

Result<Json> Desk::explain(const Json& arguments, Now now) const {
  NS_TRY_ASSIGN(const JobId id, find_job_id(arguments));
  const JsonReader reader(arguments, "arguments");
  NS_TRY_ASSIGN(const std::string wanted, reader.string_or("stage", ""));
  const Core& core = engine_.core();
  const Job& job = core.jobs.at(id);
  if (!wanted.empty() && !job.graph.index.contains(wanted)) return no_such_stage(job, wanted);
  const auto view = make_job_view(core, engine_.options().scheduler, id, now);
  Json stages = Json::array();
  for (const Explanation& item : nightshift::explain(core, engine_.options().scheduler, id, now)) {
    if (!wanted.empty() && item.stage != wanted) continue;
    std::vector<std::string> reasons = item.reasons;
    if (view && reasons.empty()) {
      const StageView& stage = view->stages[job.graph.index.at(item.stage)];
      if (!stage.waiting_reason.empty()) reasons.push_back(stage.waiting_reason);
    }
    stages.push_back(
        {{"stage", item.stage}, {"state", to_string(item.state)}, {"reasons", reasons}});
  }
  return Json{{"job", id.value}, {"name", job.spec.name}, {"stages", std::move(stages)}};
}

Result<Json> Desk::resume(const Json& arguments, Now now) {
  ResumeRequest request;
  NS_TRY_ASSIGN(request.job, find_job_id(arguments));
  const JsonReader reader(arguments, "arguments");
  NS_TRY_ASSIGN(request.from, reader.string_or("from", ""));
  NS_TRY_ASSIGN(request.source_text, reader.string_or("source_text", ""));
  NS_TRY_ASSIGN(const std::string spec_json, reader.string_or("spec_json", ""));
  NS_TRY_ASSIGN(const bool plan_only, reader.boolean_or("plan", false));
  if (!spec_json.empty()) {
    NS_TRY_ASSIGN(request.spec, job_spec_from_json(spec_json, "changed job file"));
  }
  std::vector<ResumeStep> steps;
  if (plan_only) {
    NS_TRY_ASSIGN(ResumePlan plan, plan_resume(engine_.core(), request.job, request.spec,
                                               request.from, engine_.options().checkpoint_exists));
    steps = std::move(plan.steps);
  } else {
    NS_TRY_ASSIGN(steps, engine_.run(now, [&](Turn& turn) { return on_resume(turn, request); }));
  }
  Json list = Json::array();
  for (const ResumeStep& step : steps) list.push_back(to_json(step));
  return Json{{"job", request.job.value}, {"steps", std::move(list)}};
}

Result<Json> Desk::cancel(const Json& arguments, Now now) {
  NS_TRY_ASSIGN(const JobId id, find_job_id(arguments));
  const JsonReader reader(arguments, "arguments");
  NS_TRY_ASSIGN(const std::string stage, reader.string_or("stage", ""));
  NS_TRY_ASSIGN(const std::string by, reader.string_or("by", "somebody"));
  // Acknowledged twice when the first answer was lost.
  const Job& job = engine_.core().jobs.at(id);
  if (stage.empty() && job.state == JobState::cancelled) return Json{{"job", id.value}};
  NS_TRY(engine_.run(now, [&](Turn& turn) {
    return on_cancel(turn, id, stage, is_name(by, wire::name_bytes_max) ? by : "somebody");
  }));
  return Json{{"job", id.value}};
}

Result<Json> Desk::pin(const Json& arguments, Now now) {
  NS_TRY_ASSIGN(const JobId id, find_job_id(arguments));
  const JsonReader reader(arguments, "arguments");
  NS_TRY_ASSIGN(const std::string stage, reader.string_or("stage", ""));
  NS_TRY_ASSIGN(const bool pinned, reader.boolean_or("pinned", true));
  const Job& job = engine_.core().jobs.at(id);
  if (!stage.empty() && !job.graph.index.contains(stage)) return no_such_stage(job, stage);
  NS_TRY(engine_.run(now, [&](Turn& turn) { return on_pin(turn, id, stage, pinned); }));
  return Json{{"job", id.value}};
}

// ---- logs -----------------------------------------------------------------------------------

Result<Desk::LogPlace> Desk::find_log(const Json& arguments) const {
  NS_TRY_ASSIGN(const JobId id, find_job_id(arguments));
  const JsonReader reader(arguments, "arguments");
  NS_TRY_ASSIGN(std::string name, reader.string_or("stage", ""));
  NS_TRY_ASSIGN(const std::int64_t number, reader.integer_or("attempt", 0, 0, INT32_MAX));
  const Job& job = engine_.core().jobs.at(id);
  if (name.empty()) {
    const StageSpec* telling = telling_stage(job);
    if (!telling) {
      return Error{ErrorCode::not_found, fmt::format("no stage of job {} has run yet", id.value),
                   "", fmt::format("`nightshift explain {}` says why", id.value)};
    }
    name = telling->name;
  }
  const auto index = job.graph.index.find(name);
  if (index == job.graph.index.end()) return no_such_stage(job, name);
  const Stage& stage = job.stages[index->second];
  LogPlace place{{id, name, {0}}, {}, !is_final(stage.state)};
  if (stage.attempts.empty()) {
    if (!is_final(stage.state)) return place;   // it may run yet: nothing to read
    return Error{ErrorCode::not_found,
                 fmt::format("stage {} is {} and has no log of its own", name,
                             to_string(stage.state)),
                 "", stage.reuse_reason};
  }
  for (const AttemptRecord& record : stage.attempts) {
    if (number != 0 && record.number.value != number) continue;
    place.ref.attempt = record.number;
    place.worker = record.worker;
    place.is_open = !record.outcome.has_value();
  }
  if (place.ref.attempt.value == 0) {
    return Error{ErrorCode::not_found,
                 fmt::format("stage {} has no attempt {}: its last one is {}", name, number,
                             stage.attempts.back().number.value),
                 "", ""};
  }
  return place;
}

Result<std::optional<Json>> Desk::logs(const std::string& peer, std::int64_t request,
                                       const Json& arguments, Now now) {
  NS_TRY_ASSIGN(const LogPlace place, find_log(arguments));
  const JsonReader reader(arguments, "arguments");
  NS_TRY_ASSIGN(const std::int64_t offset, reader.integer_or("offset", 0, -(INT64_MAX)));
  NS_TRY_ASSIGN(const std::int64_t bytes_max,
                reader.integer_or("bytes_max", 64 * 1024, 1, log_piece_bytes_max));
  if (place.ref.attempt.value == 0) {
    return std::optional<Json>(log_json(place.ref, place.is_open, 0, {}));
  }
  if (auto local = read_log_piece(home_.attempt_log(place.ref), offset, bytes_max)) {
    return std::optional<Json>(log_json(place.ref, place.is_open, offset, std::move(*local)));
  }
  const Worker* worker = find_worker(engine_.core(), place.worker);
  const auto address = worker ? addresses_.find({place.worker, worker->session}) : addresses_.end();
  if (address == addresses_.end()) {
    return Error{ErrorCode::unavailable,
                 fmt::format("the log of {} lies with worker {}, which is not connected",
                             to_string(place.ref), place.worker.value),
                 "", ""};
  }
  const std::int64_t ours = ++last_log_request_;
  open_logs_[ours] = {peer,
                      request,
                      place.ref,
                      place.worker,
                      place.is_open,
                      offset,
                      now.mono_ms + options_.log_answer_ms_max};
  letters_.push_back({address->second, LogRequest{ours, place.ref, offset, bytes_max}});
  return std::optional<Json>();
}

void Desk::on_log_chunk(const std::string& peer, const LogChunk& chunk) {
  const auto open = open_logs_.find(chunk.request);
  if (open == open_logs_.end()) return;   // it came too late
  const std::optional<Sender>& sender = peers_[peer].sender;
  if (!sender || sender->worker != open->second.worker || chunk.ref != open->second.ref) return;
  const OpenLog asked = open->second;
  open_logs_.erase(open);
  if (!chunk.error.empty()) {
    return reply_error(asked.peer, asked.request,
                       Error{ErrorCode::unavailable, chunk.error,
                             fmt::format("worker {}", asked.worker.value), ""});
  }
  reply(asked.peer, asked.request,
        log_json(asked.ref, asked.is_open, asked.offset, {chunk.offset, chunk.size, chunk.bytes}));
}

}  // namespace nightshift
