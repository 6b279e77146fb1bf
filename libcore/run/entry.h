// SPDX-License-Identifier: Apache-2.0
// The dlopen border: every verb that computes has one extern "C" function here. LibTorch's exceptions become sf::Error
// (which crosses the border); nothing else leaves.
#pragma once
#include <functional>

#include "app/command.h"

namespace sf::run {

// Runs `body` under the engine's settings of LibTorch (no global autograd surprises, our allocator installed) and
// translates c10::Error to kSoftware, std::bad_alloc to kOs.
int guarded(app::Invocation& invocation, const std::function<int()>& body);

// Threads for this process, as tool::apply_threads says.
void apply_threads(app::Invocation& invocation, std::string_view key, int ranks_here);

}  // namespace sf::run
