// SPDX-License-Identifier: Apache-2.0
// A sampler in each of the trainer's ranks: it holds the target whole, answers a part of the prompts under the adapter
// last published, and every rank gets all answers. Tokens depend on prompt, seed and adapter alone, not on the ranks.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "gen/generate.h"
#include "gen/linear.h"

namespace sf::gen {

// SHA-256 over names, scales, shapes and bytes.
std::string digest_of(const LiveAdapter& adapter);

class LocalSampler {
 public:
  // Borrows both.
  LocalSampler(comm::Group& group, Target& model) : group_(group), model_(model) {}

  // Every rank calls it with the same adapter. The sampler's own digest of what it took is compared with `wanted` on
  // every rank: kProtocol naming the rank, both versions and both digests.
  void adopt(int64_t version, const LiveAdapter& adapter, const std::string& wanted);
  int64_t version() const { return version_; }
  const std::string& digest() const { return digest_; }

  // Every rank calls it with the same prompts; prompt i is answered by rank i mod W. By prompt, on all ranks; fewer if
  // a rank's options.cancelled said so.
  std::vector<Completion> answer(std::span<const Prompt> prompts, const GenerateOptions& options);

 private:
  comm::Group& group_;
  Target& model_;
  int64_t version_ = -1;
  std::string digest_;
};

}  // namespace sf::gen
