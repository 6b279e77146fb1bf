// SPDX-License-Identifier: Apache-2.0
#include "app/command.h"
#include "tool/plan_compute.h"

using sf::app::Command;
using sf::app::Option;
using sf::app::Verb;

namespace {

// Of every verb.
const Option kOutput = {.name = "output",
                        .value = "DIR",
                        .help = "directory of the run; its checkpoints and metrics",
                        .required = true,
                        .letter = 'o'};
const Option kResume = {.name = "resume",
                        .value = "auto|none|PATH",
                        .help = "go on from the newest checkpoint of the run (auto), or from PATH; default none"};

// The drafts differ in name, purpose and entry; their options are one table.
Verb draft(const char* name, const char* purpose, const char* entry, std::vector<std::string> examples) {
  return {
      .name = name,
      .purpose = purpose,
      .examples = std::move(examples),
      .options = {{.name = "draft", .value = "DIR", .help = "draft to start from", .required = true},
                  {.name = "from",
                   .value = "-|DIR|FILE",
                   .help =
                       "samples: a stream's handle on stdin, a directory of features, or a handle file, given once a "
                       "producer",
                   .required = true,
                   .repeatable = true},
                  kOutput,
                  {.name = "target", .value = "DIR", .help = "target checkpoint; default: the one the features name"},
                  kResume,
                  {.name = "tee", .value = "DIR", .help = "keep what was streamed as a directory of features"},
                  {.name = "host-resident",
                   .value = "PATTERN",
                   .help = "frozen parameters, by the end of their names, of which a host keeps one copy",
                   .setting = "shard.host_resident",
                   .repeatable = true},
                  {.name = "reference-quirks",
                   .help = "reproduce known faults of the reference",
                   .setting = "training.reference_quirks"}},
      .settings = {"training", "engine", "comm", "shard", "stream.credit_mib", "stream.low_mib", "stream.cap_mib",
                   "stream.heartbeat_s", "stream.rejoin_deadline_s", "stream.report_s", "eval.interval",
                   "eval.held_prompts", "eval.limit", "eval.draft_tokens", "eval.max_new_tokens", "eval.batch",
                   "eval.deadline_s"},
      .plan = [name](sf::app::Invocation& invocation) { return sf::tool::train_draft_plan(invocation, name); },
      .tensor_entry = entry,
      .ranks = true,
  };
}

Verb sft() {
  return {
      .name = "sft",
      .purpose = "fine-tune a target on chats: every parameter, or a LoRA adapter alone",
      .examples =
          {"sf-train sft --target target --data chats.jsonl --ranks 2 -o run",
           "sf-train sft --target target --data chats.jsonl --set engine.compute_dtype=bf16 --resume auto -o tuned",
           "sf-train sft --target target --adapter adapter0 --data chats.jsonl -o run-lora"},
      .options = {{.name = "target", .value = "DIR", .help = "target checkpoint to start from", .required = true},
                  {.name = "data", .value = "FILE", .help = "chats, one JSON object a line", .required = true},
                  {.name = "adapter",
                   .value = "DIR",
                   .help = "LoRA adapter to start from, ours or PEFT's: it trains alone, the target is frozen"},
                  kOutput,
                  kResume},
      .settings = {"training", "engine", "comm", "shard", "capture.max_length", "capture.mask_rule", "data"},
      .plan = sf::tool::train_sft_plan,
      .tensor_entry = "sf_train_sft",
      .ranks = true,
  };
}

Verb grpo() {
  return {
      .name = "grpo",
      .purpose = "train a LoRA adapter by rewards: GRPO on questions with known answers",
      .examples = {"sf-train grpo --target target --adapter adapter0 --questions sums.jsonl --rule gsm8k "
                   "--set generate.temperature=1 --ranks 2 -o run-grpo",
                   "sf-train grpo --target target --adapter adapter0 --questions sums.jsonl --held held.jsonl "
                   "--rule gsm8k --set generate.temperature=1 --resume auto -o run-grpo"},
      .options =
          {{.name = "target", .value = "DIR", .help = "target checkpoint, which stays as it is", .required = true},
           {.name = "adapter",
            .value = "DIR",
            .help = "LoRA adapter to start from, ours or PEFT's: it trains alone",
            .required = true},
           {.name = "questions",
            .value = "FILE",
            .help = "questions with their answers, one JSON object a line",
            .required = true},
           {.name = "held", .value = "FILE", .help = "questions held out, answered greedily now and then"},
           {.name = "rollout", .value = "local", .help = "who answers: local (default), the trainer's own ranks"},
           {.name = "rule", .value = "NAME", .help = "rule that judges answers; default aime-v1"},
           {.name = "pattern", .value = "REGEX", .help = "of rule regex: what it matches last is the answer"},
           {.name = "last-number", .help = "rule aime-v1: the last number where nothing states an answer"},
           {.name = "allow-unfinished", .help = "rules aime-v1, math: judge thinking that never ended"},
           {.name = "reward", .value = "COMMAND", .help = "program whose scores count, JSON Lines in and out"},
           kOutput,
           kResume},
      .settings = {"training", "grpo", "engine", "comm", "shard", "generate", "eval.system", "eval.prompt",
                   "eval.thinking", "eval.samples", "target.compute_dtype", "data", "planned"},
      .plan = sf::tool::train_grpo_plan,
      .tensor_entry = "sf_train_grpo",
      .ranks = true,
  };
}

Verb eagle3() {
  return draft("eagle3", "train an EAGLE3 draft from captured target features", "sf_train_eagle3",
               {"sf-capture features --target target --draft draft0 --data chats.jsonl | "
                "sf-train eagle3 -c demo/demo.toml --draft draft0 --from - --ranks 2 -o run",
                "sf-train eagle3 --draft draft0 --from features --resume auto -o run"});
}

Verb dflash() {
  return draft("dflash", "train a DFlash draft from captured target features", "sf_train_dflash",
               {"sf-capture features --target target --draft dflash0 --data chats.jsonl | "
                "sf-train dflash --draft dflash0 --from - --ranks 2 -o run-dflash",
                "sf-train dflash --draft dflash0 --from features-dflash --resume auto "
                "--set shard.frozen_tables=target_embedding=rows,target_head=stream -o run-dflash"});
}

Verb dflash2() {
  return draft("dflash2", "train a DFlash2 draft from captured target features", "sf_train_dflash2",
               {"sf-capture features --target target --draft dflash2-0 --data chats.jsonl | "
                "sf-train dflash2 --draft dflash2-0 --from - --ranks 2 -o run-dflash2",
                "sf-train dflash2 --draft dflash2-0 --from features-dflash --resume auto -o run-dflash2"});
}

Verb dspark() {
  return draft("dspark", "train a DSpark draft from captured target features", "sf_train_dspark",
               {"sf-capture features --target target --draft dspark0 --data chats.jsonl | "
                "sf-train dspark --draft dspark0 --from - --set training.loss_decay_gamma=4 -o run-dspark",
                "sf-train dspark --draft dspark0 --from features-dspark --resume auto -o run-dspark"});
}

Verb domino() {
  return draft("domino", "train a Domino draft from captured target features", "sf_train_domino",
               {"sf-capture features --target target --draft domino0 --data chats.jsonl | "
                "sf-train domino --draft domino0 --from - --set training.loss_decay_gamma=7 -o run-domino",
                "sf-train domino --draft domino0 --from features-dflash --resume auto -o run-domino"});
}

Verb peagle() {
  return draft("peagle", "train a P-EAGLE draft from captured target features", "sf_train_peagle",
               {"sf-capture features --target target --draft peagle0 --data chats.jsonl | "
                "sf-train peagle --draft peagle0 --from - --ranks 2 -o run-peagle",
                "sf-train peagle --draft peagle0 --from features --resume auto -o run-peagle"});
}

}  // namespace

const Command& command() {
  static const Command train = {.name = "sf-train",
                                .purpose = "train drafts and adapters on sharded parameters",
                                .verbs = {eagle3(), dflash(), dflash2(), dspark(), domino(), peagle(), sft(), grpo()}};
  return train;
}
