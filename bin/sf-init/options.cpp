// SPDX-License-Identifier: Apache-2.0
#include "app/command.h"
#include "tool/verbs.h"

using sf::app::Command;
using sf::app::Verb;

namespace {

Verb model() {
  return {
      .name = "model",
      .purpose = "a Hugging Face directory or a GGUF file becomes a checkpoint",
      .examples = {"sf-init model smollm2.gguf -o target", "sf-init model hf-model --dtype bf16 --plan -o target"},
      .options = {{.name = "output", .value = "DIR", .help = "checkpoint to publish", .required = true, .letter = 'o'},
                  {.name = "dtype",
                   .value = "fp32|bf16|fp16",
                   .help = "type of the stored parameters; default: each tensor's own, fp32 for a quantised one"},
                  {.name = "tied-from",
                   .value = "NAME",
                   .help = "of two tied tensors whose bytes differ, the one that counts"},
                  {.name = "strict", .help = "refuse weights that are NaN or infinite, instead of warning"},
                  {.name = "ranks",
                   .value = "N",
                   .help = "cut the files so that each of N readers has its own; any number can read them"},
                  {.name = "shard-bytes", .value = "BYTES", .help = "most bytes of a file, as 2GiB; default 5GiB"},
                  {.name = "resume", .help = "keep the files that a killed process of the same line had finished"}},
      .takes_positional = true,
      .positional_help = "SOURCE  Hugging Face directory or GGUF file",
      .run = sf::tool::init_model_verb,
  };
}

std::string in_a_row(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

Verb draft() {
  return {
      .name = "draft",
      .purpose = "a new draft for a target, its vocabulary counted over chats",
      .examples = {"sf-init draft eagle3 --target target --draft-vocab 8192 --data chats.jsonl -o draft0",
                   "sf-init draft eagle3 --target target -o draft0 --plan"},
      .options = {{.name = "target", .value = "DIR", .help = "target checkpoint", .required = true},
                  {.name = "data", .value = "FILE", .help = "chats the draft's vocabulary is counted over, JSON Lines"},
                  {.name = "output", .value = "DIR", .help = "checkpoint to publish", .required = true, .letter = 'o'},
                  {.name = "draft-vocab",
                   .value = "N",
                   .help = "tokens the draft can propose; default: all of the target's",
                   .setting = "draft.vocab_size"},
                  {.name = "from",
                   .value = "DIR",
                   .help = "published draft (HF, sglang, vLLM) to begin with; what it lacks begins anew"},
                  {.name = "dtype", .value = "fp32|bf16", .help = "type of the stored parameters; default fp32"},
                  {.name = "seed", .value = "N", .help = "seed of the initial weights", .setting = "draft.seed"},
                  {.name = "reference-quirks",
                   .help = "count as the reference does",
                   .setting = "training.reference_quirks"}},
      .settings = {"draft", "capture.max_length", "training.reference_quirks"},
      .takes_positional = true,
      .positional_help = "ALGORITHM  " + in_a_row(sf::tool::draft_algorithms()),
      .positional_choices = sf::tool::draft_algorithms(),
      .run = sf::tool::init_draft_verb,
  };
}

Verb lora() {
  return {
      .name = "lora",
      .purpose = "a new LoRA adapter for a target, in the files that PEFT reads",
      .examples = {"sf-init lora target --rank 16 --alpha 32 --targets q_proj,v_proj -o adapter0",
                   "sf-init lora target --targets all-linear --plan -o adapter0"},
      .options = {{.name = "output", .value = "DIR", .help = "adapter to publish", .required = true, .letter = 'o'},
                  {.name = "rank", .value = "N", .help = "rank of every adapter", .setting = "lora.rank"},
                  {.name = "alpha",
                   .value = "X",
                   .help = "what an adapter adds is scaled by alpha / rank",
                   .setting = "lora.alpha"},
                  {.name = "targets",
                   .value = "NAMES",
                   .help = "linear layers: names or endings with commas, all-linear, or re:EXPRESSION",
                   .setting = "lora.targets"},
                  {.name = "experts",
                   .value = "NAMES",
                   .help = "fused parameters of experts: names or endings with commas",
                   .setting = "lora.experts"},
                  {.name = "dtype", .value = "fp32|bf16", .help = "type of the stored parameters; default fp32"},
                  {.name = "seed", .value = "N", .help = "seed of the initial weights", .setting = "lora.seed"}},
      .settings = {"lora"},
      .takes_positional = true,
      .positional_help = "TARGET  target checkpoint",
      .run = sf::tool::init_lora_verb,
  };
}

}  // namespace

const Command& command() {
  static const Command init = {
      .name = "sf-init", .purpose = "make checkpoints to start from", .verbs = {model(), draft(), lora()}};
  return init;
}
