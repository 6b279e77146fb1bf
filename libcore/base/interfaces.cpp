// SPDX-License-Identifier: Apache-2.0
#include "base/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <memory>

#include "base/error.h"

namespace sf {

std::string numeric_text(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = {};
  return getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

std::string address_of_interface(const std::string& interface) {
  in6_addr any{};
  if (inet_pton(AF_INET, interface.c_str(), &any) == 1 || inet_pton(AF_INET6, interface.c_str(), &any) == 1)
    return interface;
  ifaddrs* first = nullptr;
  SF_CHECK(getifaddrs(&first) == 0, Exit::kOs, "cannot list network interfaces: {}", errno_text(errno));
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, freeifaddrs);
  std::string names;
  for (int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = first; at; at = at->ifa_next) {
      if (!at->ifa_addr || at->ifa_addr->sa_family != family) continue;
      if (interface == at->ifa_name)
        return numeric_text(at->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      if (family == AF_INET) names += (names.empty() ? "" : ", ") + std::string(at->ifa_name);
    }
  }
  fail(Exit::kConfig, "comm.interface = \"{}\": this host has {}", interface, names);
}

}  // namespace sf
