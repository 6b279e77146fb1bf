// SPDX-License-Identifier: Apache-2.0
#include "base/fault.h"

#include <cstdlib>

#ifdef SF_FAULTS
namespace sf {

bool fault(std::string_view name) {
  const char* asked = std::getenv("SF_FAULT");
  std::string_view rest = asked ? asked : "";
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    if (rest.substr(0, comma) == name) return true;
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return false;
}

}  // namespace sf
#endif
