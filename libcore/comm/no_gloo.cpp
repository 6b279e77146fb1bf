// SPDX-License-Identifier: Apache-2.0
// In place of gloo.cpp where this LibTorch does not link with it.
#include "base/error.h"
#include "comm/network.h"

namespace sf::comm {

std::unique_ptr<Group> make_gloo(std::shared_ptr<Meeting>, std::shared_ptr<shm::Region>, int, Deadline) {
  fail(Exit::kUnavailable,
       "comm.group = \"gloo\": the LibTorch of this build has no usable Gloo; ranks of one host "
       "can use shm");
}

}  // namespace sf::comm
