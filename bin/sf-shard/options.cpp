// SPDX-License-Identifier: Apache-2.0
#include "app/command.h"
#include "tool/verbs.h"

using sf::app::Command;
using sf::app::Verb;

namespace {

Verb inspect() {
  return {
      .name = "inspect",
      .purpose = "what a checkpoint or a file of tensors holds",
      .examples = {"sf-shard inspect target", "sf-shard inspect smollm2.gguf --digests --format json"},
      .options = {{.name = "digests", .help = "read all bytes and name the XXH3 of every tensor"}},
      .takes_positional = true,
      .positional_help = "PATH  checkpoint, Hugging Face or feature directory, safetensors or GGUF file",
      .run = sf::tool::shard_inspect_verb,
  };
}

Verb plan() {
  return {
      .name = "plan",
      .purpose = "what a run would hold, send and wait for, from shapes alone",
      .examples = {"sf-shard plan -c dflash-qwen3-8b.toml --ranks 4 --memory 80GiB",
                   "sf-shard plan -c dflash-qwen3-8b.toml --ranks 8 --bandwidth 350G --memory 80GiB "
                   "--format json",
                   "sf-shard plan -c qwen3.8-flash-next.toml -c grpo-16xH200.toml --ranks 16 "
                   "--memory 130GiB --bandwidth 50G"},
      .options = {{.name = "ranks", .value = "N", .help = "of this many ranks; default 1"},
                  {.name = "memory",
                   .value = "BYTES",
                   .help = "what a rank may use, as 80GiB; default: this host's, divided by the ranks",
                   .setting = "plan.memory"},
                  {.name = "bandwidth",
                   .value = "BYTES",
                   .help = "bytes a second that a rank receives, as 10G",
                   .setting = "plan.bandwidth"}},
      .settings = {"plan",
                   "engine.mode",
                   "engine.memory",
                   "engine.compute_dtype",
                   "engine.numerics",
                   "engine.accumulate",
                   "engine.prefetch",
                   "shard.backend",
                   "shard.replicas",
                   "shard.reshard",
                   "shard.frozen_tables",
                   "shard.host_resident",
                   "shard.wrap",
                   "training",
                   "capture.max_length",
                   "capture.feature_dtype",
                   "draft.vocab_size",
                   "draft.hidden_layers",
                   "draft.block_size",
                   "draft.conv_kernel_size",
                   "draft.conv_group_size",
                   "draft.selector_rank",
                   "draft.selector_top_k",
                   "draft.markov_rank",
                   "draft.markov_head_type",
                   "draft.confidence_head",
                   "draft.confidence_head_with_markov",
                   "draft.emb_dim",
                   "draft.gru_hidden_dim",
                   "draft.pure_draft_prefix_len",
                   "draft.shift_label",
                   "stream.credit_mib",
                   "grpo",
                   "generate",
                   "eval.samples",
                   "target.compute_dtype",
                   "lora",
                   "planned"},
      .run = sf::tool::shard_plan_verb,
  };
}

Verb verify() {
  return {
      .name = "verify",
      .purpose = "is everything there, and is it what was published?",
      .examples = {"sf-shard verify target", "sf-shard verify run/latest && echo whole"},
      .takes_positional = true,
      .positional_help = "DIR  checkpoint, or directory of features",
      .run = sf::tool::shard_verify_verb,
  };
}

Verb diff() {
  return {
      .name = "diff",
      .purpose = "where two sets of tensors differ, to the bit",
      .examples = {"sf-shard diff run/step-100 run/step-200", "sf-shard diff smollm2.gguf target --values --ulp 1"},
      .options = {{.name = "ulp",
                   .value = "N",
                   .help = "values at most this many units in the last place apart are equal"},
                  {.name = "values", .help = "only values count: types and aliases may differ"}},
      .takes_positional = true,
      .positional_help = "A B  checkpoints, Hugging Face directories, safetensors or GGUF files",
      .run = sf::tool::shard_diff_verb,
  };
}

Verb reshard() {
  return {
      .name = "reshard",
      .purpose = "the same checkpoint in other files",
      .examples = {"sf-shard reshard run/latest -o one-file", "sf-shard reshard target --shard-bytes 2GiB -o split"},
      .options = {{.name = "output", .value = "DIR", .help = "checkpoint to publish", .required = true, .letter = 'o'},
                  {.name = "shard-bytes",
                   .value = "BYTES",
                   .help = "tensors of one file, as 2GiB; default: one file for all"}},
      .takes_positional = true,
      .positional_help = "DIR  checkpoint",
      .run = sf::tool::shard_reshard_verb,
  };
}

Verb merge() {
  return {
      .name = "merge",
      .purpose = "a target and its LoRA adapter become one target",
      .examples = {"sf-shard merge run-lora/latest -o merged",
                   "sf-shard merge adapter0 --target target --keep -o merged",
                   "sf-shard merge merged --undo -o target-again"},
      .options = {{.name = "output", .value = "DIR", .help = "checkpoint to publish", .required = true, .letter = 'o'},
                  {.name = "target",
                   .value = "DIR",
                   .help = "the adapter's target; default: where its manifest says it is"},
                  {.name = "keep", .help = "keep what merging changes beside it, so that it can be undone"},
                  {.name = "undo", .help = "DIR is merged, with --keep: publish its target again"}},
      .takes_positional = true,
      .positional_help = "DIR  adapter, or with --undo a merged checkpoint",
      .run = sf::tool::shard_merge_verb,
  };
}

Verb export_to() {
  return {
      .name = "export",
      .purpose = "a model, an EAGLE3 draft or an adapter for others to load, proved before it is published",
      .examples = {"sf-shard export target --to hf -o model-hf",
                   "sf-shard export run/latest --to sglang --dtype bf16 -o draft-sglang",
                   "sf-shard export run-lora/latest --to peft -o adapter-peft"},
      .options = {{.name = "to", .value = "hf|peft|sglang|vllm", .help = "who is to load it", .required = true},
                  {.name = "output", .value = "DIR", .help = "directory to publish", .required = true, .letter = 'o'},
                  {.name = "dtype", .value = "fp32|bf16|fp16", .help = "type of the parameters; default: as stored"},
                  {.name = "target",
                   .value = "DIR",
                   .help = "the draft's target; default: where the draft's manifest says it is"}},
      .takes_positional = true,
      .positional_help = "DIR  checkpoint",
      .run = sf::tool::shard_export_verb,
  };
}

Verb import_from() {
  return {
      .name = "import",
      .purpose = "what other tools wrote becomes a checkpoint",
      .examples = {"sf-shard import model-hf -o target",
                   "sf-shard import run-step100 --target target --draft-config eagle3.json -o draft0"},
      .options = {{.name = "output", .value = "DIR", .help = "checkpoint to publish", .required = true, .letter = 'o'},
                  {.name = "target", .value = "DIR", .help = "of a draft or an adapter: the checkpoint it belongs to"},
                  {.name = "draft-config",
                   .value = "FILE",
                   .help = "of a draft whose source holds none: its config.json"},
                  {.name = "dtype", .value = "fp32|bf16|fp16", .help = "type of the parameters; default: as stored"}},
      .takes_positional = true,
      .positional_help = "SOURCE  Hugging Face or PEFT directory, training state, file of tensors",
      .run = sf::tool::shard_import_verb,
  };
}

}  // namespace

const Command& command() {
  static const Command shard = {
      .name = "sf-shard",
      .purpose = "plan runs, look at checkpoints, check and convert them",
      .verbs = {plan(), inspect(), verify(), diff(), reshard(), merge(), export_to(), import_from()}};
  return shard;
}
