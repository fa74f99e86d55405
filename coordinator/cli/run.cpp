// run and resume: from the job to the report.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/follow.h"
#include "coordinator/cli/questions.h"
#include "coordinator/cli/session.h"
#include "coordinator/report_table.h"
#include "coordinator/terminal.h"
#include "schema/json.h"

namespace nightshift::cli {

namespace {

FollowOptions follow_options(const Place& place, const WorkerChoice& worker) {
  FollowOptions options;
  options.place = place;
  options.may_start = true;
  options.embedded.slots = worker.slots;
  options.embedded.stage_program = worker.stage_program;
  return options;
}

// The report on the screen and in HOME/reports/JOB; the path of report.json is the last line.
int finish(const Place& place, const JobView& view) {
  const JobReport report = make_report(view);
  const TerminalTraits traits = terminal_traits(STDOUT_FILENO);
  say("");
  say(render_report(report, {traits.columns, traits.colour}));
  if (report.verdict != Verdict::pass && report.verdict != Verdict::red_line) {
    say(fmt::format("to go on: {}", resume_command(place, view.job)));
  }
  const Result<Home> home = Home::locate(place.home);
  if (!home.ok()) return fail(home.error());
  const Result<std::string> path = write_report(report, home->report_folder(view.job));
  if (!path.ok()) return fail(path.error());
  say(*path);
  return exit_code_of(report.verdict);
}

int follow_to_the_end(Follower& follower, const Place& place, JobId job) {
  const Result<std::optional<JobView>> view = follower.follow(job);
  const bool is_embedded = follower.is_embedded();
  if (!view.ok()) {
    fail(view.error());
    follower.stop();
    say(fmt::format("the state is kept; to go on: {}", resume_command(place, job)));
    return exit_failed;
  }
  if (*view) {
    follower.stop();
    return finish(place, **view);
  }
  if (!is_embedded) {
    say(fmt::format("job {} goes on; to follow it: nightshift status {} --watch", job.value,
                    job.value));
    return exit_interrupted;
  }
  say("interrupted: ending what runs; its state is kept (again Ctrl-C: at once)");
  follower.stop();
  say(fmt::format("to go on: {}", resume_command(place, job)));
  return exit_interrupted;
}

void print_steps(const std::vector<ResumeStep>& steps) {
  std::size_t columns = 0;
  for (const ResumeStep& step : steps) columns = std::max(columns, display_width(step.stage));
  for (const ResumeStep& step : steps) {
    say(fmt::format("  {}  {}  {}", pad_right(step.stage, columns), step.rerun ? "rerun" : "reuse",
                    printable(step.reason)));
  }
}

Result<std::vector<ResumeStep>> steps_from(const Json& answer) {
  const JsonReader reader(answer, "reply to resume");
  NS_TRY_ASSIGN(const Json* list, reader.array("steps"));
  std::vector<ResumeStep> steps;
  for (const Json& item : *list) {
    NS_TRY_ASSIGN(ResumeStep step, resume_step_from_json(item));
    steps.push_back(std::move(step));
  }
  return steps;
}

Json resume_question(const ResumeArguments& arguments, const LoadedJob* changed) {
  Json question = {{"job", arguments.job}, {"plan", arguments.plan}, {"from", arguments.from}};
  if (changed) {
    question["spec_json"] = to_json_text(changed->spec);
    question["source_text"] = changed->text;
  }
  return question;
}

int show_plan(const Place& place, const Json& question) {
  Result<Questions> questions = Questions::open(place);
  if (!questions.ok()) return fail(questions.error());
  const Result<Json> answer = questions->ask("resume", question);
  if (!answer.ok()) return fail(answer.error());
  const auto steps = steps_from(*answer);
  if (!steps.ok()) return fail(steps.error());
  print_steps(*steps);
  return exit_ok;
}

}  // namespace

int do_run(const Place& place, const RunArguments& arguments) {
  LoadedJob job;
  if (!load_job(arguments.job_file, job)) return exit_failed;
  catch_interrupts();
  Follower follower(follow_options(place, arguments.worker));
  if (const Status connected = follower.connect(); !connected.ok()) return fail(connected.error());
  const SubmitJob submit{to_json_text(job.spec), job.text, user_name(), random_request()};
  const Result<JobId> id = follower.client().submit(submit);
  if (!id.ok()) return fail(id.error());
  say(fmt::format("job {} {} submitted{}", id->value, printable(job.spec.name),
                  follower.is_embedded() ? "" : " to the coordinator that runs already"));
  return follow_to_the_end(follower, place, *id);
}

int do_resume(const Place& place, const ResumeArguments& arguments) {
  LoadedJob changed;
  const bool has_changed = !arguments.job_file.empty();
  if (has_changed && !load_job(arguments.job_file, changed)) return exit_failed;
  const Json question = resume_question(arguments, has_changed ? &changed : nullptr);
  if (arguments.plan) return show_plan(place, question);

  // Where there is nothing to resume, nothing needs to be started to say so.
  if (const auto running = is_coordinator_running(place); running.ok() && !*running &&
                                                          place.access.empty()) {
    Result<Questions> questions = Questions::open(place);
    if (!questions.ok()) return fail(questions.error());
    const Result<JobView> view = questions->ask_job(arguments.job);
    if (!view.ok()) return fail(view.error());
  }
  catch_interrupts();
  Follower follower(follow_options(place, arguments.worker));
  if (const Status connected = follower.connect(); !connected.ok()) return fail(connected.error());
  const Result<JobView> view = ask_job(follower.client(), arguments.job);
  if (!view.ok()) return fail(view.error());
  const Result<Json> answer = follower.client().ask("resume", question, Repeat::never);
  if (!answer.ok()) return fail(answer.error());
  const auto steps = steps_from(*answer);
  if (!steps.ok()) return fail(steps.error());
  const bool goes_on = view->state == JobState::active;
  say(fmt::format("job {} {}", view->job.value,
                  goes_on ? "is not finished: it goes on" : "resumed"));
  print_steps(*steps);
  if (follower.is_embedded()) return follow_to_the_end(follower, place, view->job);
  say(fmt::format("to follow it: nightshift status {} --watch", view->job.value));
  return exit_ok;
}

}  // namespace nightshift::cli
