// SPDX-License-Identifier: Apache-2.0
// ZeroMQ as the stream uses it: one context, sockets with every limit set, frames in and out. Sockets belong to one
// thread at a time.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stream/frame.h"

namespace sf::stream {

// A message that came in. `payload` points into the message that this struct owns.
struct Received {
  std::string peer;  // routing id, empty on a DEALER
  FrameHeader header;
  std::span<const std::byte> payload;
  std::shared_ptr<void> owner;
};

class Sockets;

// A Curve25519 key pair as ZeroMQ writes it: Z85, 40 letters each.
struct KeyPair {
  std::string open, secret;
};
KeyPair make_key_pair();
inline constexpr size_t kKeyLetters = 40;
bool is_key(std::string_view text);

class Socket {
 public:
  void encrypt_as_server(const KeyPair& own);  // before bind(); who may come is said by Sockets::admit
  void encrypt_as_client(const KeyPair& own, const std::string& server);  // before connect()
  ~Socket();
  Socket(Socket&&) noexcept;
  std::string bind(const std::string& address);  // the address with its port; kUnavailable
  void connect(const std::string& address);      // never blocks; kData: not an address
  void* native() const;                          // for zmq_poll

  // Never blocks. False: the ROUTER has no such peer (it is gone), or the DEALER was refused. `keep` is released when
  // ZeroMQ needs the payload no more; without it the payload is copied.
  bool send(const std::string& peer, const Frame& frame, std::shared_ptr<const void> keep = nullptr);
  bool send_text(const std::string& peer, Kind kind, std::string_view text);
  // The next message that is waiting; nullopt: none. kData, kProtocol as decode_header; a bad message is consumed.
  std::optional<Received> receive();

 private:
  friend class Sockets;
  struct Impl;
  explicit Socket(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Sockets {
 public:
  Sockets();
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Socket router(int linger_ms);
  Socket dealer(const std::string& routing_id, int linger_ms);
  // Of encrypted connections only those whose open key is listed are let in; to be called before any bind(). A thread
  // of its own answers, until destruction.
  void admit(std::vector<std::string> open_keys);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// True for what a socket may bind to without encryption: tcp://127.x.y.z, tcp://[::1], tcp://localhost.
bool is_loopback(std::string_view address);

// Waits until one of the sockets or the eventfd has something, or the life descriptor (-1: none) shows one of
// `life_events`, POLLERR or POLLHUP; its poll(2) bits.
short wait(std::span<const Socket* const> sockets, int wake_fd, int life_fd, short life_events, int timeout_ms);

// Counts up to one: whoever waits on fd() wakes up.
class Wake {
 public:
  Wake();
  ~Wake();
  Wake(const Wake&) = delete;
  int fd() const { return fd_; }
  void ring();
  void clear();

 private:
  int fd_;
};

}  // namespace sf::stream
