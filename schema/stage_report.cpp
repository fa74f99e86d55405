#include <array>
#include <utility>

#include "schema/codec_fields.h"
#include "schema/stage_contract.h"

namespace nightshift {

using codec::Ref;

template <class A>
void fields(A& a, Ref<A, PhaseReport> m) {
  a.name("name", m.name);
  a.may_miss().number("quiet_s", m.quiet_s);
}

template <class A>
void fields(A& a, Ref<A, CheckpointReport> m) {
  a.name("name", m.name);
  a.may_miss().integer("done", m.done);
}

template <class A>
void fields(A& a, Ref<A, RedLineReport> m) {
  fields(a, m.result);
}

template <class A>
void fields(A& a, Ref<A, NoteReport> m) {
  a.prose("text", m.text, contract::report_line_bytes_max / 2);
}

template <class A>
void fields(A& a, Ref<A, ErrorReport> m) {
  a.prose("what", m.what, contract::report_line_bytes_max / 8);
  a.may_miss().prose("where", m.where, contract::report_line_bytes_max / 8);
  a.may_miss().prose("hint", m.hint, contract::report_line_bytes_max / 8);
}

namespace {

// The order of Report's alternatives.
constexpr std::array<const char*, std::variant_size_v<Report>> report_names = {
    "progress", "metric", "phase", "checkpoint", "red_line", "note", "error"};

constexpr const char* report_where = "report line";

// Scripts write these by hand, so that what may be left out may be left out.
template <std::size_t I>
Result<Report> report_as(const Json& body) {
  using T = std::variant_alternative_t<I, Report>;
  const std::string where = std::string(report_where) + " " + report_names[I];
  NS_TRY_ASSIGN(T report, codec::read_object<T>(body, where, true));
  return Report(std::in_place_index<I>, std::move(report));
}

template <std::size_t... I>
constexpr auto readers(std::index_sequence<I...>) {
  return std::array{&report_as<I>...};
}
constexpr auto report_table = readers(std::make_index_sequence<std::variant_size_v<Report>>{});

Error refused(const std::string& what, const std::string& hint) {
  return Error{ErrorCode::invalid_argument, what, report_where, hint};
}

Status check_ranges(const Report& report) {
  if (const auto* phase = std::get_if<PhaseReport>(&report); phase && phase->quiet_s < 0) {
    return refused("phase: quiet_s is below 0", "seconds of silence to expect, 0 for none");
  }
  return {};
}

}  // namespace

std::string to_line(const Report& report) {
  Json line = Json::object();
  line[report_names.at(report.index())] =
      std::visit([](const auto& body) { return codec::write_object(body); }, report);
  return dump_json(line);
}

Result<Report> parse_report(std::string_view line) {
  if (line.size() > contract::report_line_bytes_max) {
    return refused("the line has " + std::to_string(line.size()) + " bytes, the most is " +
                       std::to_string(contract::report_line_bytes_max),
                   "send long texts to the log");
  }
  NS_TRY_ASSIGN(const Json json, parse_json(line, report_where));
  if (!json.is_object() || json.size() != 1) {
    return refused("expected an object with one key, the kind of report",
                   "for example {\"progress\": {\"done\": 3, \"of\": 10}}");
  }
  const std::string& kind = json.begin().key();
  for (std::size_t i = 0; i < report_names.size(); ++i) {
    if (kind != report_names[i]) continue;
    NS_TRY_ASSIGN(Report report, report_table[i](json.begin().value()));
    NS_TRY(check_ranges(report));
    return report;
  }
  const std::string near = did_you_mean(kind, {report_names.begin(), report_names.end()});
  return refused("unknown kind of report", near.empty()
                                               ? "progress, metric, phase, checkpoint, red_line, "
                                                 "note or error"
                                               : "did you mean `" + near + "`?");
}

}  // namespace nightshift
