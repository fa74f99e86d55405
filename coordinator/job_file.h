// The job file (YAML) as a JobSpec. Knows the file's words and units; must not know the plan, the
// store or sockets. schema/job.schema.json describes the same file for editors.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "schema/job_spec.h"
#include "schema/result.h"

namespace nightshift {

// A job file is some kilobytes; it also travels inside one message when it is submitted.
inline constexpr std::size_t job_file_bytes_max = 4u << 20;

struct JobFileResult {
  std::optional<JobSpec> spec;            // none when there are errors
  std::vector<Error> errors;              // all at once, `where` is path:line:column
  std::vector<std::string> warnings;      // one line each, with the place
};

// Opens nothing. Relative paths in the file belong to the folder of `path`; in the spec all paths
// are absolute, units are resolved, defaults are filled in, and stages stand after what they need.
JobFileResult parse_job_file(const std::string& text, const std::string& path);

// At most job_file_bytes_max; the message of a larger file has both numbers.
Result<std::string> read_job_file(const std::string& path);

// What can be known before anything starts: the model folder with its config.json, the data files,
// the time zone. Empty: all is there.
std::vector<Error> check_job_files(const JobSpec& spec);

// Fills model_digest and input_digests with content hashes. Reads every file once.
Status digest_inputs(JobSpec& spec);

}  // namespace nightshift
