// SPDX-License-Identifier: Apache-2.0
// Fault switches: negative controls of the proofs. SF_FAULT="name[,name...]" in a build with -Dfaults=true.
#pragma once
#include <string_view>

namespace sf {
#ifdef SF_FAULTS
// True if the environment asks for the named fault. Every name used must be listed in tests/fault/switches.txt.
bool fault(std::string_view name);
#else
constexpr bool fault(std::string_view) {
  return false;
}
#endif
}  // namespace sf
