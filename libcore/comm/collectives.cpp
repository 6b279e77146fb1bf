// SPDX-License-Identifier: Apache-2.0
// The calls of SteppedGroup.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "comm/checks.h"
#include "comm/stepped.h"

namespace sf::comm {
namespace {

constexpr size_t kGivenPiece = size_t{1} << 14;  // elements

size_t steps_of(size_t total, size_t piece) {
  return total / piece + (total % piece != 0 ? 1 : 0);
}

uint64_t digest_of(std::string_view operation, std::string_view tag, std::span<const size_t> sizes) {
  Xxh3 hash;
  hash.update(std::as_bytes(std::span(operation)));
  hash.update(std::as_bytes(std::span(tag)));
  hash.update(std::as_bytes(sizes));
  return hash.digest();
}

}  // namespace

// Marks the rank as waiting in a call for the reports, here and in the undivided group, and back when it leaves.
class SteppedGroup::InCall {
 public:
  InCall(SteppedGroup& group, const Call& call) {
    slots_.push_back(&group.board_->slot(group.rank_));
    if (group.place_.root && !group.place_.aside) slots_.push_back(&group.place_.root->slot(group.root_rank(group.rank_)));
    for (shm::RankSlot* slot : slots_) {
      slot->tag.store(call.tag);
      slot->since_ns.store(shm::now_ns());
      slot->calls.fetch_add(1);
      slot->in_call.store(1);
    }
    ++group.traffic_.calls;
  }
  ~InCall() {
    for (shm::RankSlot* slot : slots_) {
      slot->in_call.store(0);
      slot->since_ns.store(shm::now_ns());
    }
  }

 private:
  std::vector<shm::RankSlot*> slots_;
};

void SteppedGroup::barrier(const Call& call) {
  InCall guard(*this, call);
  announce(digest_of("barrier", call.tag, {}), true, call);
  meet({}, call);
  end_step();
}

void SteppedGroup::copy_out(std::span<const GatherPart> parts, const Pieces& pieces, int peer, size_t lo, size_t hi) {
  for_range(parts, peer, lo, hi, [&](const GatherPart& part, size_t offset, size_t at, size_t bytes) {
    std::memcpy(part.into.data() + place_of(part, peer) + offset, from(peer, pieces) + (at - lo), bytes);
    traffic_.bytes_received += bytes;
  });
}

void SteppedGroup::all_gather(std::span<const GatherPart> parts, const Call& call) {
  InCall guard(*this, call);
  std::vector<size_t> sizes, totals(static_cast<size_t>(world_), 0);
  for (const GatherPart& part : parts) {
    check_part(part, rank_, world_);
    sizes.insert(sizes.end(), part.sizes.begin(), part.sizes.end());
    for (size_t r = 0; r < totals.size(); ++r) totals[r] += part.sizes[r];
    std::byte* place = part.into.data() + place_of(part, rank_);
    if (!part.mine.empty() && place != part.mine.data()) std::memmove(place, part.mine.data(), part.mine.size());
  }
  uint64_t digest = digest_of("all_gather", call.tag, sizes);
  size_t piece = area_bytes();
  size_t steps = std::max<size_t>(1, steps_of(*std::max_element(totals.begin(), totals.end()), piece));
  for (size_t step = 0; step < steps; ++step) {
    size_t lo = step * piece, hi = lo + piece;
    for_range(parts, rank_, lo, hi, [&](const GatherPart& part, size_t offset, size_t at, size_t bytes) {
      copy_for_peers(mine().data() + (at - lo), part.mine.data() + offset, bytes);
      traffic_.bytes_sent += bytes;
    });
    Pieces pieces{.bytes = [&](int peer, int) {
      size_t total = totals[static_cast<size_t>(peer)];
      return std::min(total, hi) - std::min(total, lo);
    }};
    announce(digest, true, call);
    meet(pieces, call);
    for (int peer = 0; peer < world_; ++peer) {
      if (peer != rank_) copy_out(parts, pieces, peer, lo, hi);
    }
    end_step();
  }
}

// One fold: whose elements these are, and how a piece of this rank's gradient reaches a peer's area or the sum.
struct SteppedGroup::Fold {
  bool present = false;
  std::span<const size_t> offsets;
  std::span<float> acc;
  std::function<void(std::byte* to, size_t from, size_t count)> send;
  std::function<void(std::span<float> acc, size_t from)> add;
};

void SteppedGroup::reduce_fold(std::span<const float> gradient, bool mine_present, std::span<const size_t> offsets,
                               std::span<float> acc, const Call& call) {
  check_fold(gradient, mine_present, offsets, acc, rank_, world_);
  auto send = [&](std::byte* to, size_t from, size_t count) {
    copy_for_peers(to, reinterpret_cast<const std::byte*>(gradient.data() + from), count * sizeof(float));
  };
  run_fold({mine_present, offsets, acc, send,
            [&](std::span<float> sum, size_t from) { fold_into(sum, gradient.data() + from); }},
           call);
}

void SteppedGroup::reduce_given(const GiveGradient& give, bool mine_present, std::span<const size_t> offsets,
                                std::span<float> acc, const Call& call) {
  check_fold({}, false, offsets, acc, rank_, world_);
  std::vector<float> piece(mine_present ? kGivenPiece : 0);  // stays in the cache between being given and being read
  auto by_pieces = [&](size_t from, size_t count, const auto& use) {
    for (size_t at = 0; at < count; at += kGivenPiece) {
      std::span<float> part = std::span(piece).first(std::min(kGivenPiece, count - at));
      give(from + at, part);
      use(at, part);
    }
  };
  auto send = [&](std::byte* to, size_t from, size_t count) {
    by_pieces(from, count, [&](size_t at, std::span<const float> part) {
      copy_for_peers(to + at * sizeof(float), reinterpret_cast<const std::byte*>(part.data()), part.size_bytes());
    });
  };
  auto add = [&](std::span<float> sum, size_t from) {
    by_pieces(from, sum.size(),
              [&](size_t at, std::span<const float> part) { fold_into(sum.subspan(at, part.size()), part.data()); });
  };
  run_fold({mine_present, offsets, acc, send, add}, call);
}

void SteppedGroup::run_fold(const Fold& fold, const Call& call) {
  InCall guard(*this, call);
  std::span<const size_t> offsets = fold.offsets;
  uint64_t digest = digest_of("reduce_fold", call.tag, offsets);
  size_t window = area_bytes() / sizeof(float) / static_cast<size_t>(world_);
  size_t longest = 0;
  for (size_t r = 0; r + 1 < offsets.size(); ++r) longest = std::max(longest, offsets[r + 1] - offsets[r]);
  size_t steps = std::max<size_t>(1, steps_of(longest, window));
  auto clipped = [&](size_t owner, size_t step) {
    size_t size = offsets[owner + 1] - offsets[owner], lo = std::min(size, step * window);
    return std::pair(lo, std::min(size, lo + window));
  };
  for (size_t step = 0; step < steps; ++step) {
    for (size_t owner = 0; fold.present && owner + 1 < offsets.size(); ++owner) {
      auto [lo, hi] = clipped(owner, step);
      if (owner == static_cast<size_t>(rank_) || lo == hi) continue;
      fold.send(mine().data() + owner * window * sizeof(float), offsets[owner] + lo, hi - lo);
      traffic_.bytes_sent += (hi - lo) * sizeof(float);
    }
    Pieces pieces{.window = window * sizeof(float), .bytes = [&](int giver, int owner) {
                    auto [lo, hi] = clipped(static_cast<size_t>(owner), step);
                    return giver != owner && present(giver) ? (hi - lo) * sizeof(float) : 0;
                  }};
    announce(digest, fold.present, call);
    meet(pieces, call);
    auto [lo, hi] = clipped(static_cast<size_t>(rank_), step);
    for (int turn = 0; turn < world_ && lo < hi; ++turn) {
      int peer = fault("comm.own_first") ? (turn + rank_) % world_ : turn;
      if (!present(peer)) continue;
      std::span<float> sum = fold.acc.subspan(lo, hi - lo);
      if (peer == rank_) {
        fold.add(sum, offsets[static_cast<size_t>(rank_)] + lo);
      } else {
        fold_into(sum, reinterpret_cast<const float*>(from(peer, pieces)));
        traffic_.bytes_received += sum.size_bytes();
      }
    }
    end_step();
  }
}

void SteppedGroup::all_reduce_sum(std::span<int64_t> values, const Call& call) {
  InCall guard(*this, call);
  size_t count = values.size();
  uint64_t digest = digest_of("all_reduce_sum", call.tag, std::span<const size_t>(&count, 1));
  size_t window = area_bytes() / sizeof(int64_t);
  size_t steps = std::max<size_t>(1, steps_of(count, window));
  for (size_t step = 0; step < steps; ++step) {
    std::span<int64_t> part = values.subspan(step * window, std::min(window, count - step * window));
    if (!part.empty()) std::memcpy(mine().data(), part.data(), part.size_bytes());
    Pieces pieces{.bytes = [&](int, int) { return part.size_bytes(); }};
    announce(digest, true, call);
    meet(pieces, call);
    for (int peer = 0; peer < world_; ++peer) {
      if (peer == rank_) continue;
      const auto* theirs = reinterpret_cast<const int64_t*>(from(peer, pieces));
      for (size_t i = 0; i < part.size(); ++i) {
        part[i] = static_cast<int64_t>(static_cast<uint64_t>(part[i]) + static_cast<uint64_t>(theirs[i]));
      }
    }
    traffic_.bytes_sent += part.size_bytes();
    traffic_.bytes_received += part.size_bytes() * static_cast<size_t>(world_ - 1);
    end_step();
  }
}

void SteppedGroup::broadcast(std::span<std::byte> bytes, int root, const Call& call) {
  InCall guard(*this, call);
  SF_ASSERT(root >= 0 && root < world_);
  std::array<size_t, 2> what{bytes.size(), static_cast<size_t>(root)};
  uint64_t digest = digest_of("broadcast", call.tag, what);
  size_t piece = area_bytes();
  size_t steps = std::max<size_t>(1, steps_of(bytes.size(), piece));
  for (size_t step = 0; step < steps; ++step) {
    std::span<std::byte> part = bytes.subspan(step * piece, std::min(piece, bytes.size() - step * piece));
    bool sends = rank_ == root;
    if (sends && !part.empty()) std::memcpy(mine().data(), part.data(), part.size());
    Pieces pieces{.bytes = [&](int giver, int) { return giver == root ? part.size() : 0; }};
    announce(digest, true, call);
    meet(pieces, call);
    if (!sends && !part.empty()) std::memcpy(part.data(), from(root, pieces), part.size());
    (sends ? traffic_.bytes_sent : traffic_.bytes_received) += part.size();
    end_step();
  }
}

std::vector<std::vector<std::byte>> SteppedGroup::all_to_all(const std::vector<std::span<const std::byte>>& to,
                                                             const Call& call) {
  auto world = static_cast<size_t>(world_);
  SF_ASSERT(to.size() == world);
  // Sizes first: table[sender * world + receiver], known to all, so all agree on the number of steps.
  std::vector<size_t> given(world), table(world * world), row(world, world * sizeof(size_t));
  for (size_t r = 0; r < world; ++r) given[r] = to[r].size();
  all_gather(std::as_bytes(std::span(given)), row, std::as_writable_bytes(std::span(table)), call);
  InCall guard(*this, call);
  --traffic_.calls;
  uint64_t digest = digest_of("all_to_all", call.tag, table);
  size_t window = area_bytes() / world;
  size_t steps = steps_of(*std::max_element(table.begin(), table.end()), window);
  std::vector<std::vector<std::byte>> received(world);
  for (size_t r = 0; r < world; ++r) received[r].resize(table[r * world + static_cast<size_t>(rank_)]);
  auto clipped = [&](size_t size, size_t step) {
    size_t lo = std::min(size, step * window);
    return std::pair(lo, std::min(size, lo + window) - lo);
  };
  for (size_t step = 0; step < steps; ++step) {
    std::span<std::byte> area = mine();
    for (size_t r = 0; r < world; ++r) {
      auto [lo, bytes] = clipped(to[r].size(), step);
      if (bytes > 0) std::memcpy(area.data() + r * window, to[r].data() + lo, bytes);
      if (r != static_cast<size_t>(rank_)) traffic_.bytes_sent += bytes;
    }
    Pieces pieces{.window = window, .bytes = [&](int giver, int taker) {
                    return clipped(table[static_cast<size_t>(giver) * world + static_cast<size_t>(taker)], step).second;
                  }};
    announce(digest, true, call);
    meet(pieces, call);
    for (size_t r = 0; r < world; ++r) {
      auto [lo, bytes] = clipped(received[r].size(), step);
      if (bytes > 0) std::memcpy(received[r].data() + lo, from(static_cast<int>(r), pieces), bytes);
      if (r != static_cast<size_t>(rank_)) traffic_.bytes_received += bytes;
    }
    end_step();
  }
  return received;
}

}  // namespace sf::comm
