// SPDX-License-Identifier: Apache-2.0
// The mathematics of a model, cut into pure functions. A segment does not know that it is sharded.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace sf::model {

// Named tensors: parameters of a segment, or boundaries between segments.
using Tensors = std::map<std::string, at::Tensor, std::less<>>;

// A segment that does nothing but use one frozen table, its only parameter, so that it may be done where the table
// lives. kLookUp: reads ids I64 [n], writes rows [n, H]. kHead: reads states [R, H] and labels I64 [R], writes their
// cross-entropies F32 [R] and top-1 ids I64 [R], the table cut every `chunk` rows (ops::VocabularyHead).
struct TableCall {
  enum class Kind { kLookUp, kHead } kind = Kind::kLookUp;
  int64_t chunk = 0;
};

struct Segment {
  std::string name;
  std::vector<std::string> parameters;     // names, as in arch::ModelSpec; gathered together
  std::vector<std::string> reads, writes;  // boundary names
  // parameters (compute dtype, leaves) and the boundaries it reads -> the boundaries it writes. Differentiable outputs
  // must not alias parameters. May use any autograd code inside; must not keep tensors beyond the call.
  std::function<Tensors(const Tensors& parameters, const Tensors& boundaries)> forward;
  std::optional<TableCall> table;
};

}  // namespace sf::model
