// The content key of a stage: equal keys mean that an earlier result can be taken. Knows specs and
// hashes; reads no files (digests were made when submitting).
//
// In the key: the kind and its version, its parameters, the content of its inputs and of the model,
// the keys of the stages that it needs; `bench` for kinds that measure speed (baseline, quantize,
// fuse, evaluate, soak); the red lines for kinds that judge (evaluate, soak); command and
// environment for `run`. Not in the key: names of jobs, places of files, resources, limits, retries
// -- none of them changes what comes out. Paths inside the parameters are replaced by the digest of
// what they name.
#pragma once

#include <map>
#include <string>

#include "schema/job_spec.h"

namespace nightshift {

// `keys_of_needs`: stage name -> key, for the stage's direct needs.
std::string stage_key(const JobSpec& job, const StageSpec& stage,
                      const std::map<std::string, std::string>& keys_of_needs);

// The keys of all stages, in the order of the spec.
std::vector<std::string> stage_keys(const JobSpec& job);

// Their numbers depend on the device: reused only where a worker of the same device class is.
bool is_measuring_kind(const std::string& kind);

// What differs between two specs of one stage, for people: "percentile 99.9 -> 99.5"; empty when
// nothing of its own does.
std::string describe_difference(const JobSpec& old_job, const StageSpec& old_stage,
                                const JobSpec& new_job, const StageSpec& new_stage);

}  // namespace nightshift
