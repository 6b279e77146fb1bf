// SPDX-License-Identifier: Apache-2.0
// sf-init draft: a new draft checkpoint for a target, with the vocabulary map counted over the training chats.
#pragma once
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "arch/decoder.h"
#include "base/dtype.h"
#include "base/json.h"
#include "tool/progress.h"

namespace sf::tool {

struct InitDraftOptions {
  std::filesystem::path target;      // checkpoint directory
  std::string algorithm = "eagle3";  // or peagle; drafts of blocks: init_blocks.h
  int64_t draft_vocab = 0;           // 0: the target's whole vocabulary
  std::filesystem::path data;        // chats file (JSON Lines); may be empty if draft_vocab is the target's
  std::filesystem::path out;
  uint64_t seed = 0;
  size_t max_length = 0;                                 // tokens of a row that count; 0: all
  Dtype dtype = Dtype::kF32;                             // storage: F32 (masters) or BF16
  std::optional<std::array<int64_t, 3>> capture_layers;  // our numbering; default [2, L/2, L-3]
  bool fc_norm = false, norm_output = true;
  int64_t layers = 0;                 // P-EAGLE: 0: 4
  int64_t mask_token = -1;            // P-EAGLE: as InitBlocksOptions'
  bool norm_before_residual = false;  // P-EAGLE
  bool from_target = false;           // start from the target (arch::warm_start), not from random matrices
  bool reference_quirks = false;      // SpecForge's mask rule and tie rule (first seen) for the counts
  Reporter report;
};

// Whether a draft of this algorithm has [draft]'s layers, mask and norm_before_residual.
bool has_layers(std::string_view algorithm);
// config.json of a new draft of the target with `words` tokens, `layers` of them (0: its own), where only shapes count.
Json vocabulary_shapes(std::string_view algorithm, const arch::Decoder& target, int64_t words, int64_t layers);

// Returns the directory published: config.json, model.safetensors (all trainable parameters, t2d BOOL, d2t I64) and a
// manifest that names the target. embed_tokens.weight is not stored: the manifest says that it is taken from the
// target.
//
// Matrices are normal(0, 0.02), norms one, as the reference starts; with from_target as arch::warm_start says. Values
// depend on (seed, parameter, element) alone.
//
// Errors: kNoInput (target or data missing), kConfig (algorithm, sizes, the target's family), kData (chats file, no
// supervised token at all), kCantCreate (`out` exists), kIo.
std::filesystem::path init_draft(const InitDraftOptions& options);

// What init_draft would do, without reading the chats or writing.
Json plan_draft(const InitDraftOptions& options);

}  // namespace sf::tool
