// SPDX-License-Identifier: Apache-2.0
// What a schedule costs every rank: memory in four totals kept apart, bytes on the wire, and time at a bandwidth. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/schedule.h"

namespace sf::plan {

// What besides the schedule decides the bytes of a run. A rank's own part of each.
struct Load {
  int64_t micro_batches = 1;      // of a window, all ranks together
  uint64_t input_bytes = 0;       // tensors of one collated micro-batch
  uint64_t work_bytes = 0;        // most that its forward and backward hold at one time besides inputs and the schedule
  uint64_t constant_bytes = 0;    // tensors that stay from start to end and are not parameters (vocabulary maps)
  uint64_t sampler_bytes = 0;     // what answers in this rank: a whole model and its caches
  uint64_t evaluation_bytes = 0;  // tensors of an evaluation between two steps, beside what is at rest
  uint64_t sample_bytes = 0;      // samples under way to this rank, outside of tensors
  int64_t checkpoints = 2;        // kept on disk
  int ranks_here = 0;             // that share a host's memory; 0: all
  bool copies = true;             // a checkpoint falls due while steps go on, and is written from a copy
};

// Bytes. Peak: the most in tensors at one time, at rest included. Host: memory of this rank outside of tensors, its
// part of what the ranks of a host keep together (Memory::host) and the copy that a checkpoint is written from
// included (Load::copies; one asked for by a signal makes it, too). Disk: the checkpoints kept, and one more while it
// is written, on rank 0; zero on others.
struct Totals {
  uint64_t at_rest = 0, peak = 0, host = 0, disk = 0;
  uint64_t resident = 0;  // the most in RAM at one time: a step, while a checkpoint is written
};
Totals totals_of(const Schedule& plan, const Load& load, int rank);
// What a rank writes of a checkpoint: master and two moments, fp32, of each element that it owns. It keeps a copy,
// from which they are written while steps go on.
uint64_t checkpoint_bytes(const Schedule& plan, int rank);

// What one step makes a rank receive. The exact fold gives every rank all gradients of its own intervals.
struct Traffic {
  uint64_t gathers = 0, folds = 0;            // calls
  uint64_t gather_bytes = 0, fold_bytes = 0;  // received by this rank
  uint64_t table_bytes = 0;                   // of exchanged tables; filled in by who knows their use (TableCost)
  uint64_t bytes() const { return gather_bytes + fold_bytes + table_bytes; }
};
Traffic traffic_of(const Schedule& plan, const Load& load, int rank);
// Rounds of a window, and micro-batches of one rank in it at most.
int64_t rounds_of(const Schedule& plan, const Load& load);

// Received by one rank in a gather, or in the spread of new masters.
uint64_t received(const Schedule& plan, const Action& action, int rank);

}  // namespace sf::plan
