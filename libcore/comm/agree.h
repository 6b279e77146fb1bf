// SPDX-License-Identifier: Apache-2.0
// An error on one rank is an error on all.
#pragma once
#include <functional>

#include "comm/group.h"

namespace sf::comm {

// Every rank calls it. `body` makes no call of the group, or fails on all ranks alike. Of several ranks that fail the
// first ends all, with its status and the same words: "rank 1 in TAG: what it said".
void agree(Group& group, const Call& call, const std::function<void()>& body);

}  // namespace sf::comm
