#include "coordinator/cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <sstream>

#include "schema/job_spec.h"

namespace nightshift::cli {

namespace {

constexpr int usage_exit = 2;

// Everything that options write into while CLI11 parses.
struct Fields {
  Place place;
  RunArguments run;
  CoordinatorArguments coordinator;
  SubmitArguments submit;
  StatusArguments status;
  LogsArguments logs;
  ResumeArguments resume;
  CancelArguments cancel;
  ReportArguments report;
  CheckArguments check;
  WorkersArguments workers;
  ExplainArguments explain;
  std::optional<CommandArguments> chosen;
};

constexpr const char* job_help = "Job number, or a name (the newest of that name)";
constexpr const char* file_help = "Job file (YAML)";

template <typename Part>
CLI::App* add_command(CLI::App& app, Fields& fields, const char* name, const char* help,
                      Part& part) {
  CLI::App* command = app.add_subcommand(name, help);
  command->fallthrough();
  command->callback([&fields, &part] { fields.chosen = part; });
  return command;
}

void add_worker_choice(CLI::App* command, WorkerChoice& worker) {
  command->add_option("--slots", worker.slots, "Stages at the same time on the local worker")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--stage-program", worker.stage_program,
                      "Program of the built-in stages (default: nightshift-stage beside this one)");
}

void describe_running(CLI::App& app, Fields& fields) {
  CLI::App* run = add_command(app, fields, "run",
                              "Run a job here and now: exit 0 done, 3 red line crossed, 1 failed",
                              fields.run);
  run->add_option("JOB_FILE", fields.run.job_file, file_help)->required();
  add_worker_choice(run, fields.run.worker);

  CLI::App* coordinator = add_command(app, fields, "coordinator",
                                      "Serve workers and the other commands until stopped",
                                      fields.coordinator);
  coordinator->add_option("--listen", fields.coordinator.listen,
                          "Serve other machines, too: tcp://ADDRESS:PORT");
  coordinator->add_option("--parent-fd", fields.coordinator.parent_fd,
                          "Descriptor whose end means that the parent is gone");

  CLI::App* submit = add_command(app, fields, "submit", "Hand a job to the coordinator",
                                 fields.submit);
  submit->add_option("JOB_FILE", fields.submit.job_file, file_help)->required();

  CLI::App* resume = add_command(app, fields, "resume",
                                 "Run what failed, was cancelled or has changed", fields.resume);
  resume->add_option("JOB", fields.resume.job, job_help)->required();
  resume->add_flag("--plan", fields.resume.plan, "Only say what would run again, and why");
  resume->add_option("--from", fields.resume.from, "Run this stage, and what needs it, again");
  resume->add_option("--job-file", fields.resume.job_file, "Changed job file");
  add_worker_choice(resume, fields.resume.worker);

  CLI::App* cancel = add_command(app, fields, "cancel", "End a job, or one stage of it",
                                 fields.cancel);
  cancel->add_option("JOB", fields.cancel.job, job_help)->required();
  cancel->add_option("STAGE", fields.cancel.stage, "Only this stage");
}

void describe_looking(CLI::App& app, Fields& fields) {
  CLI::App* status = add_command(app, fields, "status", "All jobs, or one with its stages",
                                 fields.status);
  status->add_option("JOB", fields.status.job, job_help);
  status->add_flag("--all,-a", fields.status.all, "Every stage of a large matrix");
  status->add_flag("--watch,-w", fields.status.watch, "Follow until the job ends");
  status->add_flag("--json", fields.status.json, "For programs");

  CLI::App* logs = add_command(app, fields, "logs", "The log of an attempt", fields.logs);
  logs->add_option("JOB", fields.logs.job, job_help)->required();
  logs->add_option("STAGE", fields.logs.stage,
                   "Stage (default: the one that runs, failed, or ran last)");
  logs->add_option("--attempt", fields.logs.attempt, "Attempt number (default: the last)")
      ->check(CLI::Range(1, 1 << 30));
  logs->add_flag("-f,--follow", fields.logs.follow, "Go on until the attempt ends");
  logs->add_option("--tail", fields.logs.tail_bytes, "Only the last so many bytes")
      ->check(CLI::Range(0, 1 << 30));

  CLI::App* report = add_command(app, fields, "report", "The numbers of a job, and its red lines",
                                 fields.report);
  report->add_option("JOB", fields.report.job, job_help)->required();
  CLI::Option* json = report->add_flag("--json", fields.report.json, "For programs");
  report->add_flag("--csv", fields.report.csv, "One line a checkpoint")->excludes(json);
  report->add_option("--out", fields.report.out, "Write report.json and report.csv into a folder");

  CLI::App* check = add_command(app, fields, "check", "All mistakes of job files, offline",
                                fields.check);
  check->add_option("JOB_FILE", fields.check.job_files, file_help)->required();
  check->add_flag("--all,-a", fields.check.all, "Names every stage of a large matrix");

  CLI::App* workers = add_command(app, fields, "workers", "Who works for the coordinator",
                                  fields.workers);
  workers->add_flag("--json", fields.workers.json, "For programs");

  CLI::App* explain = add_command(app, fields, "explain", "Why stages wait", fields.explain);
  explain->add_option("JOB", fields.explain.job, job_help)->required();
  explain->add_option("STAGE", fields.explain.stage, "Only this stage");

  CLI::App* version = app.add_subcommand("version", "The version of this program");
  version->callback([&fields] { fields.chosen = VersionArguments{}; });
}

ParsedArguments mistake(const std::string& what) {
  std::string line = what;
  std::replace(line.begin(), line.end(), '\n', ' ');
  return {std::nullopt, usage_exit,
          fmt::format("nightshift: error: {} (`nightshift --help` shows the commands)\n", line)};
}

// CLI11 says of a wrong command only that it did not expect it.
std::optional<ParsedArguments> wrong_command(const CLI::App& app,
                                             const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--home" || words[i] == "--access") {
      ++i;
      continue;
    }
    if (words[i].empty() || words[i][0] == '-') continue;
    if (std::find(names.begin(), names.end(), words[i]) != names.end()) return std::nullopt;
    const std::string near = did_you_mean(words[i], names);
    return mistake(fmt::format("there is no command {}{}", words[i],
                               near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }
  return std::nullopt;
}

}  // namespace

ParsedArguments parse_arguments(const std::vector<std::string>& words) {
  CLI::App app{"Optimises language models overnight, inside red lines", "nightshift"};
  Fields fields;
  app.add_option("--home", fields.place.home,
                 "State folder (default: $NIGHTSHIFT_HOME, else ~/.nightshift)");
  app.add_option("--access", fields.place.access, "Access file of a coordinator elsewhere");
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);
  describe_running(app, fields);
  describe_looking(app, fields);
  if (const auto wrong = wrong_command(app, words)) return *wrong;
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& failed) {
    if (failed.get_exit_code() != 0) return mistake(failed.what());
    std::ostringstream out;
    app.exit(failed, out, out);
    return {std::nullopt, 0, out.str()};
  }
  if (!fields.chosen) return mistake("no command was given");
  return {Arguments{fields.place, *fields.chosen}, 0, ""};
}

}  // namespace nightshift::cli
