// SPDX-License-Identifier: Apache-2.0
#include "arch/states.h"

#include <algorithm>

namespace sf::arch {

ModelSpec describe_states(const Decoder& decoder, bool teacher) {
  ModelSpec spec = describe(decoder);
  for (Segment& segment : spec.segments) std::ranges::replace(segment.reads, "positions", "lengths");
  Segment& last = spec.segments.back();
  const std::string head = last.parameters.back();
  const double flops = std::exchange(last.flops_per_token, 0);
  last.name = "norm";
  last.parameters.pop_back();
  last.writes = {"final_norm"};
  if (teacher)
    spec.segments.push_back({"teacher", {head}, {"final_norm"}, {"target_top1", "target_lse"}, flops});
  else
    std::erase_if(spec.parameters, [&](const Parameter& parameter) { return parameter.name == head; });
  return spec;
}

}  // namespace sf::arch
