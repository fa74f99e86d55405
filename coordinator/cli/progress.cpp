#include "coordinator/cli/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/cli/stage_groups.h"
#include "coordinator/terminal.h"

namespace nightshift::cli {

namespace {

constexpr std::size_t name_columns_max = 24;
constexpr std::size_t bar_columns = 12;
constexpr std::size_t columns_for_a_bar = 80;
constexpr std::size_t notes_at_once_max = 5;

struct Look {
  const char* symbol;
  Colour colour;
};

Look look_of(StageState state) {
  switch (state) {
    case StageState::waiting: return {"·", Colour::dim};
    case StageState::ready: return {"○", Colour::none};
    case StageState::assigned: return {"▷", Colour::blue};
    case StageState::running: return {"▶", Colour::blue};
    case StageState::done: return {"✓", Colour::green};
    case StageState::failed: return {"✗", Colour::red};
    case StageState::cancelled: return {"⊘", Colour::yellow};
    case StageState::blocked: return {"⊘", Colour::dim};
    case StageState::reused: return {"=", Colour::green};
  }
  return {"?", Colour::none};
}

std::string bar(const ProgressReport& progress, std::size_t columns) {
  const double share = std::clamp(static_cast<double>(progress.done) /
                                      static_cast<double>(std::max<std::int64_t>(progress.of, 1)),
                                  0.0, 1.0);
  const auto full = static_cast<std::size_t>(share * static_cast<double>(columns));
  std::string text = "[";
  for (std::size_t i = 0; i < columns; ++i) text += i < full ? "█" : "░";
  return text + "]";
}

std::int64_t elapsed_ms(const StageView& stage) {
  if (stage.pulse && is_active(stage.state)) return stage.pulse->elapsed_ms + stage.pulse_age_ms;
  return stage.attempts.empty() ? 0 : stage.attempts.back().elapsed_ms;
}

void append(std::string& text, const std::string& part) {
  if (part.empty()) return;
  if (!text.empty()) text += "  ";
  text += part;
}

// What a running attempt says of itself, without the bar.
std::string pulse_text(const StageView& stage) {
  if (!stage.pulse) return "starting";
  const AttemptPulse& pulse = *stage.pulse;
  std::string text = progress_text(pulse);
  if (pulse.progress && pulse.progress->rate > 0) {
    append(text, format_number(pulse.progress->rate) + " " + printable(pulse.progress->rate_unit));
  }
  append(text, printable(pulse.phase));
  append(text, format_clock(elapsed_ms(stage)));
  if (pulse.memory_bytes > 0) append(text, format_bytes(static_cast<double>(pulse.memory_bytes)));
  return text;
}

std::string reason_of_last(const StageView& stage) {
  if (stage.attempts.empty()) return "";
  const AttemptView& last = stage.attempts.back();
  std::string text = last.outcome ? to_string(*last.outcome) : "";
  if (!last.reason.empty()) text += (text.empty() ? "" : ": ") + last.reason;
  return printable(text);
}

std::string details(const StageView& stage, std::size_t columns) {
  switch (stage.state) {
    case StageState::running: {
      const bool has_bar = columns >= columns_for_a_bar && stage.pulse && stage.pulse->progress &&
                           stage.pulse->progress->of > 0;
      return (has_bar ? bar(*stage.pulse->progress, bar_columns) + " " : "") + pulse_text(stage);
    }
    case StageState::assigned: return "on " + printable(stage.worker);
    case StageState::done: return format_clock(elapsed_ms(stage));
    case StageState::failed: return reason_of_last(stage);
    case StageState::reused: return printable(stage.reuse_reason);
    default: return printable(stage.waiting_reason);
  }
}

std::string stage_line(const StageView& stage, std::size_t name_columns,
                       const ProgressStyle& style) {
  const Look look = look_of(stage.state);
  const std::string attempt = stage.attempt > 0 ? fmt::format("#{}", stage.attempt) : "";
  const std::string line =
      fmt::format("  {} {} {} {} {}", coloured(look.symbol, look.colour, style.colour),
                  pad_right(printable(stage.name), name_columns), pad_right(attempt, 3),
                  coloured(pad_right(to_string(stage.state), 9), look.colour, style.colour),
                  details(stage, style.columns));
  return clip_to_width(line, style.columns);
}

std::string group_line(const JobView& view, const StageRow& row, std::size_t name_columns,
                       const ProgressStyle& style) {
  const std::string line =
      fmt::format("  {} {} {} stages: {}", coloured("⋮", Colour::bold, style.colour),
                  pad_right(printable(row.group), name_columns), row.members.size(),
                  state_counts(view, row));
  return clip_to_width(line, style.columns);
}

std::string headline(const JobView& view, std::int64_t wall_ms, const ProgressStyle& style) {
  const auto finished = std::count_if(view.stages.begin(), view.stages.end(),
                                      [](const StageView& s) { return has_result(s.state); });
  const std::int64_t until = view.ended_ms > 0 ? view.ended_ms : wall_ms;
  const Colour colour = view.state == JobState::failed      ? Colour::red
                        : view.state == JobState::done      ? Colour::green
                        : view.state == JobState::cancelled ? Colour::yellow
                                                            : Colour::bold;
  const std::string line = fmt::format(
      "job {} {}  {}  {} of {} stages  {}", view.job.value, printable(view.name),
      coloured(to_string(view.state), colour, style.colour), finished, view.stages.size(),
      view.submitted_ms > 0 ? format_clock(until - view.submitted_ms) : "");
  return clip_to_width(line, style.columns);
}

// A line that may be shown: of a stage, or of a large group.
struct Line {
  const StageRow* row;
  std::size_t stage;
  bool is_group = false;
  std::size_t stages_told = 1;      // how many nobody sees when it is left out
  int rank = 0;                     // the lowest stay when there is little room
};

int rank_of(StageState state) {
  if (is_active(state)) return 0;
  if (state == StageState::failed) return 1;
  return is_final(state) ? 3 : 2;
}

std::vector<Line> lines_of(const JobView& view, const std::vector<StageRow>& rows) {
  std::vector<Line> lines;
  for (const StageRow& row : rows) {
    if (row.group.empty()) {
      const std::size_t stage = row.members[0];
      lines.push_back({&row, stage, false, 1, rank_of(view.stages[stage].state)});
      continue;
    }
    int rank = 3;
    for (const std::size_t member : row.members) {
      rank = std::min(rank, rank_of(view.stages[member].state));
    }
    lines.push_back({&row, row.members[0], true, row.members.size(), rank});
    for (const std::size_t member : telling_members(view, row)) {
      // Its group's line counts it.
      lines.push_back({&row, member, false, 0, rank_of(view.stages[member].state)});
    }
  }
  return lines;
}

// Which lines fit: what runs or went wrong first, then what comes next, then what is over.
std::vector<bool> choose(const std::vector<Line>& lines, std::size_t lines_max) {
  const bool all_fit = lines_max == 0 || lines.size() + 1 <= lines_max;
  std::vector<bool> shown(lines.size(), all_fit);
  if (shown.empty() || shown[0]) return shown;
  std::size_t left = lines_max > 2 ? lines_max - 2 : 1;   // headline and "... more"
  for (int wanted = 0; wanted <= 3; ++wanted) {
    for (std::size_t i = 0; i < shown.size() && left > 0; ++i) {
      if (lines[i].rank != wanted) continue;
      shown[i] = true;
      --left;
    }
  }
  return shown;
}

// A reason that only counts down is the same reason.
std::string without_digits(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

std::string stamp(Now now) {
  const std::string text = format_wall_time(now.wall_ms);
  return text.size() > 11 ? text.substr(11) : text;
}

}  // namespace

std::string progress_text(const AttemptPulse& pulse) {
  if (!pulse.progress) return "";
  const ProgressReport& progress = *pulse.progress;
  const std::string unit = progress.unit.empty() ? "" : " " + printable(progress.unit);
  if (progress.of <= 0) return fmt::format("{}{}", progress.done, unit);
  return fmt::format("{}/{}{} {}%", progress.done, progress.of, unit,
                     std::clamp<std::int64_t>(progress.done, 0, progress.of) * 100 / progress.of);
}

std::string log_left_out_line(std::int64_t bytes) {
  return fmt::format("[… {} left out: --log-limit …]", format_bytes(static_cast<double>(bytes)));
}

std::vector<std::string> render_job(const JobView& view, std::int64_t wall_ms,
                                    const ProgressStyle& style) {
  const std::vector<StageRow> rows = stage_rows(view, style.all);
  const std::vector<Line> candidates = lines_of(view, rows);
  std::size_t name_columns = 4;
  for (const Line& line : candidates) {
    const std::string& name = line.is_group ? line.row->group : view.stages[line.stage].name;
    name_columns = std::max(name_columns, std::min(name_columns_max, display_width(name)));
  }
  std::vector<std::string> lines = {headline(view, wall_ms, style)};
  const std::vector<bool> shown = choose(candidates, style.lines_max);
  std::size_t hidden = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Line& line = candidates[i];
    if (!shown[i]) hidden += line.stages_told;
    else if (line.is_group) lines.push_back(group_line(view, *line.row, name_columns, style));
    else lines.push_back(stage_line(view.stages[line.stage], name_columns, style));
  }
  if (hidden > 0) lines.push_back(clip_to_width(fmt::format("  … {} more", hidden), style.columns));
  return lines;
}

void PlainProgress::stage_lines(const StageView& stage, Now now, std::vector<std::string>& out) {
  const bool is_new = said_.find(stage.name) == said_.end();
  Said& said = said_[stage.name];
  auto say = [&](const std::string& what) {
    out.push_back(fmt::format("{} {} {}", stamp(now), printable(stage.name), what));
  };
  const std::string attempt = fmt::format("#{}", stage.attempt);

  // Attempts that have ended badly; what was over before we looked is history.
  for (std::size_t i = said.attempts_ended; i < stage.attempts.size(); ++i) {
    const AttemptView& ended = stage.attempts[i];
    if (!ended.outcome) break;
    said.attempts_ended = i + 1;
    if (is_new || *ended.outcome == Outcome::ok) continue;
    say(fmt::format("#{} ended: {}{}", ended.attempt, to_string(*ended.outcome),
                    ended.reason.empty() ? "" : ": " + printable(ended.reason)));
  }
  const std::size_t fresh = stage.notes.size() - std::min(said.notes, stage.notes.size());
  for (std::size_t i = said.notes; i < stage.notes.size() && !is_new; ++i) {
    if (fresh > notes_at_once_max) {
      say(fmt::format("{} notes, see the report", fresh));
      break;
    }
    say("note: " + printable(stage.notes[i]));
  }
  said.notes = stage.notes.size();

  if (stage.state != said.state) {
    said.state = stage.state;
    said.progress.clear();
    switch (stage.state) {
      case StageState::assigned: break;   // `running` follows, or a reason
      case StageState::running: say(attempt + " running on " + printable(stage.worker)); break;
      case StageState::done: say(attempt + " done in " + format_clock(elapsed_ms(stage))); break;
      case StageState::failed: say(attempt + " failed"); break;
      case StageState::reused: say("reused: " + printable(stage.reuse_reason)); break;
      case StageState::ready: said.progress_mono_ms = now.mono_ms; break;   // it may go on at once
      default: say(to_string(stage.state)); break;
    }
  }
  const std::string waiting = without_digits(stage.waiting_reason);
  if (stage.state == StageState::ready && waiting != said.waiting &&
      now.mono_ms - said.progress_mono_ms >= every_ms_) {
    said.waiting = waiting;
    said.progress_mono_ms = now.mono_ms;
    if (!waiting.empty()) say("waits: " + printable(stage.waiting_reason));
  }
  if (stage.state != StageState::running || !stage.pulse) return;
  const std::string progress = progress_text(*stage.pulse) + stage.pulse->phase;
  if (progress == said.progress || progress.empty()) return;
  if (now.mono_ms - said.progress_mono_ms < every_ms_) return;
  said.progress = progress;
  said.progress_mono_ms = now.mono_ms;
  say(attempt + " " + pulse_text(stage));
}

std::vector<std::string> PlainProgress::lines(const JobView& view, Now now) {
  std::vector<std::string> out;
  for (const StageView& stage : view.stages) stage_lines(stage, now, out);
  return out;
}

}  // namespace nightshift::cli
