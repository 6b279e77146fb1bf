// SPDX-License-Identifier: Apache-2.0
#include "app/command.h"
#include "tool/inspect_stream.h"
#include "tool/plan_compute.h"

using sf::app::Command;
using sf::app::Verb;

namespace {

Verb features() {
  return {
      .name = "features",
      .purpose = "run the target over chats and give its states to trainers",
      .examples = {"sf-capture features --target target --draft draft0 --data chats.jsonl | "
                   "sf-train eagle3 --draft draft0 --from - -o run",
                   "sf-capture features --target target --draft draft0 --data chats.jsonl --ranks 2 -o features",
                   "sf-capture features --synthetic qwen3-8b/64 --n 8 -o random"},
      .options = {{.name = "target", .value = "DIR", .help = "target checkpoint"},
                  {.name = "draft", .value = "DIR", .help = "draft whose config names layers and norm point"},
                  {.name = "data", .value = "FILE", .help = "chats, JSON Lines"},
                  {.name = "import",
                   .value = "DIR",
                   .help = "instead of --data: SpecForge's files of features, compared with the target"},
                  {.name = "output",
                   .value = "DIR",
                   .help = "write a directory of features instead of streaming",
                   .letter = 'o'},
                  {.name = "reuse",
                   .value = "DIR",
                   .help = "features of which rows with the same tokens and mask are taken over"},
                  {.name = "rejected",
                   .value = "FILE",
                   .help = "where void rows and their reasons go; default: the data file's name and .rejected"},
                  {.name = "handle-file", .value = "FILE", .help = "publish the stream's handle here, not on stdout"},
                  {.name = "host-resident",
                   .value = "PATTERN",
                   .help = "frozen parameters, by the end of their names, of which a host keeps one copy",
                   .setting = "shard.host_resident",
                   .repeatable = true},
                  {.name = "synthetic",
                   .value = "SHAPE",
                   .help = "no target: random numbers in the shapes of qwen3-8b, qwen3-8b/8, or a checkpoint's"},
                  {.name = "n", .value = "N", .help = "rows of --synthetic; default 256"}},
      .settings = {"target", "capture", "data", "stream.credit_mib", "stream.heartbeat_s", "stream.stop_deadline_s",
                   "stream.bind", "stream.encrypt", "stream.rejoin_deadline_s", "stream.report_s", "shard.backend",
                   "shard.host_resident", "shard.host_dir", "engine.call_deadline_s", "comm"},
      .plan = sf::tool::capture_features_plan,
      .tensor_entry = "sf_capture_features",
      .ranks = true,
  };
}

Verb regenerate() {
  return {
      .name = "regenerate",
      .purpose = "let the target answer prompts: the chats a draft must learn",
      .examples = {"sf-capture regenerate --target target --prompts demo/prompts.jsonl -o chats.jsonl",
                   "sf-capture regenerate --target target --prompts demo/prompts.jsonl --limit 8 "
                   "--set generate.max_new_tokens=64 --ranks 2 -o few.jsonl"},
      .options = {{.name = "target", .value = "DIR", .help = "target checkpoint", .required = true},
                  {.name = "prompts", .value = "FILE", .help = "prompts, JSON Lines", .required = true},
                  {.name = "output",
                   .value = "FILE",
                   .help = "chats, JSON Lines; finished rows of it are kept",
                   .required = true,
                   .letter = 'o'},
                  {.name = "limit", .value = "N", .help = "only the first N prompts"}},
      .settings = {"target", "generate", "comm"},
      .plan = sf::tool::answers_plan,
      .tensor_entry = "sf_capture_regenerate",
      .ranks = true,
  };
}

Verb inspect() {
  return {
      .name = "inspect",
      .purpose = "a stream's handle, a directory of features, or what of chats is supervised",
      .examples = {"sf-capture inspect features", "sf-capture inspect features --rows",
                   "sf-capture inspect chats.jsonl --mask --target target"},
      .options = {{.name = "rows", .help = "of a directory of features: every sample"},
                  {.name = "mask", .help = "the text of rows, with what is supervised standing out"},
                  {.name = "target", .value = "DIR", .help = "with --mask: whose words the tokens are"},
                  {.name = "html", .help = "with --mask: a page"}},
      .settings = {"capture.max_length", "capture.mask_rule"},
      .takes_positional = true,
      .positional_help = "WHAT  directory of features, handle file, - for a handle on stdin; with --mask chats",
      .run = sf::tool::inspect_stream,
  };
}

}  // namespace

const Command& command() {
  static const Command capture = {.name = "sf-capture",
                                  .purpose = "what a target model says and thinks, as training data",
                                  .verbs = {features(), regenerate(), inspect()}};
  return capture;
}
