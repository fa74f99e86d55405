#include "coordinator/curve_keys.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <set>
#include <sstream>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "coordinator/home.h"
#include "schema/json.h"

namespace nightshift {

namespace {

constexpr std::size_t key_chars = 40;
constexpr std::size_t key_file_bytes_max = 1 << 20;
constexpr const char* zap_endpoint = "inproc://zeromq.zap.01";

bool is_key(const std::string& text) {
  std::array<std::uint8_t, 32> bytes{};
  return text.size() == key_chars && zmq_z85_decode(bytes.data(), text.c_str()) != nullptr;
}

Status check_private(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno_error(errno, "look at the key file", path);
  if ((info.st_mode & 077) != 0) {
    return Error{ErrorCode::invalid_argument, "others may read this key file", path,
                 "chmod 600 " + path};
  }
  return {};
}

Result<KeyPair> load_or_make_pair(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 && errno == ENOENT) {
    NS_TRY_ASSIGN(KeyPair pair, make_key_pair());
    const Json json = {{"public", pair.public_key}, {"secret", pair.secret_key}};
    NS_TRY(write_file(path, dump_json_pretty(json), 0600));
    return pair;
  }
  NS_TRY(check_private(path));
  NS_TRY_ASSIGN(const std::string text, read_file(path, key_file_bytes_max));
  NS_TRY_ASSIGN(const Json json, parse_json(text, path));
  const JsonReader reader(json, path);
  KeyPair pair;
  NS_TRY_ASSIGN(pair.public_key, reader.string("public"));
  NS_TRY_ASSIGN(pair.secret_key, reader.string("secret"));
  if (!is_key(pair.public_key) || !is_key(pair.secret_key)) {
    return Error{ErrorCode::corrupt, "this is not a CURVE key pair", path,
                 "remove it and start again: new keys are made, and access files written anew"};
  }
  return pair;
}

// The admitted keys, as the file says now.
class AllowList {
 public:
  explicit AllowList(std::string path) : path_(std::move(path)) { reload(); }

  bool admits(const std::string& key) {
    if (changed()) reload();
    return keys_.count(key) > 0;
  }

 private:
  bool changed() const {
    struct stat info {};
    if (::stat(path_.c_str(), &info) != 0) return seen_mtime_ns_ != 0;
    return mtime_ns(info) != seen_mtime_ns_;
  }
  static std::int64_t mtime_ns(const struct stat& info) {
    return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  }
  // A list that cannot be read admits nobody.
  void reload() {
    keys_.clear();
    struct stat info {};
    seen_mtime_ns_ = ::stat(path_.c_str(), &info) == 0 ? mtime_ns(info) : 0;
    const Result<std::string> text = read_file(path_, key_file_bytes_max);
    if (!text.ok()) return;
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      std::string key = line.substr(0, line.find_first_of(" \t"));
      if (is_key(key)) keys_.insert(std::move(key));
    }
  }

  std::string path_;
  std::set<std::string> keys_;
  std::int64_t seen_mtime_ns_ = 0;
};

std::vector<std::string> receive_parts(zmq::socket_t& socket) {
  std::vector<std::string> parts;
  while (true) {
    zmq::message_t part;
    if (!socket.recv(part, zmq::recv_flags::none)) return parts;
    parts.push_back(part.to_string());
    if (!part.more()) return parts;
  }
}

void send_parts(zmq::socket_t& socket, const std::vector<std::string>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto flags = i + 1 < parts.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
    socket.send(zmq::buffer(parts[i]), flags);
  }
}

}  // namespace

Result<KeyPair> make_key_pair() {
  char public_key[key_chars + 1] = {};
  char secret_key[key_chars + 1] = {};
  if (zmq_curve_keypair(public_key, secret_key) != 0) {
    return Error{ErrorCode::unsupported, "this ZeroMQ was built without CURVE", "libzmq",
                 "install a libzmq with libsodium"};
  }
  return KeyPair{public_key, secret_key};
}

Result<CoordinatorKeys> load_or_make_keys(const std::string& folder) {
  NS_TRY(make_folders(folder, 0700));
  CoordinatorKeys keys;
  NS_TRY_ASSIGN(keys.server, load_or_make_pair(folder + "/server.json"));
  NS_TRY_ASSIGN(keys.client, load_or_make_pair(folder + "/client.json"));
  keys.allowed_file = folder + "/allowed";
  struct stat info {};
  if (::stat(keys.allowed_file.c_str(), &info) != 0) {
    const std::string line = keys.client.public_key + " the CLI and workers with access.json\n";
    NS_TRY(write_file(keys.allowed_file, line, 0600));
  }
  return keys;
}

struct AdmissionGate::State {
  AllowList allowed;
  zmq::socket_t requests;
  zmq::socket_t stop_here;    // the thread's end
  zmq::socket_t stop_there;   // the destructor's end
  std::atomic<std::int64_t> refused = 0;
  std::thread thread;

  State(zmq::context_t& context, std::string allowed_file)
      : allowed(std::move(allowed_file)),
        requests(context, zmq::socket_type::rep),
        stop_here(context, zmq::socket_type::pair),
        stop_there(context, zmq::socket_type::pair) {
    const std::string stop = fmt::format("inproc://nightshift-gate-stop-{}", fmt::ptr(this));
    for (zmq::socket_t* socket : {&requests, &stop_here, &stop_there}) {
      socket->set(zmq::sockopt::linger, 0);
    }
    stop_here.bind(stop);
    stop_there.connect(stop);
    requests.bind(zap_endpoint);
  }

  void serve() {
    zmq::pollitem_t items[] = {{requests.handle(), 0, ZMQ_POLLIN, 0},
                               {stop_here.handle(), 0, ZMQ_POLLIN, 0}};
    while (true) {
      try {
        zmq::poll(items, 2, std::chrono::milliseconds(-1));
        if ((items[1].revents & ZMQ_POLLIN) != 0) return;
        if ((items[0].revents & ZMQ_POLLIN) == 0) continue;
        send_parts(requests, answer(receive_parts(requests)));
      } catch (const zmq::error_t& failed) {
        if (failed.num() != EINTR) return;   // ETERM: the context is going
      }
    }
  }

  // Request: version, request id, domain, address, routing id, mechanism, key (32 bytes).
  std::vector<std::string> answer(const std::vector<std::string>& request) {
    const std::string id = request.size() > 1 ? request[1] : std::string();
    std::string key;
    if (request.size() == 7 && request[0] == "1.0" && request[5] == "CURVE" &&
        request[6].size() == 32) {
      char text[key_chars + 1] = {};
      zmq_z85_encode(text, reinterpret_cast<const std::uint8_t*>(request[6].data()), 32);
      key = text;
    }
    if (!key.empty() && allowed.admits(key)) return {"1.0", id, "200", "OK", key, ""};
    refused.fetch_add(1, std::memory_order_relaxed);
    return {"1.0", id, "400", "this key is not admitted", "", ""};
  }
};

Result<std::unique_ptr<AdmissionGate>> AdmissionGate::open(zmq::context_t& context,
                                                           std::string allowed_file) {
  try {
    auto state = std::make_unique<State>(context, std::move(allowed_file));
    state->thread = std::thread([raw = state.get()] { raw->serve(); });
    return std::unique_ptr<AdmissionGate>(new AdmissionGate(std::move(state)));
  } catch (const std::exception& failed) {
    return Error{ErrorCode::io, fmt::format("cannot open the admission gate: {}", failed.what()),
                 zap_endpoint, ""};
  }
}

AdmissionGate::AdmissionGate(std::unique_ptr<State> state) : state_(std::move(state)) {}

AdmissionGate::~AdmissionGate() {
  try {
    state_->stop_there.send(zmq::str_buffer("stop"), zmq::send_flags::dontwait);
  } catch (const zmq::error_t&) {
    // The context is shut down already, and with it the thread's poll.
  }
  state_->thread.join();
}

std::int64_t AdmissionGate::refused() const {
  return state_->refused.load(std::memory_order_relaxed);
}

}  // namespace nightshift
