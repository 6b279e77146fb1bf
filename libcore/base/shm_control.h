// SPDX-License-Identifier: Apache-2.0
// The memory that the ranks of one host share: who lives, who waits where, one barrier, and an exchange area a rank.
// Known to the supervisor, which makes it before it forks, and to room comm, which talks through it. Free of LibTorch
// and threads.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/deadline.h"

namespace sf::shm {

inline constexpr int kMaxRanks = 128;
inline constexpr uint32_t kMagic = 0x53466374;
inline constexpr uint32_t kVersion = 3;

enum class Life : uint32_t { kAbsent, kAlive, kLeft, kFailed, kDead };

// A short text that one process writes and others read at any time, for reports: a torn read is a wrong word, never a
// race.
class SharedText {
 public:
  void store(std::string_view text);  // cut to 255 bytes
  std::string load() const;

 private:
  std::array<std::atomic<uint64_t>, 32> words_{};
};

// What a rank announces with each step of a call; two, because a fast rank may announce the next while a slow one
// reads.
struct Announced {
  std::atomic<uint64_t> digest{0};  // of operation, tag and sizes: equal on all ranks or the program is wrong
  std::atomic<uint32_t> present{0};
};

struct alignas(64) RankSlot {
  std::atomic<Life> life{Life::kAbsent};
  std::atomic<int32_t> pid{0};
  std::atomic<int64_t> since_ns{0};  // CLOCK_MONOTONIC of entering the call, or of leaving the last one
  std::atomic<uint64_t> calls{0};
  std::atomic<uint32_t> in_call{0};
  std::atomic<uint32_t> arrived{0};  // generation of the barrier it waits at, plus 1; of no meaning outside a call
  std::atomic<uint32_t> late{0};     // others gave up waiting for it: it may be ended by force
  SharedText tag;                    // of the current or last call
  SharedText reason;                 // of kFailed and kDead
  std::array<Announced, 2> announced;
};

struct Control {
  uint32_t magic = kMagic, version = kVersion;
  uint32_t world = 0;
  uint64_t half_bytes = 0;
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> generation{0};  // the futex word
  std::atomic<uint32_t> sleepers{0};
  std::atomic<uint64_t> told{0};     // hash of the first error that a rank told: an equal one is not told again
  std::atomic<uint32_t> culprit{0};  // rank + 1 of the first that died, failed or left: the one that reports name
  // The process that starts the ranks, writes their pids and says how each ended; 0: none does.
  std::atomic<int32_t> supervisor{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<Life>::is_always_lock_free);

// Maps a region and owns the mapping. Layout: Control, `world` RankSlots, `world` areas of two halves each, page
// aligned.
class Region {
 public:
  static std::shared_ptr<Region> map(int control_fd);  // kProtocol if the file is not such a region
  static std::shared_ptr<Region> anonymous(int world, size_t half_bytes);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  int world() const { return static_cast<int>(control().world); }
  size_t half_bytes() const { return control().half_bytes; }
  Control& control() const { return *reinterpret_cast<Control*>(base_); }
  RankSlot& slot(int rank) const;
  std::span<std::byte> area(int rank, unsigned half) const;

 private:
  Region(std::byte* base, size_t bytes) : base_(base), bytes_(bytes) {}
  std::byte* base_;
  size_t bytes_;
};

// A sealed memory file for `world` ranks (1 to kMaxRanks); the caller owns the descriptor (close on exec). Nothing
// appears in /dev/shm; the memory goes with the last process that maps it. kOs if the system refuses.
int create_control(int world, size_t half_bytes = size_t{1} << 20);

// Ends every wait: `rank` takes part no more. The first such word names the culprit of all later reports.
void end_rank(const Region& region, int rank, Life how, std::string_view reason);
// True if no rank has told this error yet, for one that is about to. Of an end that its own rank tells, others say
// nothing: true only where the culprit could not speak.
bool may_tell(const Region& region, int rank, std::string_view error);
void wake_all(const Region& region);
// Asked by a rank: has its supervisor ended? Then nobody tells how other ranks ended, nor starts those that are missing.
bool supervisor_is_gone(const Region& region);
// Sleeps until the word differs from `seen`, somebody wakes it, or `span` is over. May return early.
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, Seconds span);

// "rank 1 (pid 4711)", "rank 1 (pid 4711) died (killed by signal 9)", and one line a rank of who does what since when.
std::string rank_name(const Region& region, int rank);
std::string end_text(const Region& region, int rank);
std::string state_text(const Region& region);
int64_t now_ns();

}  // namespace sf::shm
