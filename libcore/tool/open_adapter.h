// SPDX-License-Identifier: Apache-2.0
// --adapter: an adapter beside the target it was made for.
#pragma once
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "app/command.h"
#include "ckpt/adapter.h"

namespace sf::tool {

// --adapter, if it is given.
std::optional<std::filesystem::path> adapter_option(const app::Invocation& invocation);
// None if `dir` is none. kProtocol if its manifest names another target, or it is merged into this one; one without a
// manifest (PEFT's own) is taken on trust, with a warning. Further errors: ckpt::AdapterFiles::open.
std::optional<ckpt::AdapterFiles> open_adapter(app::Invocation& invocation, const ckpt::Checkpoint& target,
                                               const std::optional<std::filesystem::path>& dir);
// --adapter of a training verb. kConfig if it asks for what is not trained (dropout).
std::optional<ckpt::AdapterFiles> open_trained_adapter(app::Invocation& invocation, const ckpt::Checkpoint& target);
// In the manifest of a run's checkpoints: the identity of the adapter that the run began with.
inline constexpr const char* kBeganWith = "adapter";
// Of a run that goes on from `before`: kConfig if that trained what `adapter` is not, or kept it in another type than
// `dtype` ("fp32", "bf16"), naming the setting that differs; kProtocol with both identities if the run began with
// another adapter of the same settings.
void check_same_adapter(const ckpt::Checkpoint& before, const std::optional<ckpt::AdapterFiles>& adapter,
                        std::string_view dtype);
std::vector<arch::Adapter> adapters_in(const std::optional<ckpt::AdapterFiles>& adapter);

}  // namespace sf::tool
