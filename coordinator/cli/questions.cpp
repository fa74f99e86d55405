#include "coordinator/cli/questions.h"

#include <unistd.h>

#include <array>
#include <optional>

#include "coordinator/cli/session.h"
#include "coordinator/server.h"
#include "coordinator/server_desk.h"
#include "coordinator/server_night.h"
#include "coordinator/sqlite_store.h"
#include "schema/json.h"

namespace nightshift::cli {

namespace {

// A desk on the store, without a socket: one question at a time.
struct OfflineDesk {
  HomeLock lock;
  std::unique_ptr<Store> store;
  SystemClock clock;
  Engine engine;
  Desk desk;

  OfflineDesk(HomeLock lock_, std::unique_ptr<Store> store_, const Home& home,
              ReactorOptions options)
      : lock(std::move(lock_)),
        store(std::move(store_)),
        engine(*store, std::move(options)),
        desk(engine, home, [](const std::string&) {}) {}
};

constexpr std::array offline_verbs = {"status", "report", "explain", "logs", "cancel", "resume"};

}  // namespace

struct Questions::State {
  std::string home_root;
  std::optional<Client> client;
  std::unique_ptr<OfflineDesk> offline;

  Result<Json> ask_offline(const std::string& verb, const Json& arguments) {
    bool is_known = false;
    for (const char* known : offline_verbs) is_known = is_known || verb == known;
    if (!is_known) return no_coordinator(home_root);
    offline->desk.on_message("", Command{1, verb, dump_json(arguments)}, offline->clock.now());
    for (const Letter& letter : offline->desk.end_turn(offline->clock.now())) {
      if (const auto* reply = std::get_if<CommandReply>(&letter.message)) {
        return parse_json(reply->body_json, "answer to " + verb);
      }
      if (const auto* error = std::get_if<ErrorReply>(&letter.message)) {
        return Error{error_code_from(error->code), error->what, error->where, error->hint};
      }
    }
    return Error{ErrorCode::internal, "no answer to " + verb, "", ""};
  }
};

Questions::Questions(std::unique_ptr<State> state) : state_(std::move(state)) {}
Questions::Questions(Questions&&) noexcept = default;
Questions& Questions::operator=(Questions&&) noexcept = default;
Questions::~Questions() = default;

Result<Questions> Questions::open(const Place& place) {
  auto state = std::make_unique<State>();
  Result<Client> client = open_client(place);
  if (client.ok()) {
    state->client.emplace(std::move(*client));
    return Questions(std::move(state));
  }
  if (!place.access.empty() || client.error().code != ErrorCode::unavailable) {
    return std::move(client.error());
  }
  NS_TRY_ASSIGN(const Home home, Home::locate(place.home));
  if (::access(home.database().c_str(), R_OK | W_OK) != 0) return std::move(client.error());
  state->home_root = home.root();
  NS_TRY_ASSIGN(HomeLock lock, HomeLock::take(home));
  NS_TRY_ASSIGN(std::unique_ptr<Store> store, open_sqlite_store(home.database()));
  ReactorOptions options;
  options.checkpoint_exists = checkpoint_check(home);
  options.scheduler.night = night_window;
  state->offline =
      std::make_unique<OfflineDesk>(std::move(lock), std::move(store), home, std::move(options));
  NS_TRY(state->offline->engine.open(state->offline->clock.now()));
  return Questions(std::move(state));
}

Result<Json> Questions::ask(const std::string& verb, const Json& arguments) {
  if (state_->client) return state_->client->ask(verb, arguments);
  return state_->ask_offline(verb, arguments);
}

Result<JobView> Questions::ask_job(const std::string& job) {
  NS_TRY_ASSIGN(const Json answer, ask("status", job_argument(job)));
  return job_view_from_answer(answer);
}

bool Questions::is_offline() const { return !state_->client; }

}  // namespace nightshift::cli
