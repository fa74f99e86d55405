#include "coordinator/client.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <chrono>
#include <optional>
#include <zmq.hpp>

#include "schema/json.h"

namespace nightshift {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int send_queue_max = 16;

Error error_from(const ErrorReply& reply) {
  return Error{error_code_from(reply.code), reply.what, reply.where, reply.hint};
}

Error zmq_failure(const char* doing, const zmq::error_t& failed, const std::string& endpoint) {
  return Error{ErrorCode::unavailable, fmt::format("cannot {}: {}", doing, failed.what()), endpoint,
               ""};
}

}  // namespace

struct Client::State {
  Access access;
  ClientOptions options;
  zmq::context_t context{1};
  zmq::socket_t socket;
  zmq::socket_t handshakes;      // events of `socket`: was the key refused?
  std::int64_t last_request = 0;
  int connections = 0;
  bool is_stale = false;         // a question on this connection is unanswered

  void connect() {
    socket = zmq::socket_t(context, zmq::socket_type::dealer);
    is_stale = false;
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::sndhwm, send_queue_max);
    socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(wire::body_bytes_max));
    socket.set(zmq::sockopt::curve_serverkey, access.server_public);
    socket.set(zmq::sockopt::curve_publickey, access.client_public);
    socket.set(zmq::sockopt::curve_secretkey, access.client_secret);
    const std::string events = fmt::format("inproc://handshakes-{}", ++connections);
    zmq_socket_monitor(socket.handle(), events.c_str(), ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
    handshakes = zmq::socket_t(context, zmq::socket_type::pair);
    handshakes.set(zmq::sockopt::linger, 0);
    handshakes.connect(events);
    socket.connect(access.endpoint);
  }

  void send(const Message& message) {
    const Frames frames = encode(message);
    socket.send(zmq::buffer(frames.head), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(frames.number), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(frames.body), zmq::send_flags::none);
  }

  Result<Message> receive() {
    std::array<std::string, 3> frames;
    std::size_t count = 0;
    zmq::message_t part;
    do {
      (void)socket.recv(part, zmq::recv_flags::none);
      if (count < frames.size()) frames[count] = part.to_string();
      ++count;
    } while (part.more());
    if (count != frames.size()) {
      return Error{ErrorCode::corrupt, fmt::format("an answer of {} frames instead of 3", count),
                   access.endpoint, ""};
    }
    return decode(frames[0], frames[1], frames[2]);
  }

  Error refused() const {
    return Error{ErrorCode::invalid_argument, "the coordinator does not admit this key",
                 access.endpoint, "its keys/allowed must list the client key of the access file"};
  }

  // Sends once and waits for a message that `accept` takes. nullopt: no answer in time.
  template <typename Accept>
  Result<std::optional<Message>> exchange(const Message& question, Accept&& accept) {
    send(question);
    const auto deadline = Clock::now() + std::chrono::milliseconds(options.answer_ms);
    zmq::pollitem_t items[] = {{socket.handle(), 0, ZMQ_POLLIN, 0},
                               {handshakes.handle(), 0, ZMQ_POLLIN, 0}};
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) return std::optional<Message>();
      zmq::poll(items, 2, left);
      if ((items[1].revents & ZMQ_POLLIN) != 0) return refused();
      if ((items[0].revents & ZMQ_POLLIN) == 0) continue;
      Result<Message> answer = receive();
      if (!answer.ok()) return std::move(answer.error());
      if (accept(*answer)) return std::optional<Message>(std::move(*answer));
    }
  }

  template <typename Accept>
  Result<Message> converse(const Message& question, Repeat repeat, Accept&& accept) {
    const int tries = repeat == Repeat::allowed ? options.tries : 1;
    try {
      for (int i = 0; i < tries; ++i) {
        if (is_stale) connect();
        is_stale = true;
        NS_TRY_ASSIGN(std::optional<Message> answer, exchange(question, accept));
        if (!answer) continue;
        is_stale = false;
        return std::move(*answer);
      }
    } catch (const zmq::error_t& failed) {
      return zmq_failure("talk to the coordinator", failed, access.endpoint);
    }
    return no_coordinator(access.endpoint);
  }
};

Client::Client(std::unique_ptr<State> state) : state_(std::move(state)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

void Client::set_options(ClientOptions options) { state_->options = options; }
const std::string& Client::endpoint() const { return state_->access.endpoint; }

Result<Client> Client::open(Access access, ClientOptions options) {
  const std::string endpoint = access.endpoint;
  try {
    auto state = std::make_unique<State>();
    state->access = std::move(access);
    state->options = options;
    state->connect();
    return Client(std::move(state));
  } catch (const zmq::error_t& failed) {
    return zmq_failure("connect to the coordinator", failed, endpoint);
  }
}

Result<Json> Client::ask(const std::string& verb, const Json& arguments, Repeat repeat) {
  Command command;
  command.request = ++state_->last_request;
  command.verb = verb;
  command.arguments_json = dump_json(arguments);
  auto is_answer = [&](const Message& message) {
    if (const auto* reply = std::get_if<CommandReply>(&message)) {
      return reply->request == command.request;
    }
    const auto* error = std::get_if<ErrorReply>(&message);
    return error && (error->request == command.request || error->request == 0);
  };
  NS_TRY_ASSIGN(const Message answer, state_->converse(command, repeat, is_answer));
  if (const auto* error = std::get_if<ErrorReply>(&answer)) return error_from(*error);
  return parse_json(std::get<CommandReply>(answer).body_json, "reply to " + verb);
}

Result<JobId> Client::submit(const SubmitJob& job) {
  auto is_answer = [](const Message& message) {
    return std::holds_alternative<JobSubmitted>(message) ||
           std::holds_alternative<ErrorReply>(message);
  };
  NS_TRY_ASSIGN(const Message answer, state_->converse(job, Repeat::allowed, is_answer));
  if (const auto* error = std::get_if<ErrorReply>(&answer)) return error_from(*error);
  return std::get<JobSubmitted>(answer).job;
}

ErrorCode error_code_from(const std::string& text) {
  constexpr std::array codes = {
      ErrorCode::invalid_argument, ErrorCode::not_found,     ErrorCode::conflict,
      ErrorCode::unavailable,      ErrorCode::out_of_disk,   ErrorCode::out_of_memory,
      ErrorCode::unsupported,      ErrorCode::corrupt,       ErrorCode::io};
  for (const ErrorCode code : codes) {
    if (text == to_string(code)) return code;
  }
  return ErrorCode::internal;
}

Error no_coordinator(const std::string& endpoint) {
  return Error{ErrorCode::unavailable,
               fmt::format("no coordinator at {}: start one with `nightshift coordinator`, or use "
                           "`nightshift run`",
                           endpoint),
               "", ""};
}

std::string random_request() {
  std::array<unsigned char, 16> bytes{};
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace nightshift
