// Short job files for the tests of the parser. Knows coordinator/job_file.h only.
#pragma once

#include <string>

#include "coordinator/job_file.h"

namespace nightshift::test {

// A job of two lines that is complete; `more` is put behind them, at the top level.
std::string job_text(const std::string& more = "", const std::string& stages = "{baseline: {}}");
// As /jobs/j.yaml.
JobFileResult parse(const std::string& text);
// Every error on a line of its own: "j.yaml:3:1: what (hint)".
std::string errors_of(const std::string& text);
// The first error has this place, and its line this part.
bool fails_at(const std::string& text, const std::string& place, const std::string& part);
// The params of the stage, as JSON text.
std::string params_of(const JobSpec& spec, const std::string& stage);
const StageSpec& stage_of(const JobSpec& spec, const std::string& stage);
// Tests run in the repository's root.
std::string repository_root();
std::string file_text(const std::string& path);

}  // namespace nightshift::test
