// SPDX-License-Identifier: Apache-2.0
// sf-init draft: a new draft of blocks (DFlash and those built on it) for a target.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "arch/dflash.h"
#include "base/dtype.h"
#include "base/json.h"
#include "config/settings.h"
#include "text/chat.h"
#include "tool/progress.h"

namespace sf::tool {

// The config.json of a draft on these blocks.
using DraftConfig = std::function<Json(const arch::Dflash& blocks)>;
// A row of the table of kinds: its settings of [draft], and how they are read and applied.
struct BlockKind {
  std::string_view name;
  std::vector<std::string_view> settings;
  DraftConfig (*read)(config::Settings& settings);
};
std::span<const BlockKind> block_kinds();
const BlockKind* block_kind(std::string_view name);  // null: no kind of this name

struct InitBlocksOptions {
  std::filesystem::path target;  // checkpoint directory
  std::filesystem::path out;
  std::string_view kind = "dflash";
  DraftConfig config;
  uint64_t seed = 0;
  Dtype dtype = Dtype::kF32;            // storage: F32 (masters) or BF16
  int64_t layers = 0, block = 16;       // of the draft, 0: 1; slots of a block
  int64_t window = 0;                   // of every layer but the last; 0: none
  int64_t mask_token = -1;              // -1: the first row of the target's embedding that no token has, else its eos
  std::vector<int64_t> capture_layers;  // our numbering; empty: arch::dflash_capture_layers
  Reporter report;
};

// The token of what is masked: `asked`, or (-1) the first row of the target's embedding that no token has, else its end
// of sequence. kConfig if there is neither, or `asked` is out of range.
int64_t choose_mask_token(int64_t asked, const text::ChatEncoder& encoder, const arch::Decoder& target,
                          const Reporter& report);

// Returns the directory published: config.json, model.safetensors (all parameters of the draft) and a manifest that
// names the target and which of its tables training takes. Matrices are normal(0, 0.02), norms one. Errors as
// init_draft's; kConfig if the target's every row is a token's and it names no end of sequence.
std::filesystem::path init_blocks(const InitBlocksOptions& options);
// What it would do; touches nothing.
Json plan_blocks(const InitBlocksOptions& options);

}  // namespace sf::tool
