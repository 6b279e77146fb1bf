// SPDX-License-Identifier: Apache-2.0
// Ranks with a GPU each. Which NCCL calls are made, and in which order, is decided here and tested by a recorder; the
// calls themselves are a table (sf_kernels/collectives.h) that libshardforge-cuda fills.
#pragma once
#include <memory>

#include "base/shm_control.h"
#include "comm/group.h"
#include "sf_kernels/collectives.h"

namespace sf::comm {

enum class Fold {
  kExact,  // grouped send and receive, then the fold of every other group: the same bits
  kFast,   // NCCL's reduce-scatter: its own order of additions, bounded; equal intervals only, else as kExact
};

struct NcclOptions {
  Fold fold = Fold::kExact;
  size_t piece_bytes = size_t{8} << 20;  // of one exchange: bounds what is staged to (2 world + 1) * piece
  int device = 0;                        // of this rank, as CUDA counts
};

// `control` joins the same ranks by host memory or network: ids, sizes and heads of calls pass through it, its board
// tells who has ended. Payloads of all_gather and of the folds may lie anywhere: they pass the device piece by piece,
// and no copy of the whole is made on either side. Two communicators, one for gathers and one for folds, so that
// neither waits for the other.
std::unique_ptr<Group> make_nccl(const sf_collectives& api, std::unique_ptr<Group> control,
                                 const NcclOptions& options = {});

}  // namespace sf::comm
