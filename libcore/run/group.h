// SPDX-License-Identifier: Apache-2.0
// The ranks of a command, and what only the first of them does.
#pragma once
#include <functional>
#include <memory>
#include <string_view>

#include "app/command.h"
#include "comm/group.h"

namespace sf::run {

// [comm] and the launcher decide. auto: one process is single; ranks of one host share memory, whoever started them;
// others use Gloo. Every rank calls it; the group must not outlive the invocation.
std::unique_ptr<comm::Group> make_group(app::Invocation& invocation);

// Rank 0 runs `take`; the others wait. Its error is every rank's: "rank 0 in WHAT: ...".
void on_first_rank(comm::Group& group, std::string_view what, const std::function<void()>& take);

}  // namespace sf::run
