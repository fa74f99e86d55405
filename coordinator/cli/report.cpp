// report: the numbers of a job.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/questions.h"
#include "coordinator/cli/session.h"
#include "coordinator/report_table.h"
#include "coordinator/terminal.h"
#include "schema/json.h"

namespace nightshift::cli {

int do_report(const Place& place, const ReportArguments& arguments) {
  Result<Questions> questions = Questions::open(place);
  if (!questions.ok()) return fail(questions.error());
  const Result<JobView> view = questions->ask_job(arguments.job);
  if (!view.ok()) return fail(view.error());
  const JobReport report = make_report(*view);
  if (arguments.json || arguments.csv) {
    const std::string text = arguments.json ? dump_json_pretty(to_json(report)) : to_csv(report);
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    const TerminalTraits traits = terminal_traits(STDOUT_FILENO);
    say(render_report(report, {traits.columns, traits.colour}));
  }
  if (!arguments.out.empty()) {
    const Result<std::string> path = write_report(report, arguments.out);
    if (!path.ok()) return fail(path.error());
    if (!arguments.json && !arguments.csv) say(*path);
  }
  return exit_code_of(report.verdict);
}

}  // namespace nightshift::cli
