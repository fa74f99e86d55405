// The program from its words to its exit code; check and version, which need nobody else.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/session.h"
#include "coordinator/cli/stage_groups.h"
#include "coordinator/terminal.h"

namespace nightshift::cli {

namespace {

struct Execute {
  const Place& place;
  int operator()(const RunArguments& a) const { return do_run(place, a); }
  int operator()(const CoordinatorArguments& a) const { return do_coordinator(place, a); }
  int operator()(const SubmitArguments& a) const { return do_submit(place, a); }
  int operator()(const StatusArguments& a) const { return do_status(place, a); }
  int operator()(const LogsArguments& a) const { return do_logs(place, a); }
  int operator()(const ResumeArguments& a) const { return do_resume(place, a); }
  int operator()(const CancelArguments& a) const { return do_cancel(place, a); }
  int operator()(const ReportArguments& a) const { return do_report(place, a); }
  int operator()(const CheckArguments& a) const { return do_check(a); }
  int operator()(const WorkersArguments& a) const { return do_workers(place, a); }
  int operator()(const ExplainArguments& a) const { return do_explain(place, a); }
  int operator()(const VersionArguments&) const { return do_version(); }
};

}  // namespace

int do_check(const CheckArguments& arguments) {
  int exit_code = exit_ok;
  for (const std::string& path : arguments.job_files) {
    LoadedJob job;
    if (!check_job(path, job)) {
      exit_code = exit_failed;
      continue;
    }
    say(fmt::format("{}: ok: {}, {} stages: {}", path, printable(job.spec.name),
                    job.spec.stages.size(), stage_list_text(job.spec, arguments.all)));
  }
  return exit_code;
}

int do_version() {
  say(version_text);
  return exit_ok;
}

int run_cli(const std::vector<std::string>& words) {
  const ParsedArguments parsed = parse_arguments(words);
  if (!parsed.arguments) {
    std::fwrite(parsed.text.data(), 1, parsed.text.size(), parsed.exit_code == 0 ? stdout : stderr);
    return parsed.exit_code;
  }
  try {
    return std::visit(Execute{parsed.arguments->place}, parsed.arguments->command);
  } catch (const std::exception& failed) {
    return fail(Error{ErrorCode::internal, failed.what(), "", "this is a bug of Nightshift"});
  }
}

}  // namespace nightshift::cli
