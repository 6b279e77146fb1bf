// SPDX-License-Identifier: Apache-2.0
// What each rank writes of a checkpoint, and how ranks fill its files together: every byte is written by one rank, from
// its own memory to its place in the file. Nobody holds a whole tensor.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "ckpt/checkpoint.h"
#include "comm/group.h"
#include "engine/engine.h"

namespace sf::train {

inline constexpr const char* kMoments = "optimizer.safetensors";

// Elements from `first` on of a tensor, stored as `as`. Every rank lists all tensors in one order; `values`, whose
// owner is somebody else, are none where other ranks write.
struct Share {
  std::string name;
  Shape shape;
  Dtype as = Dtype::kF32;
  int64_t first = 0;
  TensorView values;

  bool is_moment() const { return name.ends_with(".exp_avg") || name.ends_with(".exp_avg_sq"); }
};
using Shares = std::vector<Share>;

// Of the engine's masters, as `stored`, and moments, fp32.
Shares shares_of(engine::Engine& engine, Dtype stored);
// Copies the values of the shares, and points them there. The memory is taken the first time, in huge pages where the
// system has them, for shares of equal sizes ever after: a step waits for the copy.
struct FreeCopy {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using Copy = std::unique_ptr<std::byte, FreeCopy>;
void copy_values(Shares& shares, Copy& copy);
// The tensors of optimizer.safetensors, or all others.
std::vector<ckpt::TensorInfo> declared(const Shares& shares, bool moments);
uint64_t whole_bytes(const Shares& shares);  // of all ranks together

// Writes this rank's values to their places in the reserved files of `dir`, and syncs; one part a share.
std::vector<ckpt::Part> fill(const std::filesystem::path& dir, const Shares& shares);
// Every rank calls it, with what it filled: the parts of all.
ckpt::Parts gather_parts(comm::Group& group, const Shares& shares, const std::vector<ckpt::Part>& mine,
                         const comm::Call& call);

}  // namespace sf::train
