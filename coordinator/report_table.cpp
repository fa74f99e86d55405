#include "coordinator/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "coordinator/terminal.h"

namespace nightshift {

namespace {

constexpr std::size_t name_columns_max = 28;
constexpr std::size_t gap = 3;                  // spaces between columns
constexpr std::size_t values_shown = 8;
constexpr std::size_t notes_alike_max = 8;      // of one stage with the same beginning

bool is_bytes(const std::string& name) { return name.ends_with("_bytes"); }
bool is_share(const std::string& name) {
  return name == "token_match" || name == "share" || name == "accuracy" ||
         name == "accuracy_standard_error" || name.starts_with("accuracy.") ||
         name.starts_with("accuracy_drop");
}

// One column of a table: value and ratio are aligned each for itself.
struct TableColumn {
  std::string title;
  std::vector<std::string> values;
  std::vector<std::string> ratios;
  std::size_t value_columns = 0;
  std::size_t ratio_columns = 0;

  void measure() {
    for (const auto& text : values) value_columns = std::max(value_columns, display_width(text));
    for (const auto& text : ratios) ratio_columns = std::max(ratio_columns, display_width(text));
    if (display_width(title) > width()) value_columns += display_width(title) - width();
  }
  std::size_t width() const { return value_columns + (ratio_columns > 0 ? 1 + ratio_columns : 0); }
  std::string cell(std::size_t row) const {
    std::string text = pad_left(values[row], value_columns);
    if (ratio_columns > 0) text += " " + pad_left(ratios[row], ratio_columns);
    return text;
  }
};

// Accuracy is held against the baseline in percent, as its red line is; the others as a factor.
std::string format_ratio(const std::string& key, double ratio) {
  if (key.starts_with("accuracy.")) return fmt::format("{:+.1f}%", (ratio - 1) * 100);
  return fmt::format("{:.2f}x", ratio);
}

TableColumn make_column(const JobReport& report, const ReportColumn& column) {
  TableColumn made;
  made.title = printable(column.title);
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const ReportRow& row = report.rows[i];
    const auto value = column_value(row, column.key);
    made.values.push_back(value ? format_measure(column.key, *value) : "-");
    // token_match is against the baseline already.
    const bool has_ratio = i != report.baseline && column.key != "token_match";
    const auto ratio = has_ratio ? column_ratio(report, row, column.key) : std::nullopt;
    made.ratios.push_back(ratio ? format_ratio(column.key, *ratio) : "");
  }
  made.measure();
  return made;
}

std::string trimmed(std::string line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

void checkpoint_tables(const JobReport& report, const ReportStyle& style,
                       std::vector<std::string>& out) {
  if (report.rows.empty()) return;
  std::vector<std::string> names;
  std::size_t name_columns = display_width("checkpoint");
  for (const ReportRow& row : report.rows) {
    names.push_back(printable(row.stage) + (row.reused ? " (reused)" : ""));
    name_columns = std::max(name_columns, std::min(name_columns_max, display_width(names.back())));
  }
  std::vector<TableColumn> columns;
  for (const ReportColumn& column : report_columns(report)) {
    columns.push_back(make_column(report, column));
  }
  std::size_t begin = 0;
  do {
    std::size_t end = begin;
    std::size_t used = name_columns;
    while (end < columns.size() &&
           (end == begin || used + gap + columns[end].width() <= style.columns)) {
      used += gap + columns[end++].width();
    }
    out.push_back("");
    std::string head = pad_right("checkpoint", name_columns);
    for (std::size_t c = begin; c < end; ++c) {
      head += std::string(gap, ' ') + pad_left(columns[c].title, columns[c].width());
    }
    out.push_back(coloured(trimmed(head), Colour::bold, style.colour));
    for (std::size_t row = 0; row < names.size(); ++row) {
      std::string line = pad_right(names[row], name_columns);
      for (std::size_t c = begin; c < end; ++c) {
        line += std::string(gap, ' ') + columns[c].cell(row);
      }
      out.push_back(trimmed(line));
    }
    begin = end;
  } while (begin < columns.size());
}

std::string unit_of(const std::string& name) {
  if (name.ends_with("_tok_s")) return " tok/s";
  return name.ends_with("_ms") ? " ms" : "";
}

void red_line_table(const JobReport& report, const ReportStyle& style,
                    std::vector<std::string>& out) {
  if (report.red_lines.empty()) return;
  out.push_back("");
  out.push_back(coloured("red lines", Colour::bold, style.colour));
  std::size_t name_columns = 0;
  for (const auto& line : report.red_lines) {
    name_columns = std::max(name_columns, display_width(line.result.name));
  }
  for (const auto& [stage, r] : report.red_lines) {
    const std::string unit = unit_of(r.name);
    std::string text = fmt::format(
        "  {} {}  {}{} {} {}{}",
        coloured(r.pass ? "pass  " : "BREACH", r.pass ? Colour::green : Colour::red, style.colour),
        pad_right(printable(r.name), name_columns), format_measure(r.name, r.measured), unit,
        r.at_least ? ">=" : "<=", format_measure(r.name, r.limit_value), unit);
    if (r.limit.ends_with('x')) text += " (" + printable(r.limit) + " the baseline)";
    text += ", " + printable(stage);
    if (!r.pass && !r.detail.empty()) text += ": " + printable(r.detail);
    out.push_back(clip_to_width(text, style.columns));
  }
}

void stage_table(const JobReport& report, const ReportStyle& style, std::vector<std::string>& out) {
  out.push_back("");
  out.push_back(coloured("stages", Colour::bold, style.colour));
  std::size_t name_columns = 0;
  for (const ReportStage& stage : report.stages) {
    name_columns = std::max(name_columns, std::min(name_columns_max, display_width(stage.name)));
  }
  for (const ReportStage& stage : report.stages) {
    const std::string took = stage.attempts.empty() ? "-" : format_clock(stage.elapsed_ms);
    std::string line = fmt::format("  {}  {}  {}", pad_right(printable(stage.name), name_columns),
                                   pad_right(to_string(stage.state), 9), pad_left(took, 7));
    if (stage.state == StageState::reused) line += "  " + printable(stage.reuse_reason);
    for (const AttemptView& attempt : stage.attempts) {
      if (!attempt.outcome || *attempt.outcome == Outcome::ok) continue;
      line += fmt::format("  #{} {}{}", attempt.attempt, to_string(*attempt.outcome),
                          attempt.reason.empty() ? "" : ": " + printable(attempt.reason));
    }
    out.push_back(clip_to_width(line, style.columns));
  }
}

// "name  group value  group value ..." wrapped to the width.
void wrapped(const std::string& head, const std::vector<std::string>& parts, std::size_t columns,
             std::vector<std::string>& out) {
  std::string line = head;
  for (const std::string& part : parts) {
    if (line != head && display_width(line) + 2 + display_width(part) > columns) {
      out.push_back(clip_to_width(line, columns));
      line = std::string(display_width(head), ' ');
    }
    line += "  " + part;
  }
  out.push_back(clip_to_width(line, columns));
}

std::string metric_part(const MetricReport& metric) {
  std::string unit = metric.unit;
  std::string value = format_measure(metric.name, metric.value);
  if (metric.unit == "bytes" || is_bytes(metric.name)) {
    value = format_bytes(metric.value);
    unit.clear();
  }
  if (is_share(metric.name)) unit.clear();
  std::string text = metric.group.empty() ? value : metric.group + " " + value;
  if (!unit.empty()) text += " " + unit;
  return printable(text);
}

void metric_lists(const JobReport& report, const ReportStyle& style,
                  std::vector<std::string>& out) {
  if (report.metrics.empty()) return;
  out.push_back("");
  out.push_back(coloured("further measurements", Colour::bold, style.colour));
  // stage and name, in order of appearance
  std::vector<std::pair<std::string, std::string>> order;
  std::map<std::pair<std::string, std::string>, std::vector<MetricReport>> lists;
  for (const ReportMetric& item : report.metrics) {
    const auto key = std::make_pair(item.stage, item.metric.name);
    if (lists.find(key) == lists.end()) order.push_back(key);
    lists[key].push_back(item.metric);
  }
  for (const auto& key : order) {
    std::vector<MetricReport>& metrics = lists[key];
    const std::size_t all = metrics.size();
    // A list by layer or expert is long: the largest are what one looks for; report.json has all.
    if (all > values_shown) {
      std::stable_sort(metrics.begin(), metrics.end(),
                       [](const auto& a, const auto& b) { return a.value > b.value; });
      metrics.resize(values_shown);
    }
    std::vector<std::string> parts;
    for (const MetricReport& metric : metrics) parts.push_back(metric_part(metric));
    if (all > metrics.size()) {
      parts.push_back(fmt::format("(largest {} of {})", metrics.size(), all));
    }
    wrapped("  " + printable(key.first) + " " + printable(key.second), parts, style.columns, out);
  }
}

// "plan: layers.0 ..." -> "plan"; the whole text when it has no such beginning.
std::string beginning_of(const std::string& note) { return note.substr(0, note.find(':')); }

// Notes of one kind that are many (a plan says one for each layer) are counted, the rest are shown.
void note_list(const JobReport& report, const ReportStyle& style, std::vector<std::string>& out) {
  if (report.notes.empty()) return;
  out.push_back("");
  out.push_back(coloured("notes", Colour::bold, style.colour));
  std::map<std::pair<std::string, std::string>, std::size_t> counts;
  for (const ReportNote& note : report.notes) ++counts[{note.stage, beginning_of(note.text)}];
  for (const ReportNote& note : report.notes) {
    std::size_t& count = counts[{note.stage, beginning_of(note.text)}];
    if (count == 0) continue;   // said
    std::string text = note.text;
    if (count > notes_alike_max) {
      text = fmt::format("{}: {} notes, see report.json", beginning_of(note.text), count);
      count = 0;
    }
    out.push_back("  " + printable(note.stage) + ": " + printable(text));
  }
}

}  // namespace

std::string format_measure(const std::string& name, double value) {
  if (is_bytes(name) || name == "peak_memory") return format_bytes(value);
  if (is_share(name)) return fmt::format("{:.1f}%", value * 100);
  return format_number(value);
}

std::vector<std::string> render_report(const JobReport& report, const ReportStyle& style) {
  const Colour colour = report.verdict == Verdict::pass         ? Colour::green
                        : report.verdict == Verdict::unfinished ? Colour::yellow
                                                                : Colour::red;
  std::vector<std::string> out;
  out.push_back(fmt::format("{} (job {}): {}", printable(report.name), report.job.value,
                            coloured(printable(report.verdict_text), colour, style.colour)));
  if (const ReportRow* last = report.result()) {
    out.push_back(fmt::format("checkpoint of {}: {}", printable(last->stage),
                              printable(last->checkpoint_path)));
  }
  checkpoint_tables(report, style, out);
  red_line_table(report, style, out);
  stage_table(report, style, out);
  metric_lists(report, style, out);
  note_list(report, style, out);
  return out;
}

}  // namespace nightshift
