// SPDX-License-Identifier: Apache-2.0
// Network interfaces of this host.
#pragma once
#include <sys/socket.h>

#include <string>

namespace sf {

// The address of an interface ("eth0"), IPv4 before IPv6; a numeric address of this host is returned as it is. kConfig
// names the interfaces there are.
std::string address_of_interface(const std::string& interface);
std::string numeric_text(const sockaddr* address, socklen_t size);  // "" for none

}  // namespace sf
