// SPDX-License-Identifier: Apache-2.0
// The tensors of whatever a path names: a checkpoint, a Hugging Face directory (of pickled weights too), a file of
// safetensors, of GGUF or of torch.save, what the ranks of verl saved.
// Private to this room.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "ckpt/checkpoint.h"

namespace sf::tool {

struct StoredTensor {
  std::string name, file;      // file: base name
  std::string type;            // as the file calls it: "F32", "F8_E4M3", "Q6_K"
  std::optional<Dtype> dtype;  // of the bytes that `read` gives; nullopt: blocks or floats without arithmetic here
  Shape shape;
  uint64_t bytes = 0;
  // Bytes [offset, offset + to.size()).
  std::function<void(uint64_t offset, std::span<std::byte> to)> read;
  std::function<void(const ckpt::TensorSource::Sink& sink)> all;  // empty: stream() reads

  // All bytes in order, at most kBounceBytes at a time.
  void stream(const ckpt::TensorSource::Sink& sink) const;
};

struct TensorSet {
  std::filesystem::path path;
  std::filesystem::path words;                 // of a directory: where config.json and the tokenizer lie
  std::string kind;                            // "checkpoint", "huggingface", "safetensors", "gguf", "torch", "verl"
  std::vector<StoredTensor> tensors;           // sorted by name
  std::map<std::string, std::string> aliases;  // name -> stored name
  std::map<std::string, std::string> digests;  // as published, of a checkpoint
  std::optional<ckpt::Checkpoint> checkpoint;  // of the first two kinds
  Json metadata;                               // of a file: an object
  Json config;                                 // config.json of a directory
  std::vector<std::string> stray;              // "NAME in FILE": stored, but the index does not say so

  const StoredTensor* find(std::string_view name) const;    // aliases followed; null if absent
  const StoredTensor* stored(std::string_view name) const;  // under this very name
};

// Tensors under the names their file gives them, in its own types. kNoInput if there is no such path, kData if it is
// of no kind.
TensorSet open_tensors(const std::filesystem::path& path);
// The same, of a checkpoint only as it was published: small files, names, types and shapes are compared with its
// manifest at once, the bytes of a tensor when all of them have been read by stream(). kData naming what differs.
TensorSet open_published(const std::filesystem::path& path);
// As open_tensors, but a GGUF file as sf-init model would store it: Hugging Face names and row order, dequantised.
TensorSet open_model(const std::filesystem::path& path);
// XXH3 of all bytes, 16 hex digits, kBounceBytes at a time.
std::string digest_of(const StoredTensor& tensor);

}  // namespace sf::tool
