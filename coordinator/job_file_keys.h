// The words of a job file: its keys by section and the kinds of stages. Knows words only; the
// parser reads no key that is not here, and schema/job.schema.json is held against it by a test.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace nightshift {

// "job" is the top level, "stage" what every stage may have, "calibrate" ... what that kind adds.
const std::map<std::string, std::vector<std::string>>& job_file_sections();
const std::vector<std::string>& job_file_keys(const std::string& section);
// The keys of "stage" and of `kind`.
std::vector<std::string> stage_keys_of(const std::string& kind);

// baseline, calibrate, quantize, fuse, evaluate, soak, run.
const std::vector<std::string>& stage_kinds();
// Kinds that a job file may come to name, which this version cannot run.
const std::vector<std::string>& unbuilt_stage_kinds();
// The kind that usually comes before `kind`; empty for baseline and run.
std::string usual_need_of(const std::string& kind);

}  // namespace nightshift
