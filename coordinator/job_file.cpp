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

void read_job(const YamlMap& map, JobSpec& spec, const JobFileContext& context) {
  YamlProblems& problems = context.problems;
  read_name(map, spec);
  read_model(map, spec.model_path, context);
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
  const std::optional<DraftNeeds> needs = resolve_needs(drafts, problems);
  if (!needs) return;
  const std::vector<std::uint32_t> order = order_stages(drafts, *needs, problems);
  if (order.empty()) return;  // in a circle nothing comes before anything
  check_measurable(drafts, *needs, order, spec, map.place("red_lines"), problems);
  spec.stages.reserve(order.size());
  for (const std::uint32_t at : order) {
    StageSpec& stage = spec.stages.emplace_back(drafts[at].spec);
    for (const std::uint32_t need : (*needs)[at]) stage.needs.push_back(drafts[need].spec.name);
  }
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
