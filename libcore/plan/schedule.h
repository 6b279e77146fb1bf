// SPDX-License-Identifier: Apache-2.0
// What a run will do, known before it starts: groups, slots, gathers, folds and their bytes, and the memory of every
// rank. Pure: no I/O, no clock, no LibTorch. Its text is equal on all ranks; its digest is compared before the first
// step.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "arch/model_spec.h"
#include "base/dtype.h"
#include "plan/interval.h"

namespace sf::plan {

struct ScheduleOptions {
  int world = 1;
  Layout layout = Layout::kDim0;
  Dtype compute = Dtype::kF32;
  bool recompute = false;
  std::set<std::string> replicated;  // frozen parameters of which every rank holds the whole
  std::vector<std::string> facts;    // further lines all ranks must agree on ("threads 1")
};

// A parameter's storage. Masters, accumulators and moments are fp32; a frozen parameter is kept in the compute type.
struct Held {
  std::string name;
  Shape shape;
  bool trainable = false, replicated = false;
  std::vector<Interval> intervals;  // by rank
  std::vector<size_t> groups;       // groups that use it, in order; each has its own accumulator
};

struct Member {
  size_t parameter = 0;      // index of Schedule::parameters
  bool resident = false;     // its stored memory is what the segment reads: no slot, no gather
  uint64_t slot_offset = 0;  // bytes from the start of the group's slot; 64-byte aligned
};

// Parameters gathered together: those of one segment.
struct Group {
  std::string name;
  std::vector<Member> members;              // a parameter once, whatever names the segment uses
  bool needs_graph = false;                 // some trainable parameter is here or upstream
  uint64_t slot_begin = 0, slot_bytes = 0;  // in the arena
  uint64_t gathered_bytes = 0;              // payload of one gather
  // Packed gradient of the trainable members, rank-major: rank r owns [fold_offsets[r], fold_offsets[r + 1]).
  std::vector<size_t> fold_offsets;  // elements; empty if nothing trains
};

struct Action {
  enum class Kind { kGather, kFold } kind = Kind::kGather;
  size_t group = 0;
  bool backward = false;
};

// Bytes of one rank. Activations and boundaries are not in it.
struct Memory {
  uint64_t masters = 0, accumulators = 0, moments = 0, frozen = 0;  // at rest
  uint64_t slots = 0, reduce = 0;                                   // the arena, the packed gradient
  uint64_t at_rest() const { return masters + accumulators + moments + frozen; }
  uint64_t total() const { return at_rest() + slots + reduce; }
};

struct Schedule {
  ScheduleOptions options;
  std::vector<Held> parameters;
  std::vector<Group> groups;
  std::vector<Action> round;   // collectives of a window's first round, in order
  std::vector<Action> later;   // of its further rounds: what is still in its slot is not gathered again
  std::vector<Memory> memory;  // by rank
  uint64_t arena_bytes = 0;
  size_t reduce_elements = 0;  // of the largest packed gradient

  bool gathers(size_t group, bool backward) const;
  std::string text() const;
  std::string digest() const;  // SHA-256 of the text
};

// Bytes, and elements of fp32, that one tensor takes in the flat buffers of a rank: rounded up to 64 bytes.
uint64_t aligned_bytes(int64_t elements, Dtype type);

// `segments` in order of execution; their parameter names may be aliases of `spec`. Throws kSoftware for a segment that
// names an unknown parameter, a trainable parameter no segment uses, or a boundary written twice; kConfig for a layout
// or a residency that does not fit.
Schedule make_schedule(const arch::ModelSpec& spec, const std::vector<arch::Segment>& segments,
                       const ScheduleOptions& options);

// Which groups are still in their slots. All ranks make the same calls, so all agree.
class Slots {
 public:
  explicit Slots(const Schedule& plan) : plan_(plan), intact_(plan.groups.size(), false) {}
  bool needs_gather(size_t group) const { return plan_.groups[group].slot_bytes > 0 && !intact_[group]; }
  void gathered(size_t group);  // and what it overlaps is gone
  void masters_changed();       // after an optimizer step
  void forget() { intact_.assign(intact_.size(), false); }

 private:
  const Schedule& plan_;
  std::vector<bool> intact_;
};

// Places buffers with known lives in one arena: greedy, largest first, lowest free offset. Returns each one's offset.
struct Life {
  uint64_t bytes = 0;
  std::vector<Interval> spans;  // when it is in use
};
std::vector<uint64_t> place(const std::vector<Life>& lives, uint64_t& arena_bytes);

// The first line in which two texts differ, as "line 7: \"a\" here, \"b\" there"; empty if equal.
std::string first_difference(std::string_view here, std::string_view there);

}  // namespace sf::plan
