// The command line as structs. Knows every option and its wording; must not know what a command
// does (commands.h). CLI11 is known to its source alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace nightshift::cli {

inline constexpr const char* version_text = "nightshift 0.1.0";

// Where the coordinator is. Options of every command, before or behind its name.
struct Place {
  std::string home;            // --home; empty: $NIGHTSHIFT_HOME, ~/.nightshift
  std::string access;          // --access: a coordinator elsewhere; empty: the one of the home
};

struct WorkerChoice {          // for the local worker of `run` and `resume`
  int slots = 1;
  std::string stage_program;
};

struct RunArguments {
  std::string job_file;
  WorkerChoice worker;
};
struct CoordinatorArguments {
  std::string listen;
  int parent_fd = -1;
};
struct SubmitArguments {
  std::string job_file;
};
struct StatusArguments {
  std::string job;             // empty: all jobs
  bool watch = false;
  bool json = false;
  bool all = false;            // every stage of a large matrix
};
struct LogsArguments {
  std::string job;
  std::string stage;           // empty: the one that tells most
  int attempt = 0;             // 0: the last
  bool follow = false;
  std::int64_t tail_bytes = -1;   // -1: all
};
struct ResumeArguments {
  std::string job;
  bool plan = false;
  std::string from;
  std::string job_file;        // changed parameters
  WorkerChoice worker;
};
struct CancelArguments {
  std::string job;
  std::string stage;           // empty: the whole job
};
struct ReportArguments {
  std::string job;
  bool json = false;
  bool csv = false;
  std::string out;             // folder for report.json and report.csv
};
struct CheckArguments {
  std::vector<std::string> job_files;
  bool all = false;
};
struct WorkersArguments {
  bool json = false;
};
struct ExplainArguments {
  std::string job;
  std::string stage;
};
struct VersionArguments {};

using CommandArguments =
    std::variant<RunArguments, CoordinatorArguments, SubmitArguments, StatusArguments,
                 LogsArguments, ResumeArguments, CancelArguments, ReportArguments, CheckArguments,
                 WorkersArguments, ExplainArguments, VersionArguments>;

struct Arguments {
  Place place;
  CommandArguments command;
};

// Either arguments, or what to print and to exit with (help: 0 on stdout; a mistake: 2 on stderr).
struct ParsedArguments {
  std::optional<Arguments> arguments;
  int exit_code = 0;
  std::string text;
};

// Without the program's name.
ParsedArguments parse_arguments(const std::vector<std::string>& words);

}  // namespace nightshift::cli
