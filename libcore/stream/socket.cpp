// SPDX-License-Identifier: Apache-2.0
#include "stream/socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <zmq.hpp>

#include "base/error.h"

namespace sf::stream {
namespace {

constexpr int kHandshakeMs = 5000;

void set_limits(zmq::socket_t& socket, int linger_ms) {
  socket.set(zmq::sockopt::linger, linger_ms);
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(kChunkBytes));
  socket.set(zmq::sockopt::sndhwm, 0);  // credit bounds bytes; a full queue here would block heartbeats
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::reconnect_ivl, 50);
  socket.set(zmq::sockopt::reconnect_ivl_max, 1000);
}

void release(void*, void* hint) {
  delete static_cast<std::shared_ptr<const void>*>(hint);
}

zmq::message_t message_of(std::span<const std::byte> payload, std::shared_ptr<const void> keep) {
  if (!keep || payload.empty()) return zmq::message_t(payload.data(), payload.size());
  auto* hint = new std::shared_ptr<const void>(std::move(keep));
  return zmq::message_t(const_cast<std::byte*>(payload.data()), payload.size(), release, hint);
}

}  // namespace

struct Sockets::Impl {
  zmq::context_t context{1};
};

struct Socket::Impl {
  zmq::socket_t socket;
  bool router;
};

Sockets::Sockets() : impl_(std::make_unique<Impl>()) {}
Sockets::~Sockets() = default;

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
    // No high-water mark: these never block; ROUTER_MANDATORY makes an unknown peer an error of the first part.
    if (impl_->router) impl_->socket.send(zmq::buffer(peer), zmq::send_flags::sndmore);
    impl_->socket.send(zmq::buffer(header), zmq::send_flags::sndmore);
    impl_->socket.send(std::move(payload), zmq::send_flags::none);
    return true;
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

Ready wait(const Socket* first, const Socket* second, int wake_fd, int life_fd, short life_events, int timeout_ms) {
  zmq_pollitem_t items[4];
  int count = 0;
  auto add = [&](void* socket, int fd, short events) { items[count] = {socket, fd, events, 0}, ++count; };
  if (first) add(first->native(), 0, ZMQ_POLLIN);
  if (second) add(second->native(), 0, ZMQ_POLLIN);
  add(nullptr, wake_fd, ZMQ_POLLIN);
  // zmq_poll reports POLLERR and POLLHUP of a descriptor as ZMQ_POLLERR; poll(2) tells them apart afterwards.
  if (life_fd >= 0) add(nullptr, life_fd, static_cast<short>(life_events ? ZMQ_POLLIN : ZMQ_POLLERR));
  int rc = zmq_poll(items, count, timeout_ms);
  if (rc < 0 && zmq_errno() != EINTR) fail(Exit::kSoftware, "zmq_poll: {}", zmq_strerror(zmq_errno()));
  Ready ready;
  int at = 0;
  if (first) ready.first = items[at++].revents & ZMQ_POLLIN;
  if (second) ready.second = items[at++].revents & ZMQ_POLLIN;
  ready.wake = items[at].revents & ZMQ_POLLIN;
  if (life_fd >= 0) {
    pollfd life{life_fd, life_events, 0};
    if (::poll(&life, 1, 0) > 0) ready.life = life.revents;
  }
  return ready;
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
