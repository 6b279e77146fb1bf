// SPDX-License-Identifier: Apache-2.0
// --ranks N: one process that is not itself a rank starts N ranks on this host, before any thread, dlopen or ZeroMQ
// context exists, passes signals on, and ends with the status they agree on.
#pragma once
#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/deadline.h"

namespace sf::app {

struct SuperviseOptions {
  Seconds grace{60};                               // from the first rank that ends badly until the others are killed
  std::function<void(std::string_view line)> say;  // what the supervisor has to tell, one line each; may be empty
};

// Forks `ranks` processes; each runs child(rank, control_fd) and ends with its result (exceptions: 70, or the status of
// an sf::Error). control_fd is the group's memory file (comm::make_shm). Rank 0 keeps stdin and stdout; in every other
// process, the supervisor's included, they are /dev/null from then on. Ranks get SIGTERM should the supervisor die, and
// no rank then waits on for one that has ended or was never started. TERM, INT, HUP, USR1, USR2 and QUIT go to every
// rank; stop signals within 2 s count once; QUIT also says who waits where. When a rank dies the others learn of it
// through the memory file. Throws kOs if a rank cannot be started; kSoftware if a thread exists already.
int supervise(int ranks, const std::function<int(int rank, int control_fd)>& child,
              const SuperviseOptions& options = {});

// Makes these descriptors /dev/null. kOs if that cannot be.
void point_at_null(std::initializer_list<int> descriptors);

// The status of a run whose ranks ended so; entries are statuses, or -n for death by signal n. A killed rank (KILL)
// makes 69, another fatal signal 70; else the gravest: 0 < 1 < 75 (go on later) < 69 (a peer is gone, mostly an echo) <
// causes.
int agreed_status(const std::vector<int>& ends);

}  // namespace sf::app
