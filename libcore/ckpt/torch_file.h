// SPDX-License-Identifier: Apache-2.0
// Files of torch.save (since 1.6: a zip archive with one pickle and the bytes of each storage). Only tensors and plain
// values are read, nothing is run: see pickle.h for what is refused.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/shape.h"

namespace sf::ckpt {

struct TorchTensor {
  std::string name;  // keys on the way to it, joined by '/': "draft_state_dict/fc.weight"
  Dtype dtype = Dtype::kF32;
  std::string_view type;  // as safetensors calls it
  Shape shape, strides;   // in elements
  uint64_t begin = 0;     // of element 0, in the file
  // It is a rank's part of a tensor of shape `whole`, over a mesh of ranks (row-major): for each dimension of the mesh
  // the dimension that is cut, in chunks of ceil(n / ranks), or -1. Empty mesh: it is the tensor itself.
  Shape whole, mesh, cuts;
  uint64_t storage = 0, storage_bytes = 0;  // the archive's member that holds it, in the file
  uint32_t crc = 0;                         // of that member; 0: not known

  uint64_t bytes() const { return static_cast<uint64_t>(numel(shape)) * size_of(dtype); }
};

class TorchFile {
 public:
  // kNoInput if missing; kData naming what is wrong or refused.
  static TorchFile open(const std::filesystem::path& path);
  // True if the file exists and is a zip archive.
  static bool is_zip(const std::filesystem::path& path);

  const std::vector<TorchTensor>& tensors() const { return tensors_; }  // sorted by name
  const Json& values() const { return values_; }  // numbers and texts beside them, by joined key; an object
  // Bytes [offset, offset + to.size()) of the tensor's row-major form. Before the first of a storage all its bytes are
  // compared with the archive's CRC-32, where torch wrote one: kData naming the tensor.
  void read(const TorchTensor& tensor, uint64_t offset, std::span<std::byte> to) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  struct Descriptor;
  void check_storage(const TorchTensor& tensor) const;
  std::filesystem::path path_;
  std::shared_ptr<Descriptor> file_;
  std::vector<TorchTensor> tensors_;
  Json values_ = Json::object();
};

}  // namespace sf::ckpt
