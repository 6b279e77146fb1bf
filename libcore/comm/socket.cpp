// SPDX-License-Identifier: Apache-2.0
#include "comm/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/interfaces.h"

namespace sf::comm {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// A numeric address; "" is every address of this host.
SocketAddress numeric(const std::string& address, int port) {
  SocketAddress result;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const char* host = address.empty() ? "0.0.0.0" : address.c_str();
  int error = getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  SF_CHECK(error == 0, Exit::kConfig, "{} is not a numeric address: {}", host, gai_strerror(error));
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.size = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

UniqueFd new_socket(const SocketAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  SF_CHECK(fd.valid(), Exit::kOs, "cannot make a socket: {}", errno_text(errno));
  return fd;
}

void set_option(int socket, int level, int name, int value) {
  setsockopt(socket, level, name, &value, sizeof value);
}

}  // namespace

std::vector<std::string> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  SF_CHECK(error == 0, Exit::kUnavailable,
           "the host of rank 0 ({}) has no address here: {}; give comm.meet = \"ADDRESS\" or set MASTER_ADDR", host,
           gai_strerror(error));
  std::vector<std::string> result;
  for (addrinfo* at = found; at; at = at->ai_next) result.push_back(numeric_text(at->ai_addr, at->ai_addrlen));
  freeaddrinfo(found);
  return result;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

UniqueFd listen_on(const std::string& address, int port) {
  SocketAddress where = numeric(address, port);
  UniqueFd fd = new_socket(where);
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(fd.get(), where.get(), where.size) != 0 || listen(fd.get(), 128) != 0) return UniqueFd();
  return fd;
}

UniqueFd connect_to(const std::string& address, int port, const std::string& from, Deadline deadline) {
  SocketAddress where = numeric(address, port);
  UniqueFd fd = new_socket(where);
  if (!from.empty()) {
    SocketAddress own = numeric(from, 0);
    SF_CHECK(bind(fd.get(), own.get(), own.size) == 0, Exit::kConfig, "cannot use the address {}: {}", from,
             errno_text(errno));
  }
  if (connect(fd.get(), where.get(), where.size) != 0 && errno != EINPROGRESS) return UniqueFd();
  pollfd wait{fd.get(), POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof error;
  if (poll(&wait, 1, deadline.left_ms()) != 1) return UniqueFd();
  if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) return UniqueFd();
  return fd;
}

UniqueFd accept_from(int listener) {
  return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

void watch_peer(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 4000);
}

int port_of(int socket) {
  SocketAddress own;
  if (getsockname(socket, own.get(), &own.size) != 0) return 0;
  return ntohs(own.storage.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&own.storage)->sin_port
                                                : reinterpret_cast<sockaddr_in6*>(&own.storage)->sin6_port);
}

std::string own_address(int socket) {
  SocketAddress own;
  return getsockname(socket, own.get(), &own.size) == 0 ? numeric_text(own.get(), own.size) : "";
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

}  // namespace sf::comm
