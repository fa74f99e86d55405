#include "coordinator/job_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "coordinator/job_file_keys.h"
#include "coordinator/job_file_stages.h"
#include "schema/text.h"

namespace nightshift {
namespace {

constexpr std::size_t job_name_bytes_max = 128;

void read_name(const YamlMap& map, JobSpec& spec) {
  if (!map.has("name")) return map.problem("name", "is missing", "name: my-job");
  if (map.text("name", spec.name) && !is_name(spec.name, job_name_bytes_max)) {
    map.problem("name",
                fmt::format("is not a name: 1 to {} bytes in one line, no control characters",
                            job_name_bytes_max));
  }
}

void read_model(const YamlMap& map, JobSpec& spec, const JobFileContext& context) {
  const YamlNode* node = map.node("model");
  if (!node) return map.problem("model", "is missing", "model: {path: FOLDER}");
  const YamlMap model(*node, "model", job_file_keys("model"), context.problems);
  if (node->kind == YamlNode::Kind::scalar || node->kind == YamlNode::Kind::list) return;
  if (!model.has("path")) return model.problem("path", "is missing", "a Hugging Face folder");
  context.path(model, "path", spec.model_path);
}

void read_job(const YamlMap& map, JobSpec& spec, const JobFileContext& context) {
  YamlProblems& problems = context.problems;
  read_name(map, spec);
  read_model(map, spec, context);
  read_night(map, spec.night, problems);
  read_bench(map, spec.bench, problems);
  read_red_lines(map, spec.red_lines, problems);
  read_watchdog(map, spec.watchdog, problems);
  read_retry(map, spec.retry, problems);
  read_resources(map, spec.resources, context);
  read_notify(map, spec.notify, problems);
  map.whole("priority", spec.priority, -1000, 1000);
  const std::vector<StageDraft> drafts = read_stages(map, spec, context);
  if (drafts.empty()) return;
  spec.stages = order_stages(drafts, problems);
  // A circle would make "comes before" meaningless.
  if (!spec.stages.empty())
    check_measurable(drafts, spec.red_lines, map.place("red_lines"), problems);
}

}  // namespace

JobFileResult parse_job_file(const std::string& text, const std::string& path) {
  JobFileResult result;
  if (text.size() > job_file_bytes_max) {
    result.errors.push_back({ErrorCode::invalid_argument,
                             fmt::format("the job file has {} bytes, the most is {}", text.size(),
                                         job_file_bytes_max),
                             path, ""});
    return result;
  }
  YamlDocument document = parse_yaml(text);
  YamlProblems problems;
  for (YamlProblem& problem : document.problems) {
    problems.add(problem.place, std::move(problem.what), std::move(problem.hint));
  }
  JobSpec spec;
  if (document.root && document.root->kind != YamlNode::Kind::map) {
    problems.add(document.root->place,
                 "expected a job (a map of name, model, stages ...), found " +
                     kind_text(*document.root));
  } else if (document.root) {
    std::error_code failed;
    std::filesystem::path absolute = std::filesystem::absolute(path, failed).lexically_normal();
    if (failed) absolute = path;
    spec.source_path = absolute.string();
    const JobFileContext context{absolute.parent_path().string(), problems};
    read_job(YamlMap(*document.root, "", job_file_keys("job"), problems), spec, context);
  }
  result.errors = problems.errors(path);
  result.warnings = problems.warnings(path);
  if (result.errors.empty()) result.spec = std::move(spec);
  return result;
}

}  // namespace nightshift
