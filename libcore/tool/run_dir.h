// SPDX-License-Identifier: Apache-2.0
// Which directories a training run may take, and where it goes on.
#pragma once
#include <filesystem>
#include <optional>

#include "app/command.h"
#include "ckpt/checkpoint.h"
#include "stream/sample.h"

namespace sf::tool {

// What another verb published must not become a run's directory (kCantCreate).
void refuse_what_is_no_run(const std::filesystem::path& dir);
// Where --resume goes on in `dir`, if anywhere. A run that is there and not to be continued is refused (kCantCreate).
std::optional<std::filesystem::path> resume_point(app::Invocation& invocation, const std::filesystem::path& dir);
// For --plan: what the run would refuse of -o and --resume, a directory that cannot be made included; makes nothing.
// Returns what the run goes on from, if anything.
std::optional<ckpt::Checkpoint> check_run_dir(app::Invocation& invocation);
// Of a run that goes on from `before`: kProtocol naming the field if `samples` are not those it was trained on; a
// warning for each setting of [training] that differs.
void check_same_run(app::Invocation& invocation, const ckpt::Manifest& before, const stream::Contract& samples);

}  // namespace sf::tool
