// SPDX-License-Identifier: Apache-2.0
// One interface for every way ranks talk: single, threads, shm (processes of one host), gloo (comm/network.h).
// Every call carries a tag and a deadline; all ranks of a group issue the same calls in the same order.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"

namespace sf::comm {

// A call's name in reports ("gather layers.3", "fold midlayer"), and when to give up.
struct Call {
  std::string_view tag;
  Deadline deadline;
};

// Counters of one group, per rank, since its making.
struct Traffic {
  uint64_t calls = 0, bytes_sent = 0, bytes_received = 0;
  double seconds_waiting = 0;
};

// One tensor of a gather: this rank's piece, every rank's piece size (equal on all ranks), and where the pieces go,
// back to back in rank order. `mine` may already lie in its place inside `into`.
struct GatherPart {
  std::span<const std::byte> mine;
  std::span<const size_t> sizes;  // bytes
  std::span<std::byte> into;
};

// A gradient read piece by piece: writes its elements [from, from + to.size()). In any order, each element once, from
// the thread that makes the call.
using GiveGradient = std::function<void(size_t from, std::span<float> to)>;

// Errors of every call: kUnavailable when a peer died, left or gave up, or the deadline passed; kSoftware when ranks
// issue different calls. After an error the group is of no more use: every later call of any rank ends the same way.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual std::string_view kind() const = 0;  // "single", "threads", "shm", "gloo"

  // Every rank gives `mine` and receives all ranks' pieces back to back in rank order; pieces may differ in size
  // (sizes[r] bytes of rank r, equal on all ranks). No arithmetic: bit-exact for any type.
  virtual void all_gather(std::span<const GatherPart> parts, const Call& call) = 0;
  void all_gather(std::span<const std::byte> mine, std::span<const size_t> sizes, std::span<std::byte> into,
                  const Call& call) {
    GatherPart part{mine, sizes, into};
    all_gather(std::span<const GatherPart>(&part, 1), call);
  }
  // The fold: rank r owns elements [offsets[r], offsets[r+1]) of a vector of floats. Each rank that is `present` gives
  // a whole vector; the owner computes acc = ((acc + g_0) + g_1) + ... over present ranks in rank order, in fp32, into
  // `acc` (its own elements only). Same bits for every world size, given the same global order of micro-batches.
  virtual void reduce_fold(std::span<const float> gradient, bool present, std::span<const size_t> offsets,
                           std::span<float> acc, const Call& call) = 0;
  // The same for a gradient that lies together nowhere: no copy of the whole is made where pieces travel through areas.
  // `give` is not called unless present.
  virtual void reduce_given(const GiveGradient& give, bool present, std::span<const size_t> offsets,
                            std::span<float> acc, const Call& call);
  // Sums of integers are exact in any order.
  virtual void all_reduce_sum(std::span<int64_t> values, const Call& call) = 0;
  virtual void broadcast(std::span<std::byte> bytes, int root, const Call& call) = 0;
  // sizes[r] bytes go to rank r; returns what every rank sent us, in rank order.
  virtual std::vector<std::vector<std::byte>> all_to_all(const std::vector<std::span<const std::byte>>& to,
                                                         const Call& call) = 0;
  virtual void barrier(const Call& call) = 0;
  // Ranks that give the same colour get a group of their own, in this group's order; every rank calls it. Rows and
  // columns of a replicate x shard mesh: split(rank / shards) and split(rank % shards). Parts share the fate of the
  // whole: an end in one ends all. Reports name ranks of the whole.
  virtual std::unique_ptr<Group> split(int colour, const Call& call) = 0;
  // The same ranks once more, for the calls of one further thread of each, which no trace notes and no report tells. It
  // outlasts a rank's giving up here, for as long as that rank's own part of it is there; a death ends both. Every rank
  // calls it.
  virtual std::unique_ptr<Group> aside(const Call& call) = 0;
  virtual Traffic traffic() const = 0;
  // This rank will make no more calls, and why: ends every wait of its peers with kUnavailable. Idempotent.
  virtual void abandon(std::string_view reason) = 0;
  // One line a rank: who waits where since when, who computes, who is gone. May be called from any thread.
  virtual std::string state_text() const = 0;
};

std::unique_ptr<Group> make_single();
// `world` groups that share one process, for tests: call each from its own thread. Any world up to 128.
std::vector<std::unique_ptr<Group>> make_threads(int world);
// Processes of one host. `control_fd`: a memory file made by sf::shm::create_control before the fork (inherited;
// nothing is left in /dev/shm). Death of a peer ends every wait within 200 ms with kUnavailable: who died, who waits
// where since when.
std::unique_ptr<Group> make_shm(int control_fd, int rank, int world);

// Runs `body` once for each rank of a threads group, operators limited to one thread a rank. Of several errors it
// rethrows the first by rank that is not merely the news of another rank's end.
void run_threads(int world, const std::function<void(Group&)>& body);

}  // namespace sf::comm
