// SPDX-License-Identifier: Apache-2.0
// Is a published directory still what its manifest describes? What can be asked at every start, and what while a tensor
// is read anyway. All bytes: Checkpoint::verify().
#pragma once
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/checkpoint.h"

namespace sf::ckpt {

// Names, types and shapes of the tensors, config.json and the small files beside it, without reading a tensor: it takes
// milliseconds. kData naming what differs. Without a manifest there is nothing to compare. Checkpoint::identity(),
// check_target() and gen::Target::load() call it.
void check_as_published(const Checkpoint& files);
// The xxh3 of the bytes of a stored tensor against the manifest's digest, if there is one. kData naming it.
void compare_digest(const Checkpoint& files, std::string_view stored, uint64_t digest);
// The same of the tensor that `name` means, in one pass over its bytes.
void check_tensor(const Checkpoint& files, std::string_view name);
// Where each rank reads its intervals only, no rank sees the whole of a tensor: together they look at each once more, by
// pread. These tensors' bytes, or all.
struct Share {
  size_t rank = 0, world = 1;
};
void check_share(const Checkpoint& files, std::set<std::string> tensors, Share share);
void check_share(const Checkpoint& files, Share share);
// All bytes against the manifest, if there is one: kData listing what differs.
void check_whole(const Checkpoint& files);

// latest_checkpoint(), and what it passed over on the way.
struct Latest {
  std::optional<std::filesystem::path> whole;
  std::vector<std::string> damaged;  // "step-10: why", the newest first
};
Latest newest_checkpoint(const std::filesystem::path& run_dir);
// Removes what killed saves left in a run's directory; the caller owns it, so that nobody is writing.
void remove_unfinished(const std::filesystem::path& run_dir);

}  // namespace sf::ckpt
