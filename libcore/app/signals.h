// SPDX-License-Identifier: Apache-2.0
// Signals become flags. Nothing but the flags, one wake-up byte and, for a second request to stop, death happens in a
// handler.
#pragma once
#include <string>

#include "app/command.h"

namespace sf::app {

// A request to stop that comes before requested_stop() was called for the first time: kept, death by the signal at
// once, or exit 75 at once.
enum class Early { kFlag, kDie, kAgain };

// TERM, HUP, INT, USR1 ask for an end; USR2 for a checkpoint; QUIT for a report. PIPE is ignored. INT and HUP stay
// ignored where they were when the program started (nohup, background jobs). `prefix` starts the handler's own lines.
void install_signals(const std::string& prefix, Early early);
// What was asked so far; a USR2 is told once.
Stop requested_stop();
int requested_stop_signal();
// Becomes readable when QUIT arrives; -1 before install_signals. The reader takes the bytes away.
int quit_descriptor();
// Makes it readable without a signal.
void wake_quit_reader();

}  // namespace sf::app
