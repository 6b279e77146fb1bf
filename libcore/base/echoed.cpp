// SPDX-License-Identifier: Apache-2.0
#include "base/echoed.h"

namespace sf {

Echoed::~Echoed() = default;

}  // namespace sf
