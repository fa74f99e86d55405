// submit, status, cancel, explain, workers.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/follow.h"
#include "coordinator/cli/progress.h"
#include "coordinator/cli/questions.h"
#include "coordinator/cli/session.h"
#include "coordinator/clock.h"
#include "coordinator/report.h"
#include "coordinator/terminal.h"
#include "schema/json.h"

namespace nightshift::cli {

namespace {

constexpr std::size_t log_tails_max = 4;

ProgressStyle style_of_stdout() {
  const TerminalTraits traits = terminal_traits(STDOUT_FILENO);
  return {traits.columns, 0, traits.colour};
}

// The list of all jobs, newest last.
void print_list(const std::vector<JobView>& jobs, const ProgressStyle& style) {
  if (jobs.empty()) return say("no jobs");
  std::size_t name_columns = 4;
  for (const JobView& job : jobs) {
    name_columns = std::max(name_columns, std::min<std::size_t>(32, display_width(job.name)));
  }
  say(coloured(fmt::format("{:>5}  {}  {:9}  {:>7}  {}", "job", pad_right("name", name_columns),
                           "state", "stages", "submitted"),
               Colour::bold, style.colour));
  for (const JobView& job : jobs) {
    const auto over = std::count_if(job.stages.begin(), job.stages.end(),
                                    [](const StageView& s) { return has_result(s.state); });
    std::string line = fmt::format("{:>5}  {}  {:9}  {:>7}  {}", job.job.value,
                                   pad_right(printable(job.name), name_columns),
                                   to_string(job.state),
                                   fmt::format("{}/{}", over, job.stages.size()),
                                   format_wall_time(job.submitted_ms));
    for (const StageView& stage : job.stages) {
      if (is_active(stage.state) || stage.state == StageState::failed) {
        line += fmt::format("  {} {}", printable(stage.name), to_string(stage.state));
      }
    }
    say(clip_to_width(line, style.columns));
  }
}

Result<std::vector<JobView>> ask_list(Questions& questions) {
  NS_TRY_ASSIGN(const Json answer, questions.ask("status", Json::object()));
  const JsonReader reader(answer, "reply to status");
  NS_TRY_ASSIGN(const Json* list, reader.array("jobs"));
  std::vector<JobView> jobs;
  for (const Json& item : *list) {
    NS_TRY_ASSIGN(JobView job, job_view_from_json(item));
    jobs.push_back(std::move(job));
  }
  return jobs;
}

void print_log_tail(const StageView& stage) {
  const AttemptView& last = stage.attempts.back();
  say(fmt::format("the end of the log of {} #{}:", printable(stage.name), last.attempt));
  std::string_view tail = last.log_tail;
  while (!tail.empty()) {
    const std::size_t end = std::min(tail.find('\n'), tail.size());
    say("  " + printable(tail.substr(0, end)));
    tail.remove_prefix(std::min(end + 1, tail.size()));
  }
}

void print_job(const Place& place, const JobView& view, bool is_offline, bool all) {
  ProgressStyle style = style_of_stdout();
  style.all = all;
  const SystemClock clock;
  say(render_job(view, clock.now().wall_ms, style));
  if (view.state == JobState::active && is_offline) {
    say("no coordinator runs: nobody works on it; to go on: " + resume_command(place, view.job));
  }
  if (view.state == JobState::failed || view.state == JobState::cancelled) {
    std::size_t tails = 0;
    for (const StageView& stage : view.stages) {
      if (stage.state != StageState::failed || stage.attempts.empty()) continue;
      if (stage.attempts.back().log_tail.empty()) continue;
      if (++tails <= log_tails_max || all) print_log_tail(stage);
    }
    if (tails > log_tails_max && !all) {
      say(fmt::format("… and the logs of {} more: --all, or nightshift logs {} STAGE",
                      tails - log_tails_max, view.job.value));
    }
    say("to go on: " + resume_command(place, view.job));
  }
}

int watch(const Place& place, const JobView& view, bool all) {
  catch_interrupts();
  FollowOptions options;
  options.place = place;
  options.all = all;
  Follower follower(std::move(options));
  if (const Status connected = follower.connect(); !connected.ok()) return fail(connected.error());
  const auto followed = follower.follow(view.job);
  if (!followed.ok()) return fail(followed.error());
  if (!*followed) return exit_interrupted;
  const JobReport report = make_report(**followed);
  say(report.verdict_text);
  return exit_code_of(report.verdict);
}

// "gpu 1, 24 GiB, 8 cores, labels a100": what a worker has.
std::string resources_text(const WorkerResources& has) {
  std::string text = fmt::format("{} slot{}", has.slots, has.slots == 1 ? "" : "s");
  if (has.gpu > 0) text += fmt::format(", {} gpu", has.gpu);
  text += fmt::format(", {} cores, {}", has.cores,
                      format_bytes(static_cast<double>(has.memory_bytes)));
  if (!has.device_class.empty()) text += ", " + has.device_class;
  for (const std::string& label : has.labels) text += ", " + label;
  return printable(text);
}

void print_worker(const WorkerView& worker, std::size_t name_columns, const ProgressStyle& style) {
  const Colour colour = worker.state == "online" ? Colour::green
                        : worker.state == "lost" ? Colour::red
                                                 : Colour::yellow;
  std::string line = fmt::format("{}  {}  {} (pid {})  {}",
                                 pad_right(printable(worker.name), name_columns),
                                 coloured(pad_right(worker.state, 7), colour, style.colour),
                                 printable(worker.host), worker.pid,
                                 resources_text(worker.resources));
  if (worker.state != "online") {
    line += fmt::format("  last word {} ago", format_clock(worker.last_word_ms));
  }
  if (worker.disk_free_bytes >= 0) {
    line += fmt::format("  {} free", format_bytes(static_cast<double>(worker.disk_free_bytes)));
  }
  for (const std::string& running : worker.running) line += "  " + printable(running);
  say(clip_to_width(line, style.columns));
}

}  // namespace

int do_submit(const Place& place, const SubmitArguments& arguments) {
  LoadedJob job;
  if (!load_job(arguments.job_file, job)) return exit_failed;
  Result<Client> client = open_client(place);
  if (!client.ok()) return fail(client.error());
  const SubmitJob submit{to_json_text(job.spec), job.text, user_name(), random_request()};
  const Result<JobId> id = client->submit(submit);
  if (!id.ok()) return fail(id.error());
  say(fmt::format("job {} {} submitted; to follow it: nightshift status {} --watch", id->value,
                  printable(job.spec.name), id->value));
  return exit_ok;
}

int do_status(const Place& place, const StatusArguments& arguments) {
  std::optional<JobView> view;
  {
    Result<Questions> questions = Questions::open(place);
    if (!questions.ok()) return fail(questions.error());
    if (arguments.json) {
      const Result<Json> answer = questions->ask(
          "status", arguments.job.empty() ? Json::object() : job_argument(arguments.job));
      if (!answer.ok()) return fail(answer.error());
      const bool is_one = answer->contains("job");
      const std::string text = dump_json_pretty(is_one ? answer->at("job") : *answer);
      std::fwrite(text.data(), 1, text.size(), stdout);
      return exit_ok;
    }
    if (arguments.job.empty()) {
      const auto jobs = ask_list(*questions);
      if (!jobs.ok()) return fail(jobs.error());
      if (!arguments.watch || jobs->empty()) {
        print_list(*jobs, style_of_stdout());
        return exit_ok;
      }
      view = jobs->back();   // --watch without a job: the newest
    } else {
      Result<JobView> asked = questions->ask_job(arguments.job);
      if (!asked.ok()) return fail(asked.error());
      view = std::move(*asked);
    }
    if (!arguments.watch || questions->is_offline()) {
      print_job(place, *view, questions->is_offline(), arguments.all);
      return exit_ok;
    }
  }
  return watch(place, *view, arguments.all);
}

int do_cancel(const Place& place, const CancelArguments& arguments) {
  Result<Questions> questions = Questions::open(place);
  if (!questions.ok()) return fail(questions.error());
  const Result<Json> answer =
      questions->ask("cancel", Json{{"job", arguments.job}, {"stage", arguments.stage},
                                    {"by", user_name()}});
  if (!answer.ok()) return fail(answer.error());
  say(fmt::format("{} of job {} cancelled",
                  arguments.stage.empty() ? "all" : printable(arguments.stage),
                  answer->value("job", std::int64_t{0})));
  return exit_ok;
}

int do_explain(const Place& place, const ExplainArguments& arguments) {
  Result<Questions> questions = Questions::open(place);
  if (!questions.ok()) return fail(questions.error());
  const Result<Json> answer = questions->ask(
      "explain", Json{{"job", arguments.job}, {"stage", arguments.stage}});
  if (!answer.ok()) return fail(answer.error());
  std::size_t columns = 0;
  const Json& stages = answer->at("stages");
  for (const Json& stage : stages) {
    columns = std::max(columns, display_width(stage.value("stage", "")));
  }
  for (const Json& stage : stages) {
    say(fmt::format("{}  {}", pad_right(printable(stage.value("stage", "")), columns),
                    stage.value("state", "")));
    for (const Json& reason : stage.value("reasons", Json::array())) {
      say(std::string(columns + 2, ' ') + printable(reason.get<std::string>()));
    }
  }
  if (questions->is_offline()) say("no coordinator runs");
  return exit_ok;
}

int do_workers(const Place& place, const WorkersArguments& arguments) {
  Result<Client> client = open_client(place);
  if (!client.ok()) return fail(client.error());
  const Result<Json> answer = client->ask("workers", Json::object());
  if (!answer.ok()) return fail(answer.error());
  if (arguments.json) {
    const std::string text = dump_json_pretty(*answer);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return exit_ok;
  }
  std::vector<WorkerView> workers;
  std::size_t columns = 0;
  for (const Json& item : answer->value("workers", Json::array())) {
    Result<WorkerView> worker = worker_view_from_json(item);
    if (!worker.ok()) return fail(worker.error());
    columns = std::max(columns, display_width(worker->name));
    workers.push_back(std::move(*worker));
  }
  if (workers.empty()) {
    say("no workers: start one with `nightshift-worker --access ... --root ...`");
  }
  for (const WorkerView& worker : workers) print_worker(worker, columns, style_of_stdout());
  return exit_ok;
}

}  // namespace nightshift::cli
