// SPDX-License-Identifier: Apache-2.0
// What another rank found, and tells: ends this one with the same status, without a word.
#pragma once
#include "base/error.h"

namespace sf {

class Echoed : public Error {
 public:
  using Error::Error;
  ~Echoed() override;  // key function, as Error's
};

}  // namespace sf
