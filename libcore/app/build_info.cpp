// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <boost/version.hpp>

#include "app/build_info.h"
#include "app/command.h"
#include "app/commit.h"

namespace sf {
const char* version();
}

namespace sf::app {

Json build_info() {
#ifdef SF_FAULTS
  constexpr bool kFaults = true;
#else
  constexpr bool kFaults = false;
#endif
  return Json::object()
      .set("name", "ShardForge")
      .set("version", version())
      .set("commit", SF_COMMIT)
      .set("compiler", "g++ " __VERSION__)
      .set("build_type", SF_BUILD_TYPE)
      .set("libtorch", SF_BUILD_TORCH)
      .set("cuda", static_cast<bool>(SF_BUILD_CUDA))
      .set("fmt", FMT_VERSION)
      .set("boost", BOOST_LIB_VERSION)
      .set("faults", kFaults);
}

}  // namespace sf::app
