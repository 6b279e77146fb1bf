// SPDX-License-Identifier: Apache-2.0
// A function of rows, a slice of them at a time, computed again for its gradient: no logits beyond a slice's.
#pragma once
#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace sf::model {

inline constexpr int64_t kSliceRows = 128;                 // of fp32 logits over 150,000 words: 77 MB
inline constexpr int64_t kSliceBytes = int64_t{32} << 20;  // of logits over fewer words, more rows

// f(rows, whole) of each slice, joined along the rows. `rows`: tensors of one extent 0, cut; `whole`: given to each
// call as they are. Bits depend on `slice`. Every result has the slice's extent 0.
using SliceFunction =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& rows, const std::vector<at::Tensor>& whole)>;
std::vector<at::Tensor> in_slices(const std::vector<at::Tensor>& rows, const std::vector<at::Tensor>& whole,
                                  int64_t slice, const SliceFunction& f);

}  // namespace sf::model
