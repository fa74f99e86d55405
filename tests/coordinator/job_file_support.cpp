#include "tests/coordinator/job_file_support.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace nightshift::test {

std::string job_text(const std::string& more, const std::string& stages) {
  return "{name: j, model: {path: m}, stages: " + stages + (more.empty() ? "" : ", " + more) + "}";
}

JobFileResult parse(const std::string& text) { return parse_job_file(text, "/jobs/j.yaml"); }

std::string errors_of(const std::string& text) {
  std::string lines;
  for (const Error& error : parse(text).errors) lines += error.line().substr(6) + "\n";
  return lines;
}

bool fails_at(const std::string& text, const std::string& place, const std::string& part) {
  const JobFileResult result = parse(text);
  if (result.spec || result.errors.empty()) return false;
  const Error& error = result.errors.front();
  return error.where == "/jobs/j.yaml:" + place && error.line().find(part) != std::string::npos;
}

const StageSpec& stage_of(const JobSpec& spec, const std::string& stage) {
  for (const StageSpec& one : spec.stages) {
    if (one.name == stage) return one;
  }
  throw std::runtime_error("no stage " + stage);
}

std::string params_of(const JobSpec& spec, const std::string& stage) {
  return stage_of(spec, stage).params_json;
}

std::string repository_root() {
  return std::filesystem::current_path().string();
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace nightshift::test
