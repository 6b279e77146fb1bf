// SPDX-License-Identifier: Apache-2.0
#include "app/command.h"
#include "tool/eval_merge.h"
#include "tool/eval_report.h"
#include "tool/eval_score.h"
#include "tool/plan_compute.h"
#include "tool/report_run.h"
#include "tool/run_exams.h"

using sf::app::Command;
using sf::app::Option;
using sf::app::Verb;

namespace {

Verb accept() {
  return {
      .name = "accept",
      .purpose = "speculative decoding of held prompts: acceptance length and speed",
      .examples = {"sf-eval accept --target target --draft run/latest --prompts demo/held.jsonl",
                   "sf-eval accept --target target --draft draft0 --prompts demo/held.jsonl "
                   "--limit 4 --format json"},
      .options = {{.name = "target", .value = "DIR", .help = "target checkpoint", .required = true},
                  {.name = "draft", .value = "DIR", .help = "draft checkpoint", .required = true},
                  {.name = "prompts", .value = "FILE", .help = "prompts, JSON Lines", .required = true},
                  {.name = "limit", .value = "N", .help = "only the first N prompts"}},
      .settings = {"target", "generate", "speculation"},
      .plan = sf::tool::accept_plan,
      .tensor_entry = "sf_eval_accept",
  };
}

// What checkpoints and watch share: what is asked, how it is judged, and where the verdicts go.
std::vector<Option> series_options() {
  return {{.name = "questions", .value = "FILE", .help = "questions with golds", .required = true},
          {.name = "output",
           .value = "DIR",
           .help = "directory of the verdicts; what is there is not made again",
           .required = true,
           .letter = 'o'},
          {.name = "target", .value = "DIR", .help = "what the run began from, as step 0"},
          {.name = "samples", .value = "N", .help = "answers to each question", .setting = "eval.samples"},
          {.name = "rule", .value = "NAME", .help = "default aime-v1; any other name lists them"},
          {.name = "pattern", .value = "REGEX", .help = "what rule regex takes the last match of"},
          {.name = "allow-unfinished", .help = "grade a thinking part that never ended"},
          {.name = "last-number", .help = "take the last number where nothing states an answer"}};
}

Verb checkpoints() {
  Verb verb = {
      .name = "checkpoints",
      .purpose = "answers and verdicts of a run's checkpoints, each made once",
      .examples = {"sf-eval checkpoints tuned --questions aime/questions.jsonl -o evals",
                   "sf-eval checkpoints tuned --nth 0 --shard 1/2 "
                   "--questions aime/questions.jsonl -o evals"},
      .options = series_options(),
      .settings = {"target", "generate", "eval.samples", "eval.system", "eval.prompt", "eval.thinking"},
      .takes_positional = true,
      .positional_help = "RUN  directory of a run",
      .plan = sf::tool::checkpoints_plan,
      .done = sf::tool::checkpoints_done,
      .tensor_entry = "sf_eval_checkpoints",
  };
  verb.options.push_back({.name = "nth", .value = "K", .help = "only the checkpoint number K, from 0"});
  verb.options.push_back(
      {.name = "shard", .value = "I/N", .help = "only part I, from 0, of N; the last part made merges all"});
  return verb;
}

Verb watch() {
  Verb verb = {
      .name = "watch",
      .purpose = "answers and verdicts of a run's checkpoints as they appear",
      .examples = {"sf-eval watch tuned --questions aime/questions.jsonl -o evals --idle 2",
                   "sf-eval watch tuned --questions aime/questions.jsonl -o evals "
                   "--target target --idle 2"},
      .options = series_options(),
      .settings = {"target", "generate", "eval.samples", "eval.system", "eval.prompt", "eval.thinking"},
      .takes_positional = true,
      .positional_help = "RUN  directory of a run; it may come later",
      .plan = sf::tool::watch_plan,
      .tensor_entry = "sf_eval_watch",
  };
  verb.options.push_back(
      {.name = "idle", .value = "SECONDS", .help = "end after so long without a new checkpoint; default 3600"});
  return verb;
}

Verb generate() {
  return {
      .name = "generate",
      .purpose = "answers of a target to a set of questions",
      .examples = {"sf-eval generate --target target --questions aime/questions.jsonl -o out.jsonl",
                   "sf-eval generate --target target --questions demo/held.jsonl --limit 1",
                   "sf-eval generate --target target --questions aime/questions.jsonl --samples 4 "
                   "--set generate.temperature=0.6 --ranks 2 -o out.jsonl"},
      .options = {{.name = "target", .value = "DIR", .help = "target checkpoint", .required = true},
                  {.name = "adapter", .value = "DIR", .help = "LoRA adapter that the target is merged with in memory"},
                  {.name = "questions", .value = "FILE", .help = "questions or prompts, JSON Lines", .required = true},
                  {.name = "draft", .value = "DIR", .help = "decode with this draft"},
                  {.name = "samples", .value = "N", .help = "answers to each question", .setting = "eval.samples"},
                  {.name = "limit", .value = "N", .help = "only the first N questions"},
                  {.name = "shard", .value = "I/N", .help = "only part I, from 0, of N parts of the questions"},
                  {.name = "output",
                   .value = "FILE",
                   .help = "the answers, JSON Lines; finished rows are kept",
                   .letter = 'o'}},
      .settings = {"target", "generate", "eval.samples", "eval.system", "eval.prompt", "eval.thinking", "speculation",
                   "comm"},
      .plan = sf::tool::generate_plan,
      .tensor_entry = "sf_eval_generate",
      .ranks = true,
  };
}

Verb merge() {
  return {
      .name = "merge",
      .purpose = "verdicts of all shards of a set as one file",
      .examples = {"sf-eval merge shards -o step150.jsonl", "sf-eval merge shards -o step150.jsonl --format json"},
      .options = {{.name = "output",
                   .value = "FILE",
                   .help = "the verdicts of the whole set",
                   .required = true,
                   .letter = 'o'}},
      .takes_positional = true,
      .positional_help = "DIR  directory of the shards' verdicts",
      .run = sf::tool::eval_merge,
  };
}

Verb report() {
  return {
      .name = "report",
      .purpose = "a run, or verdicts of checkpoints, as one page with its curves",
      .examples = {"sf-eval report run -o report.html", "sf-eval report run --before before.json --after after.json",
                   "sf-eval report --trace run -o step.svg", "sf-eval report aime/curve.csv --of 30 -o curve.html"},
      .options = {{.name = "output",
                   .value = "FILE",
                   .help = "the page; of a run by default RUN/report.html; curves beside it",
                   .letter = 'o'},
                  {.name = "before",
                   .value = "FILE",
                   .help = "sf-eval accept --format json of the draft before training; default: before.json"},
                  {.name = "after", .value = "FILE", .help = "the same after training; default: after.json"},
                  {.name = "trace", .help = "draw a step's timeline, a row a rank, instead; default RUN/trace.svg"},
                  {.name = "step", .value = "N", .help = "the step to draw; default: the last recorded"},
                  {.name = "against", .value = "LABEL", .help = "verdicts: compare with this one, not the first"},
                  {.name = "rule", .value = "NAME", .help = "verdicts: of this rule; others show agreement"},
                  {.name = "of", .value = "N", .help = "curve, needed: each value is a share of N answers"},
                  {.name = "fail-under", .value = "SHARE", .help = "exit status 1 if the last pass@1 is below"},
                  {.name = "repair", .help = "leave out a half-written last line"}},
      .takes_positional = true,
      .positional_help = "WHAT  directory of a run or of verdicts, a file of them, or a .csv curve",
      .run = sf::tool::report_run,
  };
}

Verb compare() {
  return {
      .name = "compare",
      .purpose = "paired tests between verdicts over the same questions",
      .examples = {"sf-eval compare step150.jsonl --against step0.jsonl",
                   "sf-eval compare verdicts --against step0.jsonl --format json"},
      .options = {{.name = "against", .value = "FILE", .help = "verdicts to compare with", .required = true},
                  {.name = "fail-under", .value = "SHARE", .help = "exit status 1 if the last pass@1 is below"},
                  {.name = "repair", .help = "leave out a half-written last line"}},
      .takes_positional = true,
      .positional_help = "VERDICTS  a file of verdicts, or a directory of them",
      .run = sf::tool::eval_compare,
  };
}

Verb score() {
  return {
      .name = "score",
      .purpose = "verdicts of answers by a named rule",
      .examples = {"sf-eval score aime/answers.jsonl --questions aime/questions.jsonl",
                   "sf-eval score aime/answers.jsonl --questions aime/questions.jsonl "
                   "--explain aime-2/0"},
      .options = {{.name = "questions", .value = "FILE", .help = "questions with golds; default: the answers' own"},
                  {.name = "rule", .value = "NAME", .help = "default aime-v1; any other name lists them"},
                  {.name = "pattern", .value = "REGEX", .help = "what rule regex takes the last match of"},
                  {.name = "allow-unfinished", .help = "grade a thinking part that never ended"},
                  {.name = "last-number", .help = "take the last number where nothing states an answer"},
                  {.name = "partial", .help = "questions without answers are left out, not refused"},
                  {.name = "repair", .help = "leave out a half-written last line"},
                  {.name = "shard", .value = "I/N", .help = "only part I, from 0, of N parts of the questions"},
                  {.name = "explain",
                   .value = "ID",
                   .help = "show the answers of ID, or ID/SAMPLE, with what was found"},
                  {.name = "fail-under", .value = "SHARE", .help = "exit status 1 if pass@1 is below"},
                  {.name = "verl", .help = "also verl's best@n, worst@n and maj@n, by its own draws"},
                  {.name = "label", .value = "TEXT", .help = "name of these answers in reports"},
                  {.name = "step", .value = "N", .help = "training step of these answers in reports"},
                  {.name = "again", .help = "a re-evaluation: stands beside the first in reports"},
                  {.name = "output", .value = "FILE", .help = "keep every verdict, JSON Lines", .letter = 'o'}},
      .takes_positional = true,
      .positional_help = "ANSWERS  answers, JSON Lines",
      .run = sf::tool::eval_score,
  };
}

}  // namespace

const Command& command() {
  static const Command eval = {
      .name = "sf-eval",
      .purpose = "measure what was trained",
      .verbs = {accept(), checkpoints(), compare(), generate(), merge(), report(), score(), watch()}};
  return eval;
}
