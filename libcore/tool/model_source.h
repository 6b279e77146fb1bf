// SPDX-License-Identifier: Apache-2.0
// A model to be converted, whatever file it comes from. Private to this room.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arch/decoder.h"
#include "ckpt/checkpoint.h"

namespace sf::tool {

struct ModelSource {
  std::string format;  // "gguf" or "huggingface"
  arch::Decoder decoder;
  arch::ModelSpec spec;
  Json config;                                                        // to be written; holds the decoder's settings
  std::vector<ckpt::TensorSource> tensors;                            // one for each parameter of `spec`
  Json provenance;                                                    // for the manifest: where the model comes from
  std::vector<std::string> notes;                                     // what the user should know
  std::function<void(const std::filesystem::path& dir)> write_files;  // tokenizer and generation settings
};

ModelSource source_from_gguf(const std::filesystem::path& file, std::optional<Dtype> dtype);
ModelSource source_from_directory(const std::filesystem::path& dir, std::optional<Dtype> dtype);

}  // namespace sf::tool
