// SPDX-License-Identifier: Apache-2.0
// A model to be converted, whatever file it comes from. Private to this room.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/decoder.h"
#include "ckpt/checkpoint.h"
#include "tool/progress.h"
#include "tool/tensor_set.h"

namespace sf::tool {

struct ModelSource {
  std::string format;  // "gguf" or "huggingface"
  arch::Decoder decoder;
  arch::ModelSpec spec;
  Json config;                                                        // to be written; holds the decoder's settings
  std::vector<ckpt::TensorSource> tensors;                            // one for each parameter of `spec`
  uint64_t bytes_to_read = 0;                                         // of the source's tensors, once each
  std::shared_ptr<uint64_t> bytes_read;                               // counted as they are read
  Json provenance;                                                    // for the manifest: where the model comes from
  std::vector<std::string> notes;                                     // what the user should know
  std::vector<std::string> warnings;                                  // what will not work
  std::function<void(const std::filesystem::path& dir)> write_files;  // tokenizer and generation settings
};

// What the chat template of a source will not do; `fault` as text::chat_template_fault gives it.
void judge_template(const std::optional<std::string>& fault, ModelSource& source);
// The note that names values the source does not state ("head_dim = 64"); none for an empty list.
void note_assumed(const std::vector<std::string>& assumed, ModelSource& source);

ModelSource source_from_gguf(const std::filesystem::path& file, std::optional<Dtype> dtype);
// `tied_from`: which of two tied names counts if their bytes differ; empty: that is refused (kData).
ModelSource source_from_directory(const std::filesystem::path& dir, std::optional<Dtype> dtype,
                                  const std::string& tied_from);

uint64_t bytes_of(const std::vector<ckpt::TensorSource>& tensors);
// What --plan answers where the inputs have been opened and checked.
Json would_publish(const std::filesystem::path& out, uint64_t bytes);
// Tells `report` (which outlives them) of each piece that is written. Called before the Publisher is made: a request to
// stop so far ends the verb here, where it leaves nothing behind, and a later one after a piece.
void report_writing(std::vector<ckpt::TensorSource>& tensors, const Reporter& report);
// A stored tensor under `name` as `as`, one bounce buffer at a time; bytes that stay as they are may be copied by the
// kernel. kData: not a floating type.
ckpt::TensorSource converted(const StoredTensor& tensor, const std::string& name, Dtype as);
// Into a directory that a Publisher will sync as a whole.
void write_unsynced(const std::filesystem::path& path, std::string_view text);
// Tokenizer, template and generation settings beside a model, as they are.
void copy_side_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace sf::tool
