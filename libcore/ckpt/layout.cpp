// SPDX-License-Identifier: Apache-2.0
#include "ckpt/layout.h"

#include "arch/adapter.h"
#include "base/present.h"

namespace sf::ckpt {

Layout layout_of(const std::filesystem::path& dir) {
  return {!is_present(dir / "config.json") && is_present(dir / "adapter_config.json")};
}

Layout layout_for(const Json& config) {
  return {arch::is_adapter_config(config)};
}

}  // namespace sf::ckpt
