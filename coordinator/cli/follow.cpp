#include "coordinator/cli/follow.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "coordinator/cli/progress.h"
#include "coordinator/cli/session.h"
#include "coordinator/clock.h"
#include "coordinator/terminal.h"

namespace nightshift::cli {

namespace {

constexpr std::int64_t pause_ms_max = 10'000;

volatile sig_atomic_t interrupts = 0;

void on_interrupt(int) {
  if (interrupts > 0) ::_exit(exit_interrupted);
  interrupts = 1;
}

// Where the job is shown: a block that is redrawn, or lines.
class Screen {
 public:
  explicit Screen(bool all) : all_(all), traits_(terminal_traits(STDOUT_FILENO)), block_(stdout) {}

  void show(const JobView& view, Now now) {
    if (!traits_.is_tty) return say(plain_.lines(view, now));
    traits_ = terminal_traits(STDOUT_FILENO);   // its size may have changed
    const std::size_t lines_max = traits_.rows > 2 ? traits_.rows - 1 : 0;
    block_.draw(
        render_job(view, now.wall_ms, {traits_.columns - 1, lines_max, traits_.colour, all_}));
  }
  void note(const std::string& line) {
    if (traits_.is_tty) block_.print_above(line);
    else say(line);
  }
  void finish() { block_.finish(); }

 private:
  bool all_;
  TerminalTraits traits_;
  LiveBlock block_;
  PlainProgress plain_;
};

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;   // without SA_RESTART: waits end at once
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

std::int64_t pause_ms_after(std::int64_t reply_ms, std::int64_t poll_ms) {
  return std::clamp(19 * reply_ms, poll_ms, std::max(poll_ms, pause_ms_max));
}

bool is_interrupted() { return interrupts > 0; }

Status Follower::connect() {
  if (options_.may_start && options_.place.access.empty()) {
    NS_TRY_ASSIGN(const bool is_running, is_coordinator_running(options_.place));
    if (!is_running) {
      NS_TRY_ASSIGN(const Home home, Home::locate(options_.place.home));
      NS_TRY_ASSIGN(pair_, EmbeddedPair::start(home, options_.embedded));
    }
  }
  return reconnect();
}

Status Follower::reconnect() {
  NS_TRY_ASSIGN(Client client, open_client(options_.place));
  client_.emplace(std::move(client));
  return {};
}

Result<std::optional<JobView>> Follower::follow(JobId job) {
  const SystemClock clock;
  Screen screen(options_.all);
  std::int64_t answered_mono_ms = clock.now().mono_ms;
  std::int64_t next_mono_ms = answered_mono_ms;
  client_->set_options({1'000, 1});   // a coordinator that has gone is noticed soon
  while (!is_interrupted()) {
    if (pair_) {
      NS_TRY_ASSIGN(const std::vector<std::string> lines, pair_->tend(clock.now().mono_ms));
      for (const std::string& line : lines) screen.note(line);
    }
    const std::int64_t asked_mono_ms = clock.now().mono_ms;
    if (asked_mono_ms < next_mono_ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(
          std::min(options_.poll_ms, next_mono_ms - asked_mono_ms)));
      continue;
    }
    Result<JobView> view = ask_job(*client_, std::to_string(job.value));
    const Now now = clock.now();
    if (view.ok()) {
      answered_mono_ms = now.mono_ms;
      screen.show(*view, now);
      if (view->state != JobState::active) {
        screen.finish();
        return std::optional<JobView>(std::move(*view));
      }
    } else if (is_interrupted()) {
      break;
    } else if (view.error().code != ErrorCode::unavailable) {
      return std::move(view.error());
    } else if (!pair_ && options_.may_start && options_.place.access.empty() &&
               !*is_coordinator_running(options_.place)) {
      screen.note("the coordinator has gone; a private one takes over");
      NS_TRY(connect());
      client_->set_options({1'000, 1});
    } else if (now.mono_ms - answered_mono_ms > options_.patience_ms) {
      return std::move(view.error());
    }
    next_mono_ms = clock.now().mono_ms + pause_ms_after(now.mono_ms - asked_mono_ms,
                                                        options_.poll_ms);
  }
  screen.finish();
  return std::optional<JobView>();
}

}  // namespace nightshift::cli
