// SPDX-License-Identifier: Apache-2.0
// TCP sockets of the ranks' meeting: non-blocking, close on exec, watched by the kernel for a host that vanishes.
#pragma once
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file.h"

namespace sf::comm {

// Numeric addresses of a host, in the resolver's order. kUnavailable if there are none.
std::vector<std::string> addresses_of(const std::string& host);
bool is_loopback(const std::string& address);

// Listens on `address` ("" for every one). port 0: the kernel chooses. Invalid, with errno, if that is refused.
UniqueFd listen_on(const std::string& address, int port);
// Connects from `from` ("" for the route's own). Invalid if refused or too late.
UniqueFd connect_to(const std::string& address, int port, const std::string& from, Deadline deadline);
UniqueFd accept_from(int listener);  // invalid if nobody is there
// Ends within 5 s when the peer's host has gone, though nothing is said; a stopped process does not count as gone.
void watch_peer(int socket);

int port_of(int socket);
std::string own_address(int socket);
std::string host_name();

}  // namespace sf::comm
