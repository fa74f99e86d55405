// What commands share: finding the coordinator, reading job files, saying what went wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coordinator/cli/arguments.h"
#include "coordinator/client.h"
#include "coordinator/home.h"
#include "coordinator/report.h"
#include "schema/job_spec.h"
#include "schema/job_view.h"
#include "schema/json_fwd.h"
#include "schema/result.h"

namespace nightshift::cli {

inline constexpr int exit_ok = 0;
inline constexpr int exit_failed = 1;
inline constexpr int exit_interrupted = 130;

// "nightshift: error: ..." on stderr; returns exit_failed.
int fail(const Error& error);
void warn(std::string_view text);      // "nightshift: warning: ..."
void say(std::string_view line);       // stdout, flushed
void say(const std::vector<std::string>& lines);

// The coordinator of --access, else of the home. `unavailable` when that home has none running.
Result<Client> open_client(const Place& place, ClientOptions options = {});
// Not when --access is given.
Result<bool> is_coordinator_running(const Place& place);

struct LoadedJob {
  JobSpec spec;
  std::string text;                    // the file as written
};
// Reads, parses and checks without touching inputs' content. Prints every error; false when there
// were some.
bool check_job(const std::string& path, LoadedJob& job);
// check_job, and content hashes of all inputs. Prints what is wrong.
bool load_job(const std::string& path, LoadedJob& job);

std::string user_name();
// For people to copy: "nightshift resume 3 --home DIR".
std::string resume_command(const Place& place, JobId job);

Result<JobView> ask_job(Client& client, const std::string& job);
Result<JobView> job_view_from_answer(const Json& answer);
// A job's own words on the command line.
Json job_argument(const std::string& job);

// Writes report.json and report.csv into `folder`; gives the path of report.json.
Result<std::string> write_report(const JobReport& report, const std::string& folder);

}  // namespace nightshift::cli
