#include "coordinator/cli/session.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdio>

#include "coordinator/job_file.h"
#include "coordinator/terminal.h"
#include "schema/access.h"
#include "schema/json.h"

namespace nightshift::cli {

namespace {

void complain(const char* kind, std::string_view text) {
  const std::string line = fmt::format("nightshift: {}: {}\n", kind, printable(text));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

int fail(const Error& error) {
  complain("error", error.line());
  return exit_failed;
}

void warn(std::string_view text) { complain("warning", text); }

void say(std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

void say(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) say(line);
}

Result<bool> is_coordinator_running(const Place& place) {
  NS_TRY_ASSIGN(const Home home, Home::locate(place.home));
  return coordinator_pid(home).has_value();
}

Result<Client> open_client(const Place& place, ClientOptions options) {
  if (!place.access.empty()) {
    NS_TRY_ASSIGN(Access access, read_access(place.access));
    return Client::open(std::move(access), options);
  }
  NS_TRY_ASSIGN(const Home home, Home::locate(place.home));
  if (!coordinator_pid(home)) return no_coordinator(home.root());
  NS_TRY_ASSIGN(Access access, read_access(home.access_file()));
  return Client::open(std::move(access), options);
}

bool check_job(const std::string& path, LoadedJob& job) {
  Result<std::string> text = read_job_file(path);
  if (!text.ok()) return fail(text.error()) == exit_ok;
  JobFileResult parsed = parse_job_file(*text, path);
  for (const std::string& warning : parsed.warnings) warn(warning);
  for (const Error& error : parsed.errors) fail(error);
  if (!parsed.errors.empty() || !parsed.spec) return false;
  const std::vector<Error> missing = check_job_files(*parsed.spec);
  for (const Error& error : missing) fail(error);
  job.spec = std::move(*parsed.spec);
  job.text = std::move(*text);
  return missing.empty();
}

bool load_job(const std::string& path, LoadedJob& job) {
  if (!check_job(path, job)) return false;
  if (const Status digested = digest_inputs(job.spec); !digested.ok()) {
    return fail(digested.error()) == exit_ok;
  }
  return true;
}

std::string user_name() {
  if (const passwd* entry = ::getpwuid(::geteuid()); entry && entry->pw_name) return entry->pw_name;
  return fmt::format("uid-{}", ::geteuid());
}

std::string resume_command(const Place& place, JobId job) {
  std::string text = fmt::format("nightshift resume {}", job.value);
  const std::pair<const char*, std::string> options[] = {{"--home", place.home},
                                                         {"--access", place.access}};
  for (const auto& [option, value] : options) {
    if (value.empty()) continue;
    const bool is_plain = value.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuv"
                                                  "wxyz0123456789_./-+=:@") == std::string::npos;
    text += fmt::format(" {} {}", option, is_plain ? value : "'" + value + "'");
  }
  return text;
}

Json job_argument(const std::string& job) { return Json{{"job", job}}; }

Result<JobView> ask_job(Client& client, const std::string& job) {
  NS_TRY_ASSIGN(const Json answer, client.ask("status", job_argument(job)));
  return job_view_from_answer(answer);
}

Result<JobView> job_view_from_answer(const Json& answer) {
  const JsonReader reader(answer, "reply to status");
  NS_TRY_ASSIGN(const Json* view, reader.object("job"));
  return job_view_from_json(*view);
}

Result<std::string> write_report(const JobReport& report, const std::string& folder) {
  NS_TRY(make_folders(folder, 0755));
  NS_TRY(write_file(folder + "/report.csv", to_csv(report), 0644));
  const std::string path = folder + "/report.json";
  NS_TRY(write_file(path, dump_json_pretty(to_json(report)), 0644));
  return path;
}

}  // namespace nightshift::cli
