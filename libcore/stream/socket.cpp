// SPDX-License-Identifier: Apache-2.0
#include "stream/socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <thread>
#include <zmq.hpp>

#include "base/error.h"
#include "base/fault.h"

namespace sf::stream {
namespace {

constexpr int kHandshakeMs = 5000;
// ZeroMQ's limit counts what encryption adds to a message as well: CurveZMQ (RFC 26) 33 bytes.
constexpr size_t kSealBytes = 64;

void set_limits(zmq::socket_t& socket, int linger_ms) {
  socket.set(zmq::sockopt::linger, linger_ms);
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(kChunkBytes + kSealBytes));
  socket.set(zmq::sockopt::sndhwm, 0);  // credit bounds bytes; a full queue here would block heartbeats
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::reconnect_ivl, 50);
  socket.set(zmq::sockopt::reconnect_ivl_max, 1000);
}

// glibc gives the memory of a message of 1 MiB back to the system and faults it in again for the next, until it has
// seen a larger block come and go: then it keeps twice as much.
void keep_message_memory() {
  void* volatile block = std::malloc(31 * kChunkBytes);  // of 32 MiB and more it learns nothing; never touched
  std::free(block);
}

void release(void*, void* hint) {
  delete static_cast<std::shared_ptr<const void>*>(hint);
}

zmq::message_t message_of(std::span<const std::byte> payload, std::shared_ptr<const void> keep) {
  if (!keep || payload.empty()) return zmq::message_t(payload.data(), payload.size());
  auto* hint = new std::shared_ptr<const void>(std::move(keep));
  return zmq::message_t(const_cast<std::byte*>(payload.data()), payload.size(), release, hint);
}

// Answers ZeroMQ's question who may come in (ZAP, RFC 27).
class Gate {
 public:
  Gate(zmq::context_t& context, std::vector<std::string> open_keys)
      : allowed_(std::move(open_keys)), socket_(context, zmq::socket_type::rep) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.bind("inproc://zeromq.zap.01");
    thread_ = std::thread([this] { run(); });
  }
  void join() { thread_.join(); }

 private:
  // Version, request, domain, address, identity, mechanism, key; an answer for each question.
  void run() {
    try {
      for (;;) {
        std::vector<zmq::message_t> parts;
        do {
          parts.emplace_back();
          if (!socket_.recv(parts.back(), zmq::recv_flags::none)) return;
        } while (parts.back().more());
        bool in = parts.size() == 7 && parts[5].to_string_view() == "CURVE" && known(parts[6]);
        std::string request = parts.size() > 1 ? parts[1].to_string() : "";
        const std::string answer[] = {"1.0", request, in ? "200" : "400", in ? "OK" : "not on the list", "", ""};
        for (size_t i = 0; i < std::size(answer); ++i)
          socket_.send(zmq::buffer(answer[i]),
                       i + 1 < std::size(answer) ? zmq::send_flags::sndmore : zmq::send_flags::none);
      }
    } catch (const zmq::error_t&) {  // the context is shut down
    }
    socket_.close();
  }
  bool known(const zmq::message_t& key) const {
    char letters[kKeyLetters + 1];
    if (key.size() != 32 || !zmq_z85_encode(letters, static_cast<const uint8_t*>(key.data()), 32)) return false;
    return fault("stream.admit_anyone") || std::find(allowed_.begin(), allowed_.end(), letters) != allowed_.end();
  }

  std::vector<std::string> allowed_;
  zmq::socket_t socket_;
  std::thread thread_;
};

}  // namespace

struct Sockets::Impl {
  zmq::context_t context{1};
  std::unique_ptr<Gate> gate;
  ~Impl() {
    if (!gate) return;
    context.shutdown();
    gate->join();
  }
};

struct Socket::Impl {
  zmq::socket_t socket;
  bool router;
};

Sockets::Sockets() : impl_(std::make_unique<Impl>()) {
  keep_message_memory();
}
Sockets::~Sockets() = default;

void Sockets::admit(std::vector<std::string> open_keys) {
  impl_->gate = std::make_unique<Gate>(impl_->context, std::move(open_keys));
}

KeyPair make_key_pair() {
  char open[kKeyLetters + 1], secret[kKeyLetters + 1];
  SF_CHECK(zmq_curve_keypair(open, secret) == 0, Exit::kOs, "this libzmq was built without CURVE: {}",
           zmq_strerror(zmq_errno()));
  return {open, secret};
}

bool is_key(std::string_view text) {
  uint8_t bytes[32];
  return text.size() == kKeyLetters && zmq_z85_decode(bytes, std::string(text).c_str()) != nullptr;
}

Socket Sockets::router(int linger_ms) {
  zmq::socket_t socket(impl_->context, zmq::socket_type::router);
  set_limits(socket, linger_ms);
  socket.set(zmq::sockopt::router_mandatory, true);
  socket.set(zmq::sockopt::router_handover, true);  // a rank that reconnects is not shut out by its own dead connection
  return Socket(std::make_unique<Socket::Impl>(Socket::Impl{std::move(socket), true}));
}

Socket Sockets::dealer(const std::string& routing_id, int linger_ms) {
  zmq::socket_t socket(impl_->context, zmq::socket_type::dealer);
  set_limits(socket, linger_ms);
  socket.set(zmq::sockopt::routing_id, routing_id);
  return Socket(std::make_unique<Socket::Impl>(Socket::Impl{std::move(socket), false}));
}

Socket::Socket(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Socket::Socket(Socket&&) noexcept = default;
Socket::~Socket() = default;
void* Socket::native() const {
  return impl_->socket.handle();
}

void Socket::encrypt_as_server(const KeyPair& own) {
  impl_->socket.set(zmq::sockopt::curve_server, true);
  impl_->socket.set(zmq::sockopt::curve_secretkey, own.secret);
  impl_->socket.set(zmq::sockopt::zap_domain, "shardforge");
}

void Socket::encrypt_as_client(const KeyPair& own, const std::string& server) {
  impl_->socket.set(zmq::sockopt::curve_publickey, own.open);
  impl_->socket.set(zmq::sockopt::curve_secretkey, own.secret);
  impl_->socket.set(zmq::sockopt::curve_serverkey, server);
}

std::string Socket::bind(const std::string& address) {
  try {
    impl_->socket.bind(address);
    return impl_->socket.get(zmq::sockopt::last_endpoint);
  } catch (const zmq::error_t& error) {
    fail(Exit::kUnavailable, "cannot listen at {}: {}", address, error.what());
  }
}

void Socket::connect(const std::string& address) {
  try {
    impl_->socket.connect(address);
  } catch (const zmq::error_t& error) {
    fail(Exit::kData, "cannot connect to {}: {}", address, error.what());
  }
}

bool Socket::send(const std::string& peer, const Frame& frame, std::shared_ptr<const void> keep) {
  auto header = encode(frame.header);
  zmq::message_t payload = message_of(frame.payload, std::move(keep));
  try {
    // No high-water mark: only a DEALER whose connection was refused for good would block, and its first part fails;
    // ROUTER_MANDATORY makes an unknown peer an error of the first part.
    const auto more = zmq::send_flags::dontwait | zmq::send_flags::sndmore;
    if (impl_->router && !impl_->socket.send(zmq::buffer(peer), more)) return false;
    if (!impl_->socket.send(zmq::buffer(header), more)) return false;
    return impl_->socket.send(std::move(payload), zmq::send_flags::dontwait).has_value();
  } catch (const zmq::error_t& error) {
    if (error.num() == EHOSTUNREACH) return false;
    fail(Exit::kUnavailable, "cannot send: {}", error.what());
  }
}

bool Socket::send_text(const std::string& peer, Kind kind, std::string_view text) {
  auto payload = std::as_bytes(std::span(text.data(), text.size()));
  return send(peer, {header_for(kind, 0, 0, payload), payload});
}

std::optional<Received> Socket::receive() {
  Received received;
  std::vector<zmq::message_t> parts;
  size_t wanted = impl_->router ? 3 : 2, count = 0;
  bool more = true;
  while (more) {
    zmq::message_t part;
    if (!impl_->socket.recv(part, zmq::recv_flags::dontwait)) {
      if (count == 0) return std::nullopt;
      continue;  // the parts of one message arrive together
    }
    more = part.more();
    if (count++ < wanted) parts.push_back(std::move(part));
  }
  SF_CHECK(count == wanted, Exit::kData, "a message of {} parts, wanted {}", count, wanted);
  if (impl_->router) received.peer = parts[0].to_string();
  zmq::message_t& head = parts[wanted - 2];
  SF_CHECK(head.size() == kFrameHeaderBytes, Exit::kData, "a frame header has {} bytes, found {}", kFrameHeaderBytes,
           head.size());
  received.header = decode_header({static_cast<const std::byte*>(head.data()), head.size()});
  auto owner = std::make_shared<zmq::message_t>(std::move(parts[wanted - 1]));
  received.payload = {static_cast<const std::byte*>(owner->data()), owner->size()};
  received.owner = std::move(owner);
  return received;
}

bool is_loopback(std::string_view address) {
  // Digits only behind "127.": a host may be called 127.example.org.
  if (address.starts_with("tcp://127.")) return address.find_first_not_of("0123456789.:*", 6) == std::string_view::npos;
  return address.starts_with("tcp://[::1]:") || address.starts_with("tcp://localhost:");
}

short wait(std::span<const Socket* const> sockets, int wake_fd, int life_fd, short life_events, int timeout_ms) {
  std::vector<zmq_pollitem_t> items;
  for (const Socket* socket : sockets) items.push_back({socket->native(), 0, ZMQ_POLLIN, 0});
  items.push_back({nullptr, wake_fd, ZMQ_POLLIN, 0});
  // zmq_poll reports POLLERR and POLLHUP of a descriptor as ZMQ_POLLERR; poll(2) tells them apart afterwards.
  if (life_fd >= 0) items.push_back({nullptr, life_fd, static_cast<short>(life_events ? ZMQ_POLLIN : ZMQ_POLLERR), 0});
  int rc = zmq_poll(items.data(), static_cast<int>(items.size()), timeout_ms);
  if (rc < 0 && zmq_errno() != EINTR) fail(Exit::kSoftware, "zmq_poll: {}", zmq_strerror(zmq_errno()));
  pollfd life{life_fd, life_events, 0};
  return life_fd >= 0 && ::poll(&life, 1, 0) > 0 ? life.revents : 0;
}

Wake::Wake() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  SF_CHECK(fd_ >= 0, Exit::kOs, "eventfd: {}", errno_text(errno));
}
Wake::~Wake() {
  ::close(fd_);
}
void Wake::ring() {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t done = ::write(fd_, &one, sizeof one);  // EAGAIN: it rings already
}
void Wake::clear() {
  uint64_t count;
  [[maybe_unused]] ssize_t done = ::read(fd_, &count, sizeof count);
}

}  // namespace sf::stream
