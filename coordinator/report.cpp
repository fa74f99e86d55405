#include "coordinator/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "schema/json.h"

namespace nightshift {

namespace {

constexpr const char* model_metric = "model";
constexpr std::string_view accuracy_prefix = "accuracy.";
constexpr std::string_view perplexity_prefix = "perplexity.";

struct Column {
  const char* name;
  const char* title;
  std::optional<double> Measurement::*field;
};

// The single numbers; tables show them in this order, with the groups behind size.
constexpr std::array columns = {
    Column{"throughput_tok_s", "P tok/s", &Measurement::throughput_tok_s},
    Column{"ttft_ms", "D (TTFT) ms", &Measurement::ttft_ms},
    Column{"tpot_ms", "TPOT ms", &Measurement::tpot_ms},
    Column{"peak_memory_bytes", "peak memory", &Measurement::peak_memory_bytes},
    Column{"size_bytes", "size", &Measurement::size_bytes},
    Column{"token_match", "token match", &Measurement::token_match},
    Column{"ops", "ops", &Measurement::ops},
    Column{"launches", "launches", &Measurement::launches},
};
constexpr std::size_t columns_before_groups = 5;

const Column* find_column(const std::string& name) {
  for (const Column& column : columns) {
    if (name == column.name) return &column;
  }
  return nullptr;
}

bool has_column(const MetricReport& metric) {
  return metric.name == model_metric || metric.name == "accuracy" || metric.name == "perplexity" ||
         (find_column(metric.name) && metric.group.empty());
}

// Fills what is still missing: whoever comes first stands.
void take(Measurement& numbers, const MetricReport& metric) {
  const std::string group = metric.group.empty() ? "all" : metric.group;
  if (metric.name == "accuracy") {
    numbers.accuracy.emplace(group, metric.value);
  } else if (metric.name == "perplexity") {
    numbers.perplexity.emplace(group, metric.value);
  } else if (const Column* column = find_column(metric.name); column && metric.group.empty()) {
    std::optional<double>& field = numbers.*column->field;
    if (!field) field = metric.value;
  }
}

// The model that the stage's checkpoint is: as it says, else the only one that it measured.
std::string model_of(const StageView& stage) {
  std::string said;
  std::set<std::string> measured;
  for (const MetricReport& metric : stage.metrics) {
    if (metric.name == model_metric) said = metric.model;
    else if (!metric.model.empty()) measured.insert(metric.model);
  }
  if (!said.empty()) return said;
  return measured.size() == 1 ? *measured.begin() : "";
}

ReportRow make_row(const JobView& view, const StageView& stage) {
  ReportRow row;
  row.stage = stage.name;
  row.kind = stage.kind;
  row.attempt = stage.attempt;
  row.reused = stage.state == StageState::reused;
  row.model = model_of(stage);
  row.checkpoint_path = stage.checkpoint_path;
  for (const MetricReport& metric : stage.metrics) {
    if (metric.model.empty() || metric.model == row.model) take(row.numbers, metric);
  }
  if (row.model.empty()) return row;
  for (const StageView& other : view.stages) {
    for (const MetricReport& metric : other.metrics) {
      if (metric.model == row.model) take(row.numbers, metric);
    }
  }
  return row;
}

std::optional<std::size_t> find_baseline(const std::vector<ReportRow>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].kind == "baseline") return i;
  }
  return std::nullopt;
}

std::string reason_of(const StageView& stage) {
  if (stage.attempts.empty()) return "";
  const AttemptView& last = stage.attempts.back();
  std::string text = last.outcome ? to_string(*last.outcome) : "";
  if (!last.reason.empty()) text += ": " + last.reason;
  return text.empty() ? "" : " (" + text + ")";
}

bool ended_by_red_line(const StageView& stage) {
  return !stage.attempts.empty() && stage.attempts.back().outcome == Outcome::red_line;
}

struct Judgement {
  Verdict verdict;
  std::string text;
};

Judgement judge_red_lines(const JobReport& report) {
  std::string crossed;
  std::size_t count = 0;
  for (const ReportRedLine& line : report.red_lines) {
    if (line.result.pass) continue;
    ++count;
    crossed += (crossed.empty() ? "" : ", ") + line.result.name;
  }
  if (count > 0) {
    return {Verdict::red_line, fmt::format("{} of {} red lines crossed: {}", count,
                                           report.red_lines.size(), crossed)};
  }
  if (report.red_lines.empty()) return {Verdict::pass, "done; the job has no red lines"};
  return {Verdict::pass, report.red_lines.size() == 1
                             ? std::string("the red line holds")
                             : fmt::format("all {} red lines hold", report.red_lines.size())};
}

Judgement judge(const JobView& view, const JobReport& report) {
  for (const StageView& stage : view.stages) {
    if (stage.state == StageState::failed && !ended_by_red_line(stage)) {
      return {Verdict::failed, fmt::format("stage {} failed{}", stage.name, reason_of(stage))};
    }
  }
  if (view.state == JobState::cancelled) return {Verdict::cancelled, "the job was cancelled"};
  if (view.state == JobState::active) {
    const auto over = std::count_if(view.stages.begin(), view.stages.end(),
                                    [](const StageView& s) { return has_result(s.state); });
    return {Verdict::unfinished,
            fmt::format("the job is not finished: {} of {} stages", over, view.stages.size())};
  }
  Judgement judgement = judge_red_lines(report);
  if (judgement.verdict != Verdict::pass) return judgement;
  for (const StageView& stage : view.stages) {
    if (stage.state != StageState::failed) continue;
    return {Verdict::red_line,
            fmt::format("stage {} crossed a red line{}", stage.name, reason_of(stage))};
  }
  if (view.state == JobState::failed) return {Verdict::failed, "the job failed"};
  return judgement;
}

ReportStage make_stage(const StageView& view) {
  ReportStage stage{view.name, view.kind, view.state, view.reuse_reason, view.attempts, 0};
  for (const AttemptView& attempt : view.attempts) stage.elapsed_ms += attempt.elapsed_ms;
  return stage;
}

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json row_json(const JobReport& report, const ReportRow& row) {
  Json json = {{"stage", row.stage},   {"kind", row.kind},   {"attempt", row.attempt},
               {"reused", row.reused}, {"model", row.model}, {"checkpoint", row.checkpoint_path}};
  for (const Column& column : columns) {
    json[column.name] = number_or_null(row.numbers.*column.field);
  }
  json["accuracy"] = row.numbers.accuracy;
  json["perplexity"] = row.numbers.perplexity;
  Json ratios = Json::object();
  for (const ReportColumn& column : report_columns(report)) {
    if (const auto ratio = column_ratio(report, row, column.key)) ratios[column.key] = *ratio;
  }
  json["ratio"] = std::move(ratios);
  return json;
}

Json stage_json(const ReportStage& stage) {
  Json attempts = Json::array();
  for (const AttemptView& attempt : stage.attempts) {
    attempts.push_back({{"attempt", attempt.attempt},
                        {"worker", attempt.worker},
                        {"outcome", attempt.outcome ? Json(to_string(*attempt.outcome)) : Json()},
                        {"reason", attempt.reason},
                        {"started_ms", attempt.started_ms},
                        {"ended_ms", attempt.ended_ms},
                        {"elapsed_ms", attempt.elapsed_ms}});
  }
  return {{"stage", stage.name},
          {"kind", stage.kind},
          {"outcome", to_string(stage.state)},
          {"reuse_reason", stage.reuse_reason},
          {"attempts", std::move(attempts)},
          {"elapsed_ms", stage.elapsed_ms}};
}

Json red_line_json(const ReportRedLine& line) {
  const RedLineResult& r = line.result;
  return {{"stage", line.stage},       {"name", r.name},         {"limit", r.limit},
          {"limit_value", r.limit_value}, {"measured", r.measured}, {"at_least", r.at_least},
          {"pass", r.pass},            {"detail", r.detail}};
}

Json metric_json(const ReportMetric& item) {
  const MetricReport& m = item.metric;
  return {{"stage", item.stage}, {"name", m.name},   {"value", m.value},
          {"unit", m.unit},      {"group", m.group}, {"model", m.model}};
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// Group names over all rows, "all" last.
std::vector<std::string> groups_of(const JobReport& report,
                                   std::map<std::string, double> Measurement::*field) {
  std::set<std::string> names;
  for (const ReportRow& row : report.rows) {
    for (const auto& [name, value] : row.numbers.*field) names.insert(name);
  }
  std::vector<std::string> sorted(names.begin(), names.end());
  std::stable_partition(sorted.begin(), sorted.end(), [](const auto& n) { return n != "all"; });
  return sorted;
}

}  // namespace

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return "pass";
    case Verdict::red_line: return "red_line";
    case Verdict::failed: return "failed";
    case Verdict::cancelled: return "cancelled";
    case Verdict::unfinished: return "unfinished";
  }
  return "unfinished";
}

int exit_code_of(Verdict verdict) {
  if (verdict == Verdict::pass) return 0;
  return verdict == Verdict::red_line ? 3 : 1;
}

const ReportRow* JobReport::result() const {
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    if (!row->checkpoint_path.empty()) return &*row;
  }
  return nullptr;
}

JobReport make_report(const JobView& view) {
  JobReport report;
  report.job = view.job;
  report.name = view.name;
  report.user = view.user;
  report.model_path = view.model_path;
  report.job_file = view.source_path;
  report.state = view.state;
  report.submitted_ms = view.submitted_ms;
  report.ended_ms = view.ended_ms;
  for (const StageView& stage : view.stages) {
    report.stages.push_back(make_stage(stage));
    if (has_result(stage.state)) report.rows.push_back(make_row(view, stage));
    for (const auto& line : stage.red_lines) report.red_lines.push_back({stage.name, line});
    for (const std::string& note : stage.notes) report.notes.push_back({stage.name, note});
    for (const MetricReport& metric : stage.metrics) {
      if (!has_column(metric)) report.metrics.push_back({stage.name, metric});
    }
  }
  report.baseline = find_baseline(report.rows);
  const Judgement judgement = judge(view, report);
  report.verdict = judgement.verdict;
  report.verdict_text = judgement.text;
  return report;
}

std::vector<ReportColumn> report_columns(const JobReport& report) {
  std::vector<ReportColumn> found;
  auto add_single = [&](const Column& column) {
    const bool filled = std::any_of(report.rows.begin(), report.rows.end(), [&](const auto& row) {
      return (row.numbers.*column.field).has_value();
    });
    if (filled) found.push_back({column.name, column.title});
  };
  for (std::size_t i = 0; i < columns_before_groups; ++i) add_single(columns[i]);
  for (const std::string& group : groups_of(report, &Measurement::accuracy)) {
    found.push_back({std::string(accuracy_prefix) + group, "acc " + group});
  }
  for (const std::string& group : groups_of(report, &Measurement::perplexity)) {
    found.push_back({std::string(perplexity_prefix) + group, "ppl " + group});
  }
  for (std::size_t i = columns_before_groups; i < columns.size(); ++i) add_single(columns[i]);
  return found;
}

std::optional<double> column_value(const ReportRow& row, const std::string& key) {
  if (const Column* column = find_column(key)) return row.numbers.*column->field;
  auto lookup = [&](std::string_view prefix, const std::map<std::string, double>& values)
      -> std::optional<double> {
    const auto it = values.find(key.substr(prefix.size()));
    return it == values.end() ? std::nullopt : std::optional<double>(it->second);
  };
  if (key.starts_with(accuracy_prefix)) return lookup(accuracy_prefix, row.numbers.accuracy);
  if (key.starts_with(perplexity_prefix)) return lookup(perplexity_prefix, row.numbers.perplexity);
  return std::nullopt;
}

std::optional<double> column_ratio(const JobReport& report, const ReportRow& row,
                                   const std::string& key) {
  if (!report.baseline) return std::nullopt;
  const auto value = column_value(row, key);
  const auto base = column_value(report.rows[*report.baseline], key);
  if (!value || !base || *base == 0) return std::nullopt;
  return *value / *base;
}

Json to_json(const JobReport& report) {
  Json json = {{"version", 1},
               {"job", report.job.value},
               {"name", report.name},
               {"user", report.user},
               {"state", to_string(report.state)},
               {"verdict", to_string(report.verdict)},
               {"verdict_text", report.verdict_text},
               {"model_path", report.model_path},
               {"job_file", report.job_file},
               {"submitted_ms", report.submitted_ms},
               {"ended_ms", report.ended_ms}};
  json["baseline"] = report.baseline ? Json(report.rows[*report.baseline].stage) : Json();
  const ReportRow* last = report.result();
  json["result"] = last ? Json{{"stage", last->stage}, {"path", last->checkpoint_path}} : Json();
  for (const char* list : {"checkpoints", "red_lines", "stages", "metrics", "notes"}) {
    json[list] = Json::array();
  }
  for (const ReportRow& row : report.rows) json["checkpoints"].push_back(row_json(report, row));
  for (const auto& line : report.red_lines) json["red_lines"].push_back(red_line_json(line));
  for (const auto& stage : report.stages) json["stages"].push_back(stage_json(stage));
  for (const auto& metric : report.metrics) json["metrics"].push_back(metric_json(metric));
  for (const auto& note : report.notes) {
    json["notes"].push_back({{"stage", note.stage}, {"text", note.text}});
  }
  return json;
}

std::string to_csv(const JobReport& report) {
  const std::vector<ReportColumn> found = report_columns(report);
  std::string text = "job,stage,kind,attempt,reused,model,checkpoint";
  for (const ReportColumn& column : found) text += "," + csv_field(column.key);
  text += "\r\n";
  for (const ReportRow& row : report.rows) {
    text += fmt::format("{},{},{},{},{},{},{}", report.job.value, csv_field(row.stage),
                        csv_field(row.kind), row.attempt, row.reused ? "true" : "false",
                        csv_field(row.model), csv_field(row.checkpoint_path));
    for (const ReportColumn& column : found) {
      const auto value = column_value(row, column.key);
      text += "," + (value ? fmt::format("{}", *value) : "");
    }
    text += "\r\n";
  }
  return text;
}

}  // namespace nightshift
