// SPDX-License-Identifier: Apache-2.0
// What a run will do, known before it starts: groups, slots, gathers, folds and their bytes, and the memory of every
// rank. Pure: no I/O, no clock, no LibTorch. Its text is equal on all ranks; its digest is compared before the first
// step.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "arch/model_spec.h"
#include "base/dtype.h"
#include "plan/interval.h"
#include "plan/residency.h"

namespace sf::plan {

inline constexpr uint64_t kAlign = 64;
constexpr uint64_t align_up(uint64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// What a segment keeps between forward and backward: its graph; the boundaries it read; those, in a file.
enum class Mode { kKeep, kRecompute, kOffload };
// What stays gathered: nothing behind its use; from forward to backward; until a step changes it (shard.reshard = full
// | grad_op | none).
enum class Reshard { kFull, kGradOp, kNone };
std::string_view name_of(Mode mode);
std::string_view name_of(Reshard reshard);

struct ScheduleOptions {
  int world = 1;
  Layout layout = Layout::kDim0;
  int replicas = 1;  // of a two-dimensional mesh; layout replicate: the world
  Reshard reshard = Reshard::kFull;
  Dtype compute = Dtype::kF32;
  Mode mode = Mode::kKeep;
  std::map<std::string, Mode> modes;  // of single segments, over `mode`
  int prefetch = 0;                   // segments that gathers run ahead; 0: each gather where it is needed
  bool local = false;                 // add up a window's gradients on each rank, fold once (bounded, not exact)
  std::set<std::string> replicated;   // frozen parameters of which every rank holds the whole
  std::set<std::string> exchanged;    // frozen parameters no slot ever holds: a segment exchanges what it needs
  // Where frozen tables live, by parameter (any frozen parameter may be on the host); `replicated` and `exchanged`
  // follow from it.
  std::map<std::string, Residency> tables;
  // Types in which files hold those of residency host: they are not cast. By default the compute type.
  std::map<std::string, Dtype> host_types;
  // Segments whose parameters are the root's: gathered at their first use, and then until a step changes them.
  std::set<std::string> root;
  std::set<std::string> full;      // parameters computed in fp32, whatever `compute`
  std::vector<std::string> facts;  // further lines all ranks must agree on ("threads 1")
};

// A parameter's storage. Masters, accumulators and moments are fp32; a frozen parameter is kept in its compute type.
struct Held {
  std::string name;
  Shape shape;
  bool trainable = false, replicated = false, exchanged = false;
  Dtype compute = Dtype::kF32;
  std::optional<Residency> residency;  // of a frozen table
  std::vector<Interval> intervals;     // what each rank holds
  std::vector<Interval> owned;         // what each rank folds and keeps moments of; disjoint
  std::vector<size_t> groups;          // groups that use it, in order; each has its own accumulator

  Dtype stored() const { return trainable ? Dtype::kF32 : compute; }
};

struct Member {
  size_t parameter = 0;      // index of Schedule::parameters
  bool resident = false;     // its stored memory is what the segment reads: no slot, no gather
  uint64_t slot_offset = 0;  // bytes from the start of the group's slot; 64-byte aligned
};

// Parameters gathered together: those of one segment.
struct Group {
  std::string name;
  Mode mode = Mode::kKeep;
  Reshard reshard = Reshard::kFull;
  std::vector<Member> members;              // a parameter once, whatever names the segment uses
  bool needs_graph = false;                 // some trainable parameter is here or upstream
  uint64_t slot_begin = 0, slot_bytes = 0;  // in the arena
  uint64_t gathered_bytes = 0;              // payload of one gather
  uint64_t frozen_bytes = 0;                // of it, frozen: need not be gathered again after a step
  // Gradient of the trainable members, rank-major: rank r owns [fold_offsets[r], fold_offsets[r + 1]).
  std::vector<size_t> fold_offsets;  // elements; empty if nothing trains
  uint64_t sum_begin = 0;            // if local: of the window's sum, which is kept in that order
  uint64_t sum_bytes() const { return fold_offsets.empty() ? 0 : align_up(fold_offsets.back() * sizeof(float)); }
};

struct Action {
  enum class Kind { kGather, kFold, kSpread } kind = Kind::kGather;
  size_t group = 0;
  bool backward = false;
  uint64_t bytes = 0;  // payload
};

// Bytes of one rank. Activations and boundaries are not in it.
struct Memory {
  uint64_t masters = 0, accumulators = 0, moments = 0, frozen = 0;  // at rest
  uint64_t sums = 0;                                                // the window's local sums, if local
  uint64_t slots = 0;                                               // the arena
  uint64_t gathered = 0;  // of frozen tables while a window uses them: the whole of one shared out, a chunk of a head
  uint64_t host = 0;      // of all ranks of a host together: tables of which it keeps one copy
  uint64_t at_rest() const { return masters + accumulators + moments + frozen; }
  uint64_t total() const { return at_rest() + sums + slots; }
};

struct Schedule {
  ScheduleOptions options;
  Mesh mesh;
  std::vector<Held> parameters;
  std::vector<Group> groups;
  std::vector<Action> round;   // collectives of a window's first round, in order
  std::vector<Action> later;   // of its further rounds: what is still in its slot is not gathered again
  std::vector<Action> step;    // at the window's end: folds of local sums, new masters for the other replicas
  std::vector<Memory> memory;  // by rank
  uint64_t arena_bytes = 0, sums_bytes = 0;

  // False where gradients are added up first: local sums, or a world of one, whose accumulators are its sums.
  bool folds_each_round() const { return options.world > 1 && !options.local; }
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

// A pass over S segments has 2 S times: forward of segment s at s, its backward at 2 S - 1 - s.
struct Use {
  size_t group = 0;
  bool backward = false;
};
std::optional<Use> use_at(const Schedule& plan, int64_t time);  // nothing to do then: none

// What the slots hold, as gathers and steps go by. All ranks make the same calls, so all agree.
class Slots {
 public:
  enum class State { kEmpty, kFrozen, kFull };  // kFrozen: all but what trains

  explicit Slots(const Schedule& plan) : plan_(plan), state_(plan.groups.size(), State::kEmpty) {}
  State state(size_t group) const { return plan_.groups[group].slot_bytes > 0 ? state_[group] : State::kFull; }
  void gathered(size_t group);  // and what it overlaps is gone
  void masters_changed();       // after an optimizer step
  void forget() { state_.assign(state_.size(), State::kEmpty); }
  // Called for the bytes [begin, end) of a slot whose content is gone.
  std::function<void(uint64_t begin, uint64_t end)> on_release;

 private:
  void overwrite(uint64_t begin, uint64_t bytes, size_t by);
  void release(size_t group, State left);
  const Schedule& plan_;
  std::vector<State> state_;
};

// What to gather before the use at `time`, and with prefetch before those soon after it (but before `end`), in order.
struct Gather {
  Use use;
  bool trainable_only = false;  // what is frozen is still there
};
std::vector<Gather> due(const Schedule& plan, const Slots& slots, int64_t time, int64_t end);

// Places buffers with known lives in one arena: greedy, largest first, lowest free offset. Returns each one's offset.
struct Life {
  uint64_t bytes = 0;
  std::vector<Interval> spans;  // when it is in use
};
std::vector<uint64_t> place(const std::vector<Life>& lives, uint64_t& arena_bytes);

// The first line in which two texts differ, as "line 7: \"a\" here, \"b\" there"; empty if equal.
std::string first_difference(std::string_view here, std::string_view there);

}  // namespace sf::plan
