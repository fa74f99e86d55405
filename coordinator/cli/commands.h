// What each command does. Each prints, and returns the exit code.
#pragma once

#include "coordinator/cli/arguments.h"

namespace nightshift::cli {

int do_run(const Place& place, const RunArguments& arguments);
int do_coordinator(const Place& place, const CoordinatorArguments& arguments);
int do_submit(const Place& place, const SubmitArguments& arguments);
int do_status(const Place& place, const StatusArguments& arguments);
int do_logs(const Place& place, const LogsArguments& arguments);
int do_resume(const Place& place, const ResumeArguments& arguments);
int do_cancel(const Place& place, const CancelArguments& arguments);
int do_report(const Place& place, const ReportArguments& arguments);
int do_check(const CheckArguments& arguments);
int do_workers(const Place& place, const WorkersArguments& arguments);
int do_explain(const Place& place, const ExplainArguments& arguments);
int do_version();

// The whole program: words without its name.
int run_cli(const std::vector<std::string>& words);

}  // namespace nightshift::cli
