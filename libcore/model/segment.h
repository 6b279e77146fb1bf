// SPDX-License-Identifier: Apache-2.0
// The mathematics of a model, cut into pure functions. A segment does not know that it is sharded.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace sf::model {

// Named tensors: parameters of a segment, or boundaries between segments.
class Tensors : public std::map<std::string, at::Tensor, std::less<>> {
 public:
  using Named = std::map<std::string, at::Tensor, std::less<>>;
  using Named::Named;
  Tensors() = default;
  Tensors(Named named) : Named(std::move(named)) {}  // NOLINT(google-explicit-constructor): the same, by name

  // kSoftware naming what was asked for and what there is: a parameter that a segment does not declare, as a tied or a
  // fused read of another's, is not gathered for it.
  const at::Tensor& at(std::string_view name) const;
  at::Tensor& at(std::string_view name);
};

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
