#include "stages/night/stage_context.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "stages/model_io/files.h"

namespace nightshift {

namespace {

constexpr std::int64_t progress_interval_ms = 200;
constexpr std::uint64_t spec_bytes_max = 64u << 20;

std::int64_t monotonic_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

Result<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return Error{ErrorCode::invalid_argument, std::string(name) + " is not set", "nightshift-stage",
                 "a worker sets it; by hand, see the stage contract in schema/stage_contract.h"};
  }
  return std::string(value);
}

}  // namespace

void StageReporter::write(const Report& report) {
  const std::string line = to_line(report) + "\n";
  const int fd = fd_ < 0 ? STDERR_FILENO : fd_;
  std::size_t at = 0;
  while (at < line.size()) {
    const ssize_t put = ::write(fd, line.data() + at, line.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    at += static_cast<std::size_t>(put);
  }
}

void StageReporter::progress(std::int64_t done, std::int64_t of, const std::string& unit,
                             double rate, const std::string& rate_unit) {
  const std::int64_t now = monotonic_ms();
  if (done != of && last_progress_ms_ >= 0 && now - last_progress_ms_ < progress_interval_ms)
    return;
  last_progress_ms_ = now;
  write(ProgressReport{done, of, unit, rate, rate_unit});
}

void StageReporter::phase(const std::string& name, double quiet_s) {
  std::fprintf(stdout, "phase %s\n", name.c_str());
  std::fflush(stdout);
  write(PhaseReport{name, quiet_s});
}

void StageReporter::metric(const std::string& name, double value, const std::string& unit,
                           const std::string& model, const std::string& group) {
  std::fprintf(stdout, "metric %s%s%s = %.6g %s\n", name.c_str(), group.empty() ? "" : ".",
               group.c_str(), value, unit.c_str());
  std::fflush(stdout);
  write(MetricReport{name, value, unit, group, model});
}

void StageReporter::note(const std::string& text) {
  std::fprintf(stdout, "note %s\n", text.c_str());
  std::fflush(stdout);
  write(NoteReport{text});
}

void StageReporter::checkpoint(const std::string& name, std::int64_t done) {
  write(CheckpointReport{name, done});
}

void StageReporter::red_line(const RedLineResult& result) {
  std::fprintf(stdout, "red line %s: measured %.6g, limit %s: %s\n", result.name.c_str(),
               result.measured, result.limit.c_str(), result.pass ? "pass" : "breach");
  std::fflush(stdout);
  write(RedLineReport{result});
}

void StageReporter::error(const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.line().c_str());
  write(ErrorReport{error.what, error.where, error.hint});
}

Result<std::string> StageContext::input() const {
  if (order.needs.empty()) {
    return Error{ErrorCode::invalid_argument, "the stage has no input", order.stage,
                 "say in the job file what it needs"};
  }
  const auto found = order.inputs.find(order.needs.front());
  if (found == order.inputs.end()) {
    return Error{ErrorCode::not_found, "no checkpoint of stage " + order.needs.front(), order.stage,
                 "it must be done first"};
  }
  return found->second;
}

Result<StageContext> open_stage_context(StageReporter& report) {
  NS_TRY_ASSIGN(const std::string spec_path, variable(contract::env_spec));
  NS_TRY_ASSIGN(std::string out, variable(contract::env_out));
  NS_TRY_ASSIGN(std::string state, variable(contract::env_state));
  NS_TRY_ASSIGN(const std::string text, read_file(spec_path, spec_bytes_max));
  NS_TRY_ASSIGN(StageOrder order, stage_order_from_json(text, spec_path));
  return StageContext{std::move(order), std::move(out), std::move(state), report};
}

}  // namespace nightshift
