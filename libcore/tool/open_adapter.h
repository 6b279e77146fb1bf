// SPDX-License-Identifier: Apache-2.0
// --adapter: an adapter beside the target it was made for.
#pragma once
#include <optional>
#include <vector>

#include "app/command.h"
#include "ckpt/adapter.h"

namespace sf::tool {

// None if --adapter is not given. kProtocol if its manifest names another target; one without a manifest (PEFT's own)
// is taken on trust, with a warning. Further errors: ckpt::AdapterFiles::open.
std::optional<ckpt::AdapterFiles> open_adapter(app::Invocation& invocation, const ckpt::Checkpoint& target);
std::vector<arch::Adapter> adapters_in(const std::optional<ckpt::AdapterFiles>& adapter);

}  // namespace sf::tool
