// SPDX-License-Identifier: Apache-2.0
#include "base/shm_control.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"

namespace sf::shm {
namespace {

constexpr size_t kPage = 4096;

size_t page_up(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}
size_t head_bytes(int world) {
  return page_up(sizeof(Control) + static_cast<size_t>(world) * sizeof(RankSlot));
}
size_t region_bytes(int world, size_t half_bytes) {
  return head_bytes(world) + static_cast<size_t>(world) * 2 * half_bytes;
}

void check_sizes(int world, size_t half_bytes) {
  SF_CHECK(world >= 1 && world <= kMaxRanks, Exit::kUsage, "a group of one host has 1 to {} ranks, not {}", kMaxRanks,
           world);
  SF_CHECK(half_bytes >= kPage && half_bytes % kPage == 0 && half_bytes <= (size_t{1} << 32), Exit::kSoftware,
           "exchange area of {} bytes", half_bytes);
}

void construct(std::byte* base, int world, size_t half_bytes) {
  auto* control = new (base) Control;
  control->world = static_cast<uint32_t>(world);
  control->half_bytes = half_bytes;
  for (int rank = 0; rank < world; ++rank) {
    new (base + sizeof(Control) + static_cast<size_t>(rank) * sizeof(RankSlot)) RankSlot;
  }
}

std::byte* map_bytes(size_t bytes, int flags, int fd) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  SF_CHECK(base != MAP_FAILED, Exit::kOs, "cannot map {} bytes shared by the ranks: {}", bytes, errno_text(errno));
  return static_cast<std::byte*>(base);
}

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* span) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, span, nullptr, 0);
}

double seconds_since(int64_t since) {
  return static_cast<double>(now_ns() - since) / 1e9;
}

}  // namespace

void SharedText::store(std::string_view text) {
  constexpr std::string_view kCut = "...";
  std::array<char, sizeof(words_)> bytes{};
  const size_t most = bytes.size() - 1;
  size_t length = text.size() > most ? most - kCut.size() : text.size();
  const bool cut = length < text.size();
  while (cut && length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80)
    --length;  // between characters
  std::memcpy(bytes.data(), text.data(), length);
  if (cut) std::memcpy(bytes.data() + length, kCut.data(), kCut.size());
  for (size_t i = 0; i < words_.size(); ++i) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i * sizeof word, sizeof word);
    words_[i].store(word, std::memory_order_relaxed);
  }
}

std::string SharedText::load() const {
  std::array<char, sizeof(words_)> bytes{};
  for (size_t i = 0; i < words_.size(); ++i) {
    uint64_t word = words_[i].load(std::memory_order_relaxed);
    std::memcpy(bytes.data() + i * sizeof word, &word, sizeof word);
  }
  return {bytes.data(), strnlen(bytes.data(), bytes.size())};
}

std::shared_ptr<Region> Region::map(int control_fd) {
  struct stat info {};
  SF_CHECK(fstat(control_fd, &info) == 0, Exit::kOs, "the group's memory file (descriptor {}): {}", control_fd,
           errno_text(errno));
  auto bytes = static_cast<size_t>(std::max<off_t>(info.st_size, 0));
  SF_CHECK(bytes >= sizeof(Control), Exit::kProtocol, "descriptor {} is not a group's memory file: {} bytes",
           control_fd, bytes);
  std::shared_ptr<Region> region(new Region(map_bytes(bytes, MAP_SHARED, control_fd), bytes));
  const Control& control = region->control();
  SF_CHECK(control.magic == kMagic && control.version == kVersion, Exit::kProtocol,
           "descriptor {} is not a group's memory file of version {}", control_fd, kVersion);
  check_sizes(static_cast<int>(control.world), control.half_bytes);
  SF_CHECK(region_bytes(region->world(), control.half_bytes) == bytes, Exit::kProtocol,
           "the group's memory file has {} bytes, its head promises {}", bytes,
           region_bytes(region->world(), control.half_bytes));
  return region;
}

std::shared_ptr<Region> Region::anonymous(int world, size_t half_bytes) {
  check_sizes(world, half_bytes);
  size_t bytes = region_bytes(world, half_bytes);
  std::shared_ptr<Region> region(new Region(map_bytes(bytes, MAP_SHARED | MAP_ANONYMOUS, -1), bytes));
  construct(region->base_, world, half_bytes);
  return region;
}

Region::~Region() {
  munmap(base_, bytes_);
}

RankSlot& Region::slot(int rank) const {
  SF_ASSERT(rank >= 0 && rank < world());
  return *reinterpret_cast<RankSlot*>(base_ + sizeof(Control) + static_cast<size_t>(rank) * sizeof(RankSlot));
}

std::span<std::byte> Region::area(int rank, unsigned half) const {
  SF_ASSERT(rank >= 0 && rank < world() && half < 2);
  size_t half_size = half_bytes();
  return {base_ + head_bytes(world()) + (static_cast<size_t>(rank) * 2 + half) * half_size, half_size};
}

int create_control(int world, size_t half_bytes) {
  check_sizes(world, half_bytes);
  int fd = memfd_create("shardforge-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  SF_CHECK(fd >= 0, Exit::kOs, "cannot make the group's memory file: {}", errno_text(errno));
  size_t bytes = region_bytes(world, half_bytes);
  // Sealed: nobody can cut the file under a mapping, so no access faults.
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    int number = errno;
    close(fd);
    fail(Exit::kOs, "cannot size the group's memory file to {} bytes: {}", bytes, errno_text(number));
  }
  std::byte* base = map_bytes(head_bytes(world), MAP_SHARED, fd);
  construct(base, world, half_bytes);
  munmap(base, head_bytes(world));
  return fd;
}

void end_rank(const Region& region, int rank, Life how, std::string_view reason) {
  RankSlot& slot = region.slot(rank);
  Life before = slot.life.load();
  if (before == Life::kDead || (before == Life::kFailed && how != Life::kDead)) return;
  slot.reason.store(reason);
  if (how != Life::kLeft) {
    uint32_t nobody = 0;
    region.control().culprit.compare_exchange_strong(nobody, static_cast<uint32_t>(rank) + 1);
  }
  slot.life.store(how);
  wake_all(region);
}

bool may_tell(const Region& region, int rank, std::string_view error) {
  if (fault("base.tell_all")) return true;
  int culprit = static_cast<int>(region.control().culprit.load()) - 1;
  if (culprit >= 0 && culprit != rank && region.slot(culprit).life.load() == Life::kFailed &&
      error.find(end_text(region, culprit)) != std::string_view::npos)
    return false;
  uint64_t hash = xxh3_64(error), nothing = 0;
  return region.control().told.compare_exchange_strong(nothing, hash) || nothing != hash;
}

bool supervisor_is_gone(const Region& region) {
  int32_t supervisor = region.control().supervisor.load();
  return supervisor != 0 && getppid() != supervisor;
}

void wake_all(const Region& region) {
  futex(region.control().generation, FUTEX_WAKE, INT_MAX, nullptr);
}

void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, Seconds span) {
  auto whole = static_cast<time_t>(span.count());
  timespec time{whole, static_cast<long>((span.count() - static_cast<double>(whole)) * 1e9)};
  futex(word, FUTEX_WAIT, seen, &time);
}

std::string rank_name(const Region& region, int rank) {
  return fmt::format("rank {} (pid {})", rank, region.slot(rank).pid.load());
}

std::string end_text(const Region& region, int rank) {
  const RankSlot& slot = region.slot(rank);
  std::string reason = slot.reason.load();
  std::string name = rank_name(region, rank);
  switch (slot.life.load()) {
    case Life::kDead:
      return reason.empty() ? name + " died" : fmt::format("{} died ({})", name, reason);
    case Life::kFailed:
      return fmt::format("{} gave up: {}", name, reason);
    case Life::kLeft:
      return name + " has left the group";
    default:
      return slot.late.load() != 0 ? name + " is late, the others gave up waiting for it" : name;
  }
}

std::string state_text(const Region& region) {
  std::string text;
  for (int rank = 0; rank < region.world(); ++rank) {
    const RankSlot& slot = region.slot(rank);
    Life life = slot.life.load();
    std::string what;
    if (life == Life::kAbsent) {
      what = fmt::format("rank {} has not joined", rank);
    } else if (life != Life::kAlive) {
      what = end_text(region, rank);
    } else if (slot.in_call.load() != 0) {
      what = fmt::format("{} waits in {} since {:.1f} s, call {}", rank_name(region, rank), slot.tag.load(),
                         seconds_since(slot.since_ns.load()), slot.calls.load());
    } else {
      what = fmt::format("{} computes since {:.1f} s, after call {} ({})", rank_name(region, rank),
                         seconds_since(slot.since_ns.load()), slot.calls.load(), slot.tag.load());
    }
    if (slot.late.load() != 0 && life == Life::kAlive) what += ": it is late";
    text += (rank == 0 ? "" : "\n") + what;
  }
  return text;
}

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace sf::shm
