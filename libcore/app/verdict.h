// SPDX-License-Identifier: Apache-2.0
// The end of a verb whose result is whole, and is the bad news itself: a plan that does not fit.
#pragma once
#include "base/error.h"

namespace sf::app {

// Thrown after all of the result was said: -o FILE keeps it, and the status is this error's.
class Verdict : public Error {
 public:
  using Error::Error;
};

}  // namespace sf::app
