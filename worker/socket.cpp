#include "worker/socket.h"

#include <zmq.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace nightshift {

namespace {

constexpr int messages_per_receive = 200;
constexpr int queue_messages_max = 1000;
// Of a connection that was lost; the agent has its own back-off for one that stays silent.
constexpr int reconnect_ms_min = 250;
constexpr int reconnect_ms_max = 32'000;
constexpr int monitored = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                          ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

Error zmq_error(const std::string& doing, const std::string& where) {
  return Error{ErrorCode::invalid_argument, "cannot " + doing + ": " + zmq_strerror(zmq_errno()),
               where, "make the access file again at the coordinator"};
}

class Part {
 public:
  Part() { zmq_msg_init(&message_); }
  ~Part() { zmq_msg_close(&message_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  bool receive(void* socket) { return zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT) >= 0; }
  bool has_more() { return zmq_msg_more(&message_) != 0; }
  std::string_view bytes() {
    return {static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }

 private:
  zmq_msg_t message_;
};

}  // namespace

struct CoordinatorSocket::Zmq {
  void* context = zmq_ctx_new();
  void* socket = nullptr;
  void* monitor = nullptr;
  int sockets_made = 0;

  ~Zmq() {
    close(0);
    zmq_ctx_term(context);
  }
  Zmq() = default;
  Zmq(const Zmq&) = delete;
  Zmq& operator=(const Zmq&) = delete;

  void close(int linger_ms) {
    if (monitor != nullptr) zmq_close(monitor);
    if (socket != nullptr) {
      zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
      zmq_close(socket);
    }
    socket = monitor = nullptr;
  }
};

CoordinatorSocket::CoordinatorSocket(Access access)
    : access_(std::move(access)), zmq_(std::make_unique<Zmq>()) {}
CoordinatorSocket::~CoordinatorSocket() = default;

Status CoordinatorSocket::open() {
  zmq_->close(0);
  connected_ = false;
  void* socket = zmq_->socket = zmq_socket(zmq_->context, ZMQ_DEALER);
  if (socket == nullptr) return zmq_error("make a socket", access_.endpoint);
  const auto set = [socket](int option, int value) {
    zmq_setsockopt(socket, option, &value, sizeof value);
  };
  set(ZMQ_LINGER, 0);
  set(ZMQ_SNDHWM, queue_messages_max);
  set(ZMQ_RCVHWM, queue_messages_max);
  set(ZMQ_IMMEDIATE, 1);  // nothing is queued for a coordinator that is not there
  set(ZMQ_RECONNECT_IVL, reconnect_ms_min);
  set(ZMQ_RECONNECT_IVL_MAX, reconnect_ms_max);
  set(ZMQ_IPV6, 1);
  const auto bytes_max = static_cast<std::int64_t>(wire::body_bytes_max);
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &bytes_max, sizeof bytes_max);
  for (const auto& [option, key] : {std::pair{ZMQ_CURVE_SERVERKEY, &access_.server_public},
                                    std::pair{ZMQ_CURVE_PUBLICKEY, &access_.client_public},
                                    std::pair{ZMQ_CURVE_SECRETKEY, &access_.client_secret}}) {
    if (key->size() != 40 || zmq_setsockopt(socket, option, key->c_str(), 41) != 0) {
      return zmq_error("use a key of the access file", access_.endpoint);
    }
  }
  const std::string name = "inproc://connection-" + std::to_string(++zmq_->sockets_made);
  zmq_socket_monitor(socket, name.c_str(), monitored);
  zmq_->monitor = zmq_socket(zmq_->context, ZMQ_PAIR);
  zmq_connect(zmq_->monitor, name.c_str());
  if (zmq_connect(socket, access_.endpoint.c_str()) != 0) {
    return zmq_error("connect", access_.endpoint);
  }
  return {};
}

void CoordinatorSocket::close(int linger_ms) {
  zmq_->close(linger_ms);
}

void CoordinatorSocket::wait(std::vector<WaitFor>& others, int timeout_ms) {
  std::vector<zmq_pollitem_t> items;
  for (void* socket : {zmq_->socket, zmq_->monitor}) {
    if (socket != nullptr) items.push_back({socket, 0, ZMQ_POLLIN, 0});
  }
  const std::size_t first = items.size();
  for (const WaitFor& other : others) {
    items.push_back({nullptr, other.fd, ZMQ_POLLIN | ZMQ_POLLERR, 0});
  }
  const int ready = zmq_poll(items.data(), static_cast<int>(items.size()), timeout_ms);
  for (std::size_t i = 0; i < others.size(); ++i) {
    others[i].ready = ready > 0 && items[first + i].revents != 0;
  }
}

std::vector<SocketEvent> CoordinatorSocket::receive() {
  std::vector<SocketEvent> events;
  if (zmq_->socket == nullptr) return events;
  receive_monitor(events);
  for (int i = 0; i < messages_per_receive && receive_message(events); ++i) {
  }
  return events;
}

void CoordinatorSocket::receive_monitor(std::vector<SocketEvent>& events) {
  for (;;) {
    Part head;
    Part address;
    if (!head.receive(zmq_->monitor)) return;
    if (head.has_more()) address.receive(zmq_->monitor);
    std::uint16_t event = 0;
    if (head.bytes().size() >= sizeof event) std::memcpy(&event, head.bytes().data(), sizeof event);
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      connected_ = true;
      events.emplace_back(SocketConnected{});
    } else if (event != 0) {
      connected_ = false;
      events.emplace_back(SocketDisconnected{
          event == ZMQ_EVENT_DISCONNECTED ? "the connection was lost"
                                          : "the coordinator at " + access_.endpoint +
                                                " does not admit the keys of the access file"});
    }
  }
}

bool CoordinatorSocket::receive_message(std::vector<SocketEvent>& events) {
  Part parts[3];
  if (!parts[0].receive(zmq_->socket)) return false;
  int count = 1;
  bool more = parts[0].has_more();
  while (more && count < 3) {
    parts[count].receive(zmq_->socket);
    more = parts[count++].has_more();
  }
  while (more) {
    Part surplus;
    surplus.receive(zmq_->socket);
    more = surplus.has_more();
    ++count;
  }
  if (count != 3) {
    events.emplace_back(SocketGarbage{
        Error{ErrorCode::invalid_argument,
              "a message of " + std::to_string(count) + " frames, not 3", access_.endpoint, ""}});
    return true;
  }
  auto message = decode(parts[0].bytes(), parts[1].bytes(), parts[2].bytes());
  if (message) {
    events.emplace_back(std::move(*message));
  } else {
    events.emplace_back(SocketGarbage{std::move(message.error())});
  }
  return true;
}

Status CoordinatorSocket::send(const Message& message) {
  const auto unavailable = [&](const char* why) {
    return Error{ErrorCode::unavailable,
                 std::string("cannot send ") + message_name(message) + ": " + why, access_.endpoint,
                 ""};
  };
  if (zmq_->socket == nullptr || !connected_) return unavailable("there is no connection");
  const Frames frames = encode(message);
  const std::string* parts[] = {&frames.head, &frames.number, &frames.body};
  for (int i = 0; i < 3; ++i) {
    const int flags = ZMQ_DONTWAIT | (i < 2 ? ZMQ_SNDMORE : 0);
    // Only the first part can find the queue full: the others follow it.
    if (zmq_send(zmq_->socket, parts[i]->data(), parts[i]->size(), flags) < 0) {
      return unavailable(zmq_strerror(zmq_errno()));
    }
  }
  return {};
}

}  // namespace nightshift
