// SPDX-License-Identifier: Apache-2.0
// Flow control of a producer: which position is computed next and who gets it. Pure: no sockets, no threads, no clock.
// Bytes in flight to a rank (sent, not yet taken by its caller) stay below its credit plus one sample, and plus one
// more that a caller waits for now: such a position passes whatever the credit, so a full window can never block its
// own head.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "stream/frame.h"

namespace sf::stream {

inline constexpr size_t kMaxQueued = 65536;  // positions one rank may have waiting

class Flow {
 public:
  using Peer = std::string;

  void join(const Peer& peer, size_t credit_bytes);  // a known peer starts afresh
  void drop(const Peer& peer);                       // forgets what it asked and holds
  bool knows(const Peer& peer) const { return peers_.contains(peer); }
  // Asking twice is idempotent: a position that waits or is in flight stays as it is (`now` makes it urgent); it is
  // sent a second time only after it landed. kData if more than kMaxQueued of its positions wait already.
  void ask(const Peer& peer, const Ask& ask);

  // The lowest position that an eligible rank asks for; or the lowest ones, up to `most`, to be computed together: as
  // many as are expected to find room. The first sample is computed alone: it shows how large one is.
  std::optional<uint64_t> next() const;
  std::vector<uint64_t> next(size_t most) const;
  // The sample of this position is ready: the ranks that get it, charged with its bytes. Others go on asking.
  std::vector<Peer> serve(uint64_t position, size_t bytes);

  size_t in_flight(const Peer& peer) const;  // bytes
  size_t in_flight() const;
  size_t queued(const Peer& peer) const;  // positions asked and not served
  size_t queued() const;

  auto operator<=>(const Flow&) const = default;

 private:
  struct State {
    size_t credit = 0;
    std::set<uint64_t> now, want;       // disjoint
    std::map<uint64_t, size_t> flying;  // position -> bytes
    size_t flying_bytes = 0;
    auto operator<=>(const State&) const = default;
  };
  bool has_room(const State& state, size_t promised = 0) const;
  static void land(State& state, uint64_t position);

  std::map<Peer, State> peers_;
  size_t largest_ = 0;  // bytes of the largest sample so far: what the next one is expected to take
};

}  // namespace sf::stream
