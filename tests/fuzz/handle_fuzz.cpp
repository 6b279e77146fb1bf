// SPDX-License-Identifier: Apache-2.0
// Text of a handle, and of what a trainer says about itself.
#include <stdexcept>

#include "fuzz.h"
#include "stream/handle.h"
#include "stream/roster.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sf::stream;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  sf::fuzz::refused([&] {
    Handle handle = Handle::parse(text, "fuzz");
    if (Handle::parse(handle.line(), "fuzz").line() != handle.line())
      throw std::logic_error("a handle changes by writing");
  });
  sf::fuzz::refused([&] { Hello::from_json(sf::Json::parse(text, "fuzz")); });
  return 0;
}
