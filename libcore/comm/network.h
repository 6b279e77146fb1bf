// SPDX-License-Identifier: Apache-2.0
// Groups of ranks that found each other by a meeting (comm/meeting.h).
#pragma once
#include <memory>

#include "comm/group.h"
#include "comm/meeting.h"

namespace sf::comm {

// c10d's Gloo over TCP, on this rank's address of the meeting. The fold is an exchange of pieces and our own additions,
// so every result equals shm's bit for bit. `board`: the meeting's own, or a supervisor's. kUnavailable if a rank does
// not connect before the deadline, or if this LibTorch has no usable Gloo.
// The process must ignore SIGPIPE, as every command does: Gloo writes to connections that have ended.
std::unique_ptr<Group> make_gloo(std::shared_ptr<Meeting> meeting, std::shared_ptr<shm::Region> board, int rank,
                                 Deadline deadline);
// kUsage on every rank if a launcher gave two ranks of one host the same place on it.
void check_local_ranks(Meeting& meeting, int rank, int world, int local_rank, Deadline deadline);
// True on every rank if all of them can share memory: one host, one user, one view of processes.
bool on_one_host(Meeting& meeting, int rank, int world, Deadline deadline);
// Ranks of one host that nobody forked together: rank 0 makes the memory file, the others open it through /proc.
std::unique_ptr<Group> make_shm(Meeting& meeting, int rank, int world, Deadline deadline);

}  // namespace sf::comm
