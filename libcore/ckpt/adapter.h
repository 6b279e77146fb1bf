// SPDX-License-Identifier: Apache-2.0
// The files of a LoRA adapter, ours or PEFT's own, read beside the target that it changes.
#pragma once
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "arch/adapter.h"
#include "ckpt/checkpoint.h"

namespace sf::ckpt {

class AdapterFiles {
 public:
  // kData naming tensors that are missing, left over or misshapen for `spec`, the target's description, or whose bytes
  // are not those that the manifest, if there is one, describes; kConfig for tensors
  // of the embedding or the head, and settings that mean nothing here; kNoInput if there are no such files.
  static AdapterFiles open(const std::filesystem::path& dir, const arch::ModelSpec& spec);

  const Checkpoint& files() const { return files_; }
  const arch::Lora& lora() const { return lora_; }
  const std::vector<arch::Adapter>& adapters() const { return adapters_; }
  // The one of a parameter; null if it has none.
  const arch::Adapter* find(std::string_view parameter) const;
  // Adds scale * B A to elements [lo, hi) of the adapted parameter, which `values` holds: in fp32, for each element
  // rank by rank in ascending order, then scaled, then added, so that how a parameter is cut changes no bit.
  void add_to(const arch::Adapter& adapter, int64_t lo, int64_t hi, std::span<float> values) const;

 private:
  AdapterFiles(Checkpoint files, arch::Lora lora, std::vector<arch::Adapter> adapters);
  std::vector<float> values(const std::string& name) const;
  Checkpoint files_;
  arch::Lora lora_;
  std::vector<arch::Adapter> adapters_;
};

// Elements [lo, hi) of a target's parameter as Checkpoint::read gives them, merged with its adapter, if it has one: in
// fp32, rounded once to `as` (rl_lora L-40).
void read_merged(const Checkpoint& target, const AdapterFiles& adapter, std::string_view name, int64_t lo, int64_t hi,
                 Dtype as, std::span<std::byte> to);

}  // namespace sf::ckpt
