// SPDX-License-Identifier: Apache-2.0
// sf-shard merge: a target and its adapter become one target, and that the target again.
#pragma once
#include <filesystem>

#include "base/json.h"
#include "tool/progress.h"

namespace sf::tool {

struct MergeOptions {
  std::filesystem::path adapter, out;
  std::filesystem::path target;  // empty: where the adapter's manifest says it is
  bool keep = false;             // what merging changes is kept beside it, so that unmerge() can bring it back
  Reporter report;
};

// Publishes W + scale * B A for every adapted parameter, computed in fp32 and rounded once to the type of W (rl_lora
// L-40), with everything else of the target as it is. Says how many values changed, and warns if most did not: a type
// of few bits swallows a small adapter (L-43). kProtocol: the adapter is of another target, or its tensors were merged
// into this one or what it was made of; further errors: ckpt::AdapterFiles::open. Returns the directory.
std::filesystem::path merge_adapter(const MergeOptions& options);

// The target that `merged` was made of, byte for byte: the tensors that were kept, and all others, which merging did
// not change. kData if nothing was kept, or if the result is not that target. Returns the directory.
std::filesystem::path unmerge(const std::filesystem::path& merged, const std::filesystem::path& out,
                              const Reporter& report);

// The same up to the first write; they touch nothing.
Json plan_merge(const MergeOptions& options);
Json plan_unmerge(const std::filesystem::path& merged, const std::filesystem::path& out);

}  // namespace sf::tool
