// coordinator: the service.
#include <fmt/format.h>

#include <cstdio>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/session.h"
#include "coordinator/clock.h"
#include "coordinator/server.h"
#include "coordinator/sqlite_store.h"
#include "coordinator/terminal.h"

namespace nightshift::cli {

namespace {

void log_line(const std::string& line) {
  const SystemClock clock;
  const std::string text = fmt::format("{} {}\n", format_wall_time(clock.now().wall_ms), line);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

int do_coordinator(const Place& place, const CoordinatorArguments& arguments) {
  const Result<Home> home = Home::locate(place.home);
  if (!home.ok()) return fail(home.error());
  if (const Status made = home->create(); !made.ok()) return fail(made.error());
  const Result<HomeLock> lock = HomeLock::take(*home);
  if (!lock.ok()) return fail(lock.error());
  const Result<std::unique_ptr<Store>> store = open_sqlite_store(home->database());
  if (!store.ok()) return fail(store.error());
  ServerOptions options;
  options.listen = arguments.listen;
  options.parent_fd = arguments.parent_fd;
  const SystemClock clock;
  Result<std::unique_ptr<Server>> server =
      Server::open(*home, **store, clock, std::move(options), log_line);
  if (!server.ok()) return fail(server.error());
  const Status ended = (*server)->run();
  return ended.ok() ? exit_ok : fail(ended.error());
}

}  // namespace nightshift::cli
