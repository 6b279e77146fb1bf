// SPDX-License-Identifier: Apache-2.0
// Boundaries of mode offload: in a file without a name, so that memory holds those of one segment at a time.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/tensor.h"

namespace sf::engine {

class Spill {
 public:
  // Nothing happens on disk before the first put(). The file goes with the process, however that ends.
  explicit Spill(std::filesystem::path dir) : dir_(std::move(dir)) {}

  // Keeps a copy of a boundary's bytes; again under the same name does nothing. kCantCreate, or what the disk says.
  void put(const std::string& name, const at::Tensor& value);
  bool has(const std::string& name) const { return kept_.contains(name); }
  at::Tensor get(const std::string& name) const;  // contiguous, without graph
  void clear();                                   // a pass is over: the file's space is used again
  uint64_t peak_bytes() const { return peak_; }

 private:
  struct Kept {
    uint64_t offset = 0;
    std::vector<int64_t> shape;
    at::ScalarType type = at::kFloat;
    at::Device device = at::kCPU;  // where it was, and where get() puts it
  };
  void open();
  std::filesystem::path dir_;
  UniqueFd file_;
  std::map<std::string, Kept> kept_;
  uint64_t end_ = 0, peak_ = 0;
};

}  // namespace sf::engine
