#include "coordinator/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <boost/asio.hpp>
#include <deque>
#include <filesystem>
#include <zmq.hpp>

#include "coordinator/curve_keys.h"
#include "coordinator/server_night.h"
#include "schema/access.h"
#include "schema/json.h"

namespace nightshift {

namespace asio = boost::asio;

namespace {

constexpr int queue_max = 4'000;  // messages of one peer that ZeroMQ holds, each way
constexpr std::int64_t frame_bytes_slack = 1 << 20;   // a little too much is answered
constexpr std::size_t received_per_turn_max = 2'000;
constexpr int heartbeat_ms = 5'000;              // ZMTP pings: a dead connection is noticed
constexpr int linger_ms = 500;

struct Incoming {
  std::array<std::string, 3> frames;
  std::size_t count = 0;                         // frames that came, without the address
  std::size_t bytes() const { return frames[0].size() + frames[1].size() + frames[2].size(); }
};

struct Inbox {
  std::deque<Incoming> waiting;
  std::size_t bytes = 0;
};

std::string quoted(const std::string& text) { return dump_json(Json(text)); }

// What a worker on another machine can connect to.
std::string reachable_endpoint(const std::string& bound) {
  for (const std::string_view any : {"tcp://0.0.0.0:", "tcp://*:", "tcp://[::]:"}) {
    if (!bound.starts_with(any)) continue;
    char host[256] = {};
    if (::gethostname(host, sizeof host - 1) != 0) break;
    return fmt::format("tcp://{}:{}", host, bound.substr(any.size()));
  }
  return bound;
}

}  // namespace

struct Server::Loop {
  Home home;
  const Clock& clock;
  ServerOptions options;
  Desk::LogLine log;
  Engine engine;
  Desk desk;

  zmq::context_t context{1};
  std::unique_ptr<AdmissionGate> gate;           // before the socket: goes after it
  zmq::socket_t socket;
  std::string endpoint;

  asio::io_context io{1};
  asio::posix::stream_descriptor readable{io};   // ZMQ_FD; ZeroMQ's, not ours to close
  asio::posix::stream_descriptor parent{io};
  asio::signal_set signals{io};
  asio::steady_timer timer{io};
  std::array<char, 16> parent_bytes{};
  std::map<std::string, Inbox> inboxes;
  bool is_waiting = false;                       // for the descriptor
  bool is_posted = false;                        // a turn follows at once
  bool is_stopping = false;
  std::int64_t messages_at_tick = 0;

  Loop(const Home& home_, Store& store, const Clock& clock_, ServerOptions options_,
       Desk::LogLine log_)
      : home(home_),
        clock(clock_),
        options(std::move(options_)),
        log(std::move(log_)),
        engine(store, options.reactor),
        desk(engine, home, log, options.desk) {}

  ~Loop() {
    if (readable.is_open()) readable.release();
  }

  // ---- opening ------------------------------------------------------------------------------
  Status open();
  void open_socket(const CoordinatorKeys& keys);
  std::string bind(const std::string& to);
  std::string bind_home(const std::string& to);
  Status write_access_files(const CoordinatorKeys& keys, const std::string& remote);
  void start_watching();

  // ---- turns --------------------------------------------------------------------------------
  void turn(bool is_tick);
  void receive();
  void take_in(std::string peer, Incoming message);
  void handle_waiting(Now now);
  void handle(const std::string& peer, const Incoming& message, Now now);
  void send(const Letter& letter);
  void rest_when_idle();
  void wait_for_more();
  void wait_for_tick();
  void begin_stop(const std::string& why);
};

// ---- opening --------------------------------------------------------------------------------

Status Server::Loop::open() {
  NS_TRY_ASSIGN(const CoordinatorKeys keys, load_or_make_keys(home.keys_folder()));
  NS_TRY(engine.open(clock.now()));
  for (const std::string& warning : engine.warnings()) {
    log(fmt::format("event=recovery_warning text={}", quoted(warning)));
  }
  NS_TRY_ASSIGN(gate, AdmissionGate::open(context, keys.allowed_file));
  std::string trying = home.default_endpoint();
  std::string remote;
  try {
    open_socket(keys);
    endpoint = bind_home(trying);
    if (!options.listen.empty()) {
      trying = options.listen;
      socket.set(zmq::sockopt::ipv6, trying.find('[') != std::string::npos ? 1 : 0);
      remote = bind(trying);
    }
  } catch (const zmq::error_t& failed) {
    return Error{ErrorCode::io, fmt::format("cannot listen: {}", failed.what()), trying,
                 failed.num() == EADDRINUSE ? "choose another port with --listen tcp://HOST:PORT"
                                            : "--listen takes tcp://ADDRESS:PORT"};
  }
  NS_TRY(write_access_files(keys, remote));
  try {
    start_watching();
  } catch (const boost::system::system_error& failed) {
    return Error{ErrorCode::io, fmt::format("cannot start the loop: {}", failed.what()), "", ""};
  }
  log(fmt::format("event=coordinator_started pid={} epoch={} endpoint={}{}", ::getpid(),
                  engine.core().epoch.value, endpoint, remote.empty() ? "" : " listen=" + remote));
  return {};
}

void Server::Loop::open_socket(const CoordinatorKeys& keys) {
  socket = zmq::socket_t(context, zmq::socket_type::router);
  socket.set(zmq::sockopt::curve_server, 1);
  socket.set(zmq::sockopt::curve_secretkey, keys.server.secret_key);
  socket.set(zmq::sockopt::zap_domain, "nightshift");
  socket.set(zmq::sockopt::router_mandatory, 1);
  socket.set(zmq::sockopt::router_handover, 1);
  socket.set(zmq::sockopt::rcvhwm, queue_max);
  socket.set(zmq::sockopt::sndhwm, queue_max);
  socket.set(zmq::sockopt::maxmsgsize,
             static_cast<std::int64_t>(wire::body_bytes_max) + frame_bytes_slack);
  socket.set(zmq::sockopt::linger, linger_ms);
  socket.set(zmq::sockopt::heartbeat_ivl, heartbeat_ms);
  socket.set(zmq::sockopt::heartbeat_timeout, 3 * heartbeat_ms);
}

std::string Server::Loop::bind(const std::string& to) {
  socket.bind(to);
  return socket.get(zmq::sockopt::last_endpoint);
}

// A port that the system chose last time is taken again where it is free: workers and CLIs that
// have read the access file find the coordinator again after its restart.
std::string Server::Loop::bind_home(const std::string& to) {
  const Result<Access> last = read_access(home.access_file());
  if (to.ends_with(":*") && last.ok() && last->endpoint.starts_with(to.substr(0, to.size() - 1))) {
    try {
      return bind(last->endpoint);
    } catch (const zmq::error_t&) {
      // Taken by somebody else by now: a new one.
    }
  }
  return bind(to);
}

Status Server::Loop::write_access_files(const CoordinatorKeys& keys, const std::string& remote) {
  Access access{endpoint, keys.server.public_key, keys.client.public_key, keys.client.secret_key};
  NS_TRY(write_access(home.access_file(), access));
  if (remote.empty()) return {};
  access.endpoint = reachable_endpoint(remote);
  return write_access(home.remote_access_file(), access);
}

void Server::Loop::start_watching() {
  readable.assign(socket.get(zmq::sockopt::fd));
  if (options.handle_signals) {
    signals.add(SIGTERM);
    signals.add(SIGINT);
    signals.async_wait([this](const boost::system::error_code& failed, int number) {
      if (!failed) begin_stop(number == SIGTERM ? "SIGTERM" : "SIGINT");
    });
  }
  if (options.parent_fd >= 0) {
    parent.assign(options.parent_fd);
    parent.async_read_some(asio::buffer(parent_bytes),
                           [this](const boost::system::error_code& failed, std::size_t) {
                             if (failed != asio::error::operation_aborted) {
                               begin_stop("the parent has gone");
                             }
                           });
  }
  wait_for_tick();
  wait_for_more();
}

// ---- turns ----------------------------------------------------------------------------------

void Server::Loop::turn(bool is_tick) {
  try {
    receive();
    const Now now = clock.now();
    desk.counters().refused_keys = gate->refused();
    handle_waiting(now);
    if (is_tick) desk.on_tick(now);
    for (const Letter& letter : desk.end_turn(now)) send(letter);
    if (is_tick) rest_when_idle();
  } catch (const zmq::error_t& failed) {
    log(fmt::format("event=socket_failed error={}", quoted(failed.what())));
  }
  if (is_stopping) {
    log("event=coordinator_stopped");
    io.stop();
    return;
  }
  wait_for_more();
}

void Server::Loop::rest_when_idle() {
  const std::int64_t messages = desk.counters().messages;
  if (std::exchange(messages_at_tick, messages) != messages) return;
  if (const Status rested = engine.rest(); !rested.ok()) {
    log(fmt::format("event=store_upkeep_failed error={}", quoted(rested.error().line())));
  }
}

void Server::Loop::receive() {
  for (std::size_t i = 0; i < received_per_turn_max; ++i) {
    zmq::message_t part;
    if (!socket.recv(part, zmq::recv_flags::dontwait)) return;
    std::string peer = part.to_string();
    Incoming message;
    while (part.more()) {
      (void)socket.recv(part, zmq::recv_flags::none);   // the rest of a message is there
      if (message.count < message.frames.size()) message.frames[message.count] = part.to_string();
      ++message.count;
    }
    take_in(std::move(peer), std::move(message));
  }
}

void Server::Loop::take_in(std::string peer, Incoming message) {
  Inbox& inbox = inboxes[std::move(peer)];
  const bool is_full = inbox.waiting.size() >= options.peer_messages_waiting_max ||
                       inbox.bytes + message.bytes() > options.peer_bytes_waiting_max;
  if (is_full && !inbox.waiting.empty()) {
    ++desk.counters().flooded;
    return;
  }
  inbox.bytes += message.bytes();
  inbox.waiting.push_back(std::move(message));
}

void Server::Loop::handle_waiting(Now now) {
  const std::size_t at_once = std::max(options.peer_messages_per_turn,
                                       received_per_turn_max / (inboxes.size() + 1));
  for (auto it = inboxes.begin(); it != inboxes.end();) {
    Inbox& inbox = it->second;
    for (std::size_t i = 0; i < at_once && !inbox.waiting.empty(); ++i) {
      const Incoming message = std::move(inbox.waiting.front());
      inbox.waiting.pop_front();
      inbox.bytes -= message.bytes();
      handle(it->first, message, now);
    }
    it = inbox.waiting.empty() ? inboxes.erase(it) : std::next(it);
  }
}

void Server::Loop::handle(const std::string& peer, const Incoming& message, Now now) {
  if (message.count != message.frames.size()) {
    return desk.on_garbage(peer, Error{ErrorCode::invalid_argument,
                                       fmt::format("a message of {} frames instead of 3",
                                                   message.count),
                                       "", ""},
                           now);
  }
  const auto& [head, number, body] = message.frames;
  Result<Message> decoded = decode(head, number, body);
  if (!decoded.ok()) return desk.on_garbage(peer, decoded.error(), now);
  desk.on_message(peer, *decoded, now);
}

// Never blocks: a peer that does not read loses what does not fit into its queue.
void Server::Loop::send(const Letter& letter) {
  const Frames frames = encode(letter.message);
  const auto flags = zmq::send_flags::dontwait | zmq::send_flags::sndmore;
  try {
    if (!socket.send(zmq::buffer(letter.peer), flags)) {
      ++desk.counters().unreachable;   // its queue is full
      return;
    }
    socket.send(zmq::buffer(frames.head), flags);
    socket.send(zmq::buffer(frames.number), flags);
    socket.send(zmq::buffer(frames.body), zmq::send_flags::dontwait);
  } catch (const zmq::error_t& failed) {
    if (failed.num() != EHOSTUNREACH) throw;
    desk.on_unreachable(letter.peer);
  }
}

// The descriptor of ZeroMQ tells changes, not states: it is silent about what has come already, and
// sending can use its signal up. So the socket is asked, always, before waiting.
void Server::Loop::wait_for_more() {
  const bool has_more = !inboxes.empty() ||
                        (socket.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0;
  if (has_more) {
    if (std::exchange(is_posted, true)) return;
    asio::post(io, [this] {
      is_posted = false;
      turn(false);
    });
    return;
  }
  if (std::exchange(is_waiting, true)) return;
  readable.async_wait(asio::posix::stream_descriptor::wait_read,
                      [this](const boost::system::error_code& failed) {
                        is_waiting = false;
                        if (failed == asio::error::operation_aborted) return;
                        turn(false);
                      });
}

void Server::Loop::wait_for_tick() {
  timer.expires_after(std::chrono::milliseconds(options.tick_ms));
  timer.async_wait([this](const boost::system::error_code& failed) {
    if (failed) return;
    turn(true);
    if (!is_stopping) wait_for_tick();
  });
}

void Server::Loop::begin_stop(const std::string& why) {
  if (std::exchange(is_stopping, true)) return;
  log(fmt::format("event=coordinator_stopping why={}", quoted(why)));
  asio::post(io, [this] { turn(false); });
}

std::function<bool(const std::string&)> checkpoint_check(const Home& home) {
  return [root = home.root() + "/"](const std::string& path) {
    return !path.starts_with(root) || ::access((path + "/manifest.json").c_str(), R_OK) == 0;
  };
}

// ---- Server ---------------------------------------------------------------------------------

Server::Server(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::open(const Home& home, Store& store, const Clock& clock,
                                             ServerOptions options, Desk::LogLine log) {
  if (!options.reactor.checkpoint_exists) {
    options.reactor.checkpoint_exists = checkpoint_check(home);
  }
  if (!options.reactor.scheduler.night) options.reactor.scheduler.night = night_window;
  auto loop = std::make_unique<Loop>(home, store, clock, std::move(options), std::move(log));
  NS_TRY(loop->open());
  return std::unique_ptr<Server>(new Server(std::move(loop)));
}

Status Server::run() {
  try {
    loop_->io.run();
  } catch (const std::exception& failed) {
    return Error{ErrorCode::internal, fmt::format("the loop ended: {}", failed.what()), "", ""};
  }
  return {};
}

void Server::stop() {
  asio::post(loop_->io, [loop = loop_.get()] { loop->begin_stop("asked to"); });
}

const std::string& Server::endpoint() const { return loop_->endpoint; }

}  // namespace nightshift
