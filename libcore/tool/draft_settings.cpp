// SPDX-License-Identifier: Apache-2.0
#include "tool/draft_settings.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "config/apply.h"

namespace sf::tool {
namespace {

using config::Apply;

bool quirks(config::Settings& settings) {
  return Apply(settings, "loss and schedule", "train").flag("training.reference_quirks");
}

void judge_eagle3(config::Settings& settings, const Json&) {
  apply_eagle3(settings);
}
void judge_peagle(config::Settings& settings, const Json&) {
  apply_peagle(settings);
}
void judge_dflash(config::Settings& settings, const Json&) {
  apply_blocks(settings);
  apply_slot_loss(settings);
}
void judge_dflash2(config::Settings& settings, const Json& config) {
  judge_dflash(settings, config);
  apply_selector(settings);
}
void judge_dspark(config::Settings& settings, const Json& config) {
  apply_blocks(settings);
  apply_dspark(settings, arch::dspark_from_config(config));
}
void judge_domino(config::Settings& settings, const Json&) {
  apply_blocks(settings);
  apply_domino(settings);
}

}  // namespace

Eagle3Settings apply_eagle3(config::Settings& settings) {
  Apply label(settings, "every label", "model");
  Eagle3Settings result{.lk_loss_type = label.word("training.lk_loss_type")};
  if (result.lk_loss_type == "lambda") {
    result.kl_scale = label.number("training.kl_scale");
    result.kl_decay = label.number("training.kl_decay");
  } else {
    Apply without(settings, "0 labels (training.lk_loss_type is not lambda)", "model");
    for (const char* key : {"training.kl_scale", "training.kl_decay"}) without.nothing(key);
  }
  result.unroll = static_cast<int>(Apply(settings, "1 segment", "model").whole("training.unroll"));
  result.reference_quirks = quirks(settings);
  return result;
}

PeagleSettings apply_peagle(config::Settings& settings) {
  Apply rows(settings, "every row", "data");
  PeagleSettings result{.depths = rows.whole("training.num_depths"),
                        .ratio = rows.number("training.down_sample_ratio"),
                        .least = rows.number("training.down_sample_ratio_min")};
  result.reference_quirks = quirks(settings);
  return result;
}

BlockSettings apply_blocks(config::Settings& settings) {
  BlockSettings result{.anchors = Apply(settings, "every row", "data").whole("training.num_anchors"),
                       .gamma = Apply(settings, "every slot", "train").number("training.loss_decay_gamma")};
  result.reference_quirks = quirks(settings);
  return result;
}

SlotLossSettings apply_slot_loss(config::Settings& settings) {
  Apply slots(settings, "every slot", "train");
  return {slots.word("training.loss_type"), slots.number("training.dpace_alpha")};
}

SelectorSettings apply_selector(config::Settings& settings) {
  Apply selector(settings, "1 selector", "train");
  return {.loss_alpha = selector.number("training.dflash2_selector_loss_alpha"),
          .warmup_ratio = selector.number("training.dflash2_selector_warmup_ratio"),
          .ramp_ratio = selector.number("training.dflash2_selector_ramp_ratio"),
          .stop_gradient = selector.flag("training.dflash2_selector_stop_gradient")};
}

DsparkSettings apply_dspark(config::Settings& settings, const arch::Dspark& draft) {
  Apply slots(settings, "every slot", "train");
  DsparkSettings result{.ce_alpha = slots.number("training.dspark_ce_loss_alpha"),
                        .l1_alpha = slots.number("training.dspark_l1_loss_alpha")};
  Apply head(settings, draft.confidence ? "1 confidence head" : "0 confidence heads", "train");
  double alpha = head.number("training.dspark_confidence_head_alpha");
  if (draft.confidence) result.confidence_alpha = alpha;
  SF_CHECK(result.ce_alpha + result.l1_alpha > 0, Exit::kConfig,
           "training.dspark_ce_loss_alpha and training.dspark_l1_loss_alpha are both 0: nothing would train the draft");
  return result;
}

DominoSettings apply_domino(config::Settings& settings) {
  Apply steps(settings, "every step", "train");
  return {steps.number("training.lambda_base_start"), steps.number("training.lambda_base_decay_ratio")};
}

std::span<const DraftKeys> draft_keys() {
  static const std::vector<DraftKeys> rows = {
      {"eagle3", {"training.unroll", "training.lk_loss_type", "training.kl_scale", "training.kl_decay"}, judge_eagle3},
      {"dflash",
       {"training.num_anchors", "training.loss_decay_gamma", "training.loss_type", "training.dpace_alpha"},
       judge_dflash},
      {"dflash2",
       {"training.num_anchors", "training.loss_decay_gamma", "training.loss_type", "training.dpace_alpha",
        "training.dflash2_selector_loss_alpha", "training.dflash2_selector_warmup_ratio",
        "training.dflash2_selector_ramp_ratio", "training.dflash2_selector_stop_gradient"},
       judge_dflash2},
      {"dspark",
       {"training.num_anchors", "training.loss_decay_gamma", "training.dspark_ce_loss_alpha",
        "training.dspark_l1_loss_alpha", "training.dspark_confidence_head_alpha"},
       judge_dspark},
      {"domino",
       {"training.num_anchors", "training.loss_decay_gamma", "training.lambda_base_start",
        "training.lambda_base_decay_ratio"},
       judge_domino},
      {"peagle",
       {"training.num_depths", "training.down_sample_ratio", "training.down_sample_ratio_min"},
       judge_peagle}};
  return rows;
}

// One file serves all verbs: what only other algorithms read is without effect here, and said to be.
void apply_algorithm(config::Settings& settings, std::string_view algorithm, const Json& config) {
  const bool draft = algorithm != "sft" && algorithm != "grpo";
  Apply without(settings,
                draft ? fmt::format("0 parts of the draft ({} has none)", algorithm)
                      : "0 drafts (a target or an adapter is trained)",
                "train");
  if (!draft) without.nothing("training.reference_quirks");
  if (draft) without.nothing("training.adapter_dtype");
  std::vector<std::string_view> own;
  for (const DraftKeys& row : draft_keys()) {
    if (row.algorithm != algorithm) continue;
    own = row.keys;
    row.apply(settings, config);
  }
  SF_ASSERT(own.empty() != draft);
  for (const DraftKeys& row : draft_keys())
    for (std::string_view key : row.keys)
      if (std::find(own.begin(), own.end(), key) == own.end()) without.nothing(key);
}

}  // namespace sf::tool
