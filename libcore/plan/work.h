// SPDX-License-Identifier: Apache-2.0
// Bytes that forward and backward of one micro-batch hold at most, besides its inputs and what a schedule counts: the
// segments of room model, written once more as shadows (plan/tape.h).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "arch/decoder.h"
#include "arch/dflash2.h"
#include "arch/domino.h"
#include "arch/dspark.h"
#include "arch/eagle3.h"
#include "arch/peagle.h"
#include "base/dtype.h"
#include "plan/schedule.h"
#include "plan/shadow_pass.h"

namespace sf::plan {

// Every index of `rows` x `width` tokens supervised: no batch of this size needs more.
arch::Eagle3Batch full_eagle3_batch(int64_t rows, int64_t width, int unroll, bool reference_quirks);

// Unrolled steps, and the terms of each one's loss.
struct Eagle3Steps {
  int unroll = 1;
  bool cross_entropy = true, acceptance = false;
};
// The most that one round holds in tensors. `compute`: F32 or BF16.
uint64_t eagle3_work(const arch::Eagle3& draft, const Eagle3Steps& steps, Dtype compute,
                     const arch::Eagle3Batch& batch);

// A micro-batch of DFlash: by row of it, kept blocks and the states before its last anchor.
struct DflashBatch {
  struct Row {
    int64_t blocks = 0, context = 0;
    auto operator<=>(const Row&) const = default;
  };
  std::vector<Row> rows;
  int64_t labels = 0;
  int64_t blocks() const;
  int64_t context() const;
  int64_t longest() const;
  auto operator<=>(const DflashBatch&) const = default;
};
struct BlockRows {
  int64_t anchors = 0;  // of each row
  bool next = false;    // a block's first slot has a label too
};
// The most that `rows` x `width` tokens can be.
DflashBatch full_dflash_batch(const arch::Dflash& draft, int64_t rows, int64_t width, BlockRows wanted);

// `spec`: arch::describe_training of the draft; `plan`: a schedule of it. All outlive what is given it.
struct BlockRun {
  const arch::ModelSpec& spec;
  const Schedule& plan;
  const DflashBatch& batch;
};
uint64_t dflash_work(const arch::Dflash& draft, const BlockRun& run);
// `selector_alone`: training.dflash2_selector_stop_gradient.
uint64_t dflash2_work(const arch::Dflash2& draft, const BlockRun& run, bool selector_alone);
// Whether L1 or the confidence ask for the target's distribution, and whether the confidence is trained.
struct DsparkTerms {
  bool teacher = true, confidence = true;
};
uint64_t dspark_work(const arch::Dspark& draft, const BlockRun& run, DsparkTerms terms);
uint64_t domino_work(const arch::Domino& draft, const BlockRun& run);

// A micro-batch of P-EAGLE: by row of it, the rows of each depth; and the labels of each depth that has some.
struct PeagleBatch {
  std::vector<std::vector<int64_t>> rows;
  std::vector<int64_t> labels;
  int64_t all() const;
  int64_t first() const;  // rows of depth 0
};
// The most that `rows` x `width` tokens can be; `shares`: of depth 1 and more, what is drawn at most.
PeagleBatch full_peagle_batch(int64_t rows, int64_t width, std::span<const double> shares);
uint64_t peagle_work(const arch::Peagle& draft, const arch::ModelSpec& spec, const Schedule& plan,
                     const PeagleBatch& batch);

// Whether sft_work() knows the decoder's family: the wide residual's it does not.
bool knows_work(const arch::Decoder& decoder);

struct SftBatch {
  int64_t rows = 0, width = 0, labels = 0;
  std::vector<int64_t> experts;  // tokens of each expert in every layer with a router; empty: the most of any router
  auto operator<=>(const SftBatch&) const = default;
};
SftBatch full_sft_batch(int64_t rows, int64_t width);
// `spec` is arch::describe_training(decoder, adapters) and `plan` a schedule of it.
uint64_t sft_work(const arch::Decoder& decoder, const arch::ModelSpec& spec, const Schedule& plan,
                  const SftBatch& batch, std::span<const arch::Adapter> adapters = {});

// Bytes of cosines and sines that a decoder or a DFlash draft keeps from the start on (model::Rotary), once it has seen
// a sequence of `length` tokens.
uint64_t rotary_bytes(int64_t dims, int64_t length);
// A tape's peak and what has no shadow: scalars and metrics, measured at less than 0.3 %. A prediction must not be
// below.
uint64_t with_margin(const Tape& tape);

}  // namespace sf::plan
