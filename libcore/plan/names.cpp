// SPDX-License-Identifier: Apache-2.0
#include "plan/names.h"

namespace sf::plan {

Layout layout_from_backend(std::string_view backend) {
  if (backend == "fsdp2") return Layout::kDim0;
  return backend == "fsdp1" ? Layout::kFlat : Layout::kReplicate;
}

Mode mode_from_name(std::string_view name) {
  if (name == "keep") return Mode::kKeep;
  return name == "recompute" ? Mode::kRecompute : Mode::kOffload;
}

Reshard reshard_from_name(std::string_view name) {
  if (name == "full") return Reshard::kFull;
  return name == "grad_op" ? Reshard::kGradOp : Reshard::kNone;
}

}  // namespace sf::plan
