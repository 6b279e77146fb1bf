// SPDX-License-Identifier: Apache-2.0
#include "tool/open_adapter.h"

#include "arch/decoder.h"
#include "base/error.h"
#include "ckpt/draft.h"

namespace sf::tool {

std::optional<ckpt::AdapterFiles> open_adapter(app::Invocation& invocation, const ckpt::Checkpoint& target) {
  if (!invocation.has("adapter")) return std::nullopt;
  ckpt::AdapterFiles adapter =
      ckpt::AdapterFiles::open(invocation.get("adapter"), arch::describe(arch::decoder_from_config(target.config())));
  if (adapter.files().has_manifest())
    ckpt::check_target(adapter.files(), target);
  else if (invocation.ranks().rank == 0)
    invocation.warn(fmt::format("{} has no manifest: that it was made for {} is taken on trust",
                                adapter.files().dir().string(), target.dir().string()));
  return adapter;
}

std::vector<arch::Adapter> adapters_in(const std::optional<ckpt::AdapterFiles>& adapter) {
  return adapter ? adapter->adapters() : std::vector<arch::Adapter>{};
}

}  // namespace sf::tool
