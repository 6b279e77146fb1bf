// SPDX-License-Identifier: Apache-2.0
// The settings of [training] that belong to one algorithm or some: read, judged and echoed here for --plan and for the
// run.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/dspark.h"
#include "config/settings.h"

namespace sf::tool {

struct Eagle3Settings {
  int unroll = 7;
  bool reference_quirks = false;
  std::string lk_loss_type;
  double kl_scale = 1, kl_decay = 1;  // of loss "lambda"

  bool asks_lk() const { return lk_loss_type != "none"; }
  bool asks_cross_entropy() const { return lk_loss_type == "none" || lk_loss_type == "lambda"; }
};
Eagle3Settings apply_eagle3(config::Settings& settings);

struct PeagleSettings {
  int64_t depths = 8;
  double ratio = 0, least = 0;
  bool reference_quirks = false;
};
PeagleSettings apply_peagle(config::Settings& settings);

// What drafts of blocks have in common.
struct BlockSettings {
  int64_t anchors = 512;
  double gamma = 0;
  bool reference_quirks = false;
};
BlockSettings apply_blocks(config::Settings& settings);

struct SlotLossSettings {
  std::string type;
  double dpace_alpha = 0;
};
SlotLossSettings apply_slot_loss(config::Settings& settings);

struct SelectorSettings {
  double loss_alpha = 0, warmup_ratio = 0, ramp_ratio = 0;
  bool stop_gradient = false;
};
SelectorSettings apply_selector(config::Settings& settings);

struct DsparkSettings {
  double ce_alpha = 0, l1_alpha = 0, confidence_alpha = 0;  // the last is 0 for a draft without a confidence head
};
DsparkSettings apply_dspark(config::Settings& settings, const arch::Dspark& draft);

struct DominoSettings {
  double base_start = 1, base_decay_ratio = 0.5;
};
DominoSettings apply_domino(config::Settings& settings);

// A row of the table of algorithms: the keys that it reads and not every algorithm does, and how it judges them for a
// draft of this config.json.
struct DraftKeys {
  std::string_view algorithm;
  std::vector<std::string_view> keys;
  void (*apply)(config::Settings& settings, const Json& config);
};
// kConfig for values that exclude each other; keys of other algorithms are applied to nothing. "sft" has none of its
// own, nor has "grpo" among these.
void apply_algorithm(config::Settings& settings, std::string_view algorithm, const Json& config);
std::span<const DraftKeys> draft_keys();

}  // namespace sf::tool
