// nightshift-stage: runs one stage under the stage contract (schema/stage_contract.h). Knows the
// list of stages and the exit codes; a worker starts it.

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "schema/outcome.h"
#include "stages/night/stages.h"

namespace {

using namespace nightshift;

struct StageKind {
  const char* name;
  Result<StageEnd> (*run)(const StageContext&);
};
constexpr StageKind kinds[] = {
    {"baseline", run_baseline}, {"calibrate", run_calibrate}, {"quantize", run_quantize},
    {"fuse", run_fuse},         {"evaluate", run_evaluate},   {"soak", run_soak},
};

Result<StageEnd> run(StageReporter& report) {
  NS_TRY_ASSIGN(const StageContext context, open_stage_context(report));
  for (const StageKind& kind : kinds) {
    if (context.order.kind == kind.name) return kind.run(context);
  }
  return Error{ErrorCode::unsupported, "stage kind '" + context.order.kind + "' is not known",
               context.order.stage,
               "kinds are baseline, calibrate, quantize, fuse, evaluate, soak"};
}

int exit_code_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::out_of_memory: return exit_code::out_of_memory;
    case ErrorCode::out_of_disk: return exit_code::out_of_disk;
    default: return error.retryable() ? EXIT_FAILURE : exit_code::error;
  }
}

int report_fd() {
  const char* text = std::getenv(contract::env_report_fd);
  return text == nullptr || *text == '\0' ? -1 : std::atoi(text);
}

}  // namespace

int main() {
  StageReporter report(report_fd());
  try {
    const Result<StageEnd> end = run(report);
    if (end) return *end == StageEnd::ok ? exit_code::ok : exit_code::red_line;
    report.error(end.error());
    return exit_code_of(end.error());
  } catch (const std::bad_alloc&) {
    report.error({ErrorCode::out_of_memory, "out of memory", "nightshift-stage",
                  "give the stage more memory, or a smaller bench batch"});
    return exit_code::out_of_memory;
  } catch (const std::exception& failure) {
    report.error({ErrorCode::internal, failure.what(), "nightshift-stage", ""});
    return EXIT_FAILURE;
  }
}
