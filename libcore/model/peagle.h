// SPDX-License-Identifier: Apache-2.0
// The P-EAGLE draft in training: rows (anchor, depth) of one pass, each standing for the token depth places behind its
// anchor. Source: eagle_dflash 4.2.
#pragma once
#include <vector>

#include "arch/peagle.h"
#include "model/eagle3.h"
#include "model/segment.h"

namespace sf::model {

struct PeagleOptions {
  int depths = 8;
  // false: a row's label is supervised if its own token is (m[a + d + 1]). true: as SpecForge 0.2.0 does it: m[a + d],
  // and the last index, whose teacher is the zero vector, counts.
  bool reference_quirks = false;
};

// The rows of a micro-batch, batch row by batch row, by depth, by anchor; a function of the data alone.
struct PeagleRows {
  struct Row {
    int64_t row, anchor, depth;
  };
  std::vector<Row> rows;
  std::vector<int64_t> token_ids;  // depth 0: x[a + 1] (0 beyond the end); else the mask token
  // Trained labels, by depth: rows whose label is supervised and whose teacher's first choice is in the draft
  // vocabulary; where that teacher is (b * S + index; -1: beyond the end); their depths.
  std::vector<int64_t> label_rows, teacher_rows, label_depths;
};
// Reads input_ids, loss_mask, target_top1 I64 [B,S] · lengths I64 [B] · cod_anchors, cod_depths I64 [B,n] (the sampled
// rows of depth 1 and more, by depth, by anchor; -1: none; every anchor of a depth is one of the depth before). Depth 0
// is every index. kData for what is out of range or order.
PeagleRows peagle_rows(const Tensors& micro_batch, const arch::Peagle& draft, const Eagle3Vocabulary& vocabulary,
                       const PeagleOptions& options);

// The segments of arch::describe_training(draft):
//   "rows"      PeagleRows as boundaries; cod I64 [n,3]: batch row, anchor, depth
//   "input"     embedded [n,H]; hidden.0 [n,H] = fc(captured states at the anchor), from depth 1 on fc(mask_hidden)
//   "layers.0"  reads both as EAGLE3's layer does; "layers.i": a pre-norm decoder layer. A row attends to depth 0 up to
//               its anchor and to its own anchor's rows up to its depth; its position is anchor + depth
//   "head"      label_weight F32 [] -> loss F32 [] = label_weight * sum over labels of -(P . log_softmax(z));
//   depth_sums
//               F64 [depths,3]: numerator, correct predictions, acceptance rates
std::vector<Segment> peagle_segments(const arch::Peagle& draft, const Eagle3Vocabulary& vocabulary,
                                     const PeagleOptions& options);

}  // namespace sf::model
