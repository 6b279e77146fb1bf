// SPDX-License-Identifier: Apache-2.0
// Rotary tables of a decoder or draft: made once, grown on demand, shared by all layers.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>

#include "arch/decoder.h"
#include "ops/rope.h"

namespace sf::model {

// Thread safe. A row depends on (rope, position) only; for dynamic scaling on (rope, position, length) once a sequence
// is longer than max_positions.
class Rotary {
 public:
  // kConfig if rotary_dims is not even and positive, or what arch::rope_table refuses. `interleaved`: how slots are
  // dealt to planes (arch::planes_of_slots).
  Rotary(const arch::Rope& rope, int64_t rotary_dims, int64_t max_positions, bool interleaved = true);
  // True if the table of a sequence of `length` tokens serves that length alone.
  bool depends_on_length(int64_t length) const { return rope_.type == "dynamic" && length > max_positions_; }
  // A table of at least `length` rows, as a sequence of `length` tokens needs it.
  ops::RotaryTable table(int64_t length) const;
  // A table, and of each token its row in it: what ops::apply_rotary takes.
  struct Turns {
    ops::RotaryTable table;
    at::Tensor rows;  // I64 [B, S]
  };
  // Of these position ids (int64, not negative): [B, S], or planes [1, B, S], [3, B, S] (time, height, width) or [4, B,
  // S] (the text's own before them, which turns nothing). A sequence's length is the largest + 1. With three planes a
  // slot turns by that of its plane (models_text_scoring 2.2); equal planes give the bits of one. kConfig for planes
  // where the rotary parameters have no sections.
  Turns turns_for(const at::Tensor& positions) const;

 private:
  ops::RotaryTable make(int64_t length, int64_t rows) const;

  arch::Rope rope_;
  int64_t dims_, max_positions_;
  bool interleaved_;
  mutable std::mutex mutex_;
  mutable ops::RotaryTable table_;                      // as a sequence of at most max_positions needs it
  mutable std::map<int64_t, ops::RotaryTable> longer_;  // dynamic scaling beyond max_positions: by length
};

}  // namespace sf::model
