// Any bytes as a job file: either a job, or errors that say where. What is accepted can be sent:
// its JSON is read back as the same job.
#include <string>

#include "coordinator/job_file.h"
#include "schema/job_spec.h"
#include "tests/fuzz/require.h"

using namespace nightshift;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const JobFileResult result = parse_job_file(text, "/jobs/fuzz.yaml");
  require(result.spec.has_value() == result.errors.empty(), "a job and errors, or neither", text);
  for (const Error& error : result.errors) {
    require(!error.what.empty(), "an error without words", text);
    require(error.where.starts_with("/jobs/fuzz.yaml"), "an error without a place", error.line());
    require(error.line().find('\n') == std::string::npos, "an error of two lines", error.line());
  }
  if (!result.spec) return 0;
  const std::string json = to_json_text(*result.spec);
  const Result<JobSpec> again = job_spec_from_json(json, "fuzz");
  require(again.ok(), "an accepted job that cannot be submitted",
          again.ok() ? "" : again.error().line());
  require(to_json_text(*again) == json, "a job that changes on its way", json);
  return 0;
}
