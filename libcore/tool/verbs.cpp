// SPDX-License-Identifier: Apache-2.0
#include "tool/verbs.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "app/ranks.h"
#include "arch/drafts.h"
#include "base/error.h"
#include "base/file.h"
#include "ckpt/checkpoint.h"
#include "config/apply.h"
#include "tool/export_model.h"
#include "tool/import_model.h"
#include "tool/init_blocks.h"
#include "tool/init_draft.h"
#include "tool/init_lora.h"
#include "tool/init_model.h"
#include "tool/memory_limit.h"
#include "tool/merge_adapter.h"
#include "tool/outputs.h"
#include "tool/reshard.h"
#include "tool/shard_diff.h"
#include "tool/shard_inspect.h"
#include "tool/shard_verify.h"

namespace sf::tool {
namespace {

constexpr int kMostReaders = 65536;

// A stop between two pieces of work leaves nothing behind; before the first the signal itself does.
void end_if_asked(app::Invocation& invocation) {
  if (invocation.stop() != app::Stop::kFinishStep) return;
  fail(static_cast<Exit>(128 + invocation.stop_signal()), "stopped by signal {}; nothing was published",
       invocation.stop_signal());
}

Reporter reporter(app::Invocation& invocation) {
  return {.progress =
              [&](std::string_view what, uint64_t done, uint64_t total) {
                end_if_asked(invocation);
                invocation.progress(what, static_cast<int64_t>(done), static_cast<int64_t>(total), "");
              },
          .note = [&](std::string_view text) { invocation.log(text); },
          .warning = [&](std::string_view text) { invocation.warn(text); }};
}

// "fp32", "bf16", ...; the option table has checked the word.
std::optional<Dtype> dtype_option(const app::Invocation& invocation) {
  if (!invocation.has("dtype")) return std::nullopt;
  return dtype_from_config(invocation.get("dtype"));
}

// A flat record: one "key  value" line each, or JSON.
void print_record(app::Invocation& invocation, const Json& record) {
  if (invocation.json_output()) {
    invocation.result(record.dump());
    return;
  }
  for (const auto& [key, value] : record.as_object())
    invocation.result(fmt::format("{:<20} {}", key, value.is_string() ? value.as_string() : value.dump()));
}

void print_text(app::Invocation& invocation, const Json& json, std::string_view table) {
  std::string text = invocation.json_output() ? json.dump() : std::string(table);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  invocation.result(text);
}

uint64_t whole_option(const app::Invocation& invocation, const char* name) {
  std::string text = invocation.get(name);
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SF_CHECK(error == std::errc() && end == text.data() + text.size(), Exit::kUsage,
           "--{}: wanted a whole number, found '{}'", name, text);
  return value;
}

void print_published(app::Invocation& invocation, const std::filesystem::path& dir) {
  invocation.result(invocation.json_output() ? Json::object().set("path", dir.string()).dump() : dir.string());
}

void publish(app::Invocation& invocation, const std::function<std::filesystem::path()>& make,
             const std::function<Json()>& plan) {
  refuse_existing(invocation.get("output"));  // before anything is read
  if (invocation.plan_only()) return print_record(invocation, plan());
  print_published(invocation, make());
}

InitDraftOptions draft_options(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  InitDraftOptions options{.target = invocation.get("target"),
                           .algorithm = invocation.positional().front(),
                           .draft_vocab = settings.get_int("draft.vocab_size"),
                           .data = invocation.get("data", ""),
                           .out = invocation.get("output"),
                           .seed = static_cast<uint64_t>(settings.get_int("draft.seed")),
                           .max_length = static_cast<size_t>(settings.get_int("capture.max_length")),
                           .reference_quirks = settings.get_bool("training.reference_quirks"),
                           .report = reporter(invocation)};
  if (std::optional<Dtype> dtype = dtype_option(invocation)) options.dtype = *dtype;
  options.fc_norm = settings.get_bool("draft.fc_norm");
  options.from_target = settings.get_string("draft.init") == "target";
  std::vector<int64_t> layers = settings.get_ints("draft.layers");
  SF_CHECK(layers.empty() || layers.size() == 3, Exit::kConfig, "{}: draft.layers: wanted three layers, found {}",
           settings.origin("draft.layers"), layers.size());
  if (!layers.empty()) options.capture_layers = std::array{layers[0], layers[1], layers[2]};
  if (has_layers(options.algorithm)) {
    config::Apply apply(settings, "1 draft", "tool");
    options.layers = apply.whole("draft.hidden_layers");
    options.mask_token = apply.whole("draft.mask_token_id");
    options.norm_before_residual = apply.flag("draft.norm_before_residual");
  }
  auto said = [&](const char* key, std::string_view value) { settings.applied(key, value, "1 draft", "tool"); };
  said("draft.vocab_size", std::to_string(options.draft_vocab));
  said("draft.seed", std::to_string(options.seed));
  said("draft.fc_norm", options.fc_norm ? "true" : "false");
  said("draft.init", options.from_target ? "target" : "random");
  said("draft.layers", layers.empty() ? "default" : fmt::format("{},{},{}", layers[0], layers[1], layers[2]));
  said("capture.max_length", std::to_string(options.max_length));
  said("training.reference_quirks", options.reference_quirks ? "true" : "false");
  return options;
}

int init_blocks_verb(app::Invocation& invocation, const BlockKind& kind) {
  config::Settings& settings = invocation.settings();
  config::Apply apply(settings, "1 draft", "tool");
  InitBlocksOptions options{.target = invocation.get("target"),
                            .out = invocation.get("output"),
                            .kind = kind.name,
                            .config = kind.read(settings),
                            .seed = static_cast<uint64_t>(apply.whole("draft.seed")),
                            .layers = apply.whole("draft.hidden_layers"),
                            .block = apply.whole("draft.block_size"),
                            .window = apply.whole("draft.sliding_window"),
                            .mask_token = apply.whole("draft.mask_token_id"),
                            .capture_layers = settings.get_ints("draft.layers"),
                            .report = reporter(invocation)};
  if (std::optional<Dtype> dtype = dtype_option(invocation)) options.dtype = *dtype;
  SF_CHECK(!invocation.has("data"), Exit::kUsage, "--data counts the vocabulary of a draft; {} has the target's",
           kind.name);
  settings.applied("draft.layers", options.capture_layers.empty() ? "default" : "as given", "1 draft", "tool");
  config::Apply without(settings, fmt::format("0 parts of the draft ({} has none)", kind.name), "tool");
  for (const BlockKind& other : block_kinds())
    if (&other != &kind)
      for (std::string_view key : other.settings) without.nothing(key);
  app::settle_settings(invocation);
  publish(
      invocation, [&] { return init_blocks(options); }, [&] { return plan_blocks(options); });
  return 0;
}

// --from: shapes and tensors of a published draft. [draft] says the parts that its family has not.
int init_from_verb(app::Invocation& invocation, const std::string& algorithm, const BlockKind* kind) {
  config::Settings& settings = invocation.settings();
  SF_CHECK(!invocation.has("data"), Exit::kUsage, "--data counts the vocabulary of a new draft; --from {} has its own",
           invocation.get("from"));
  ImportOptions options{.source = invocation.get("from"),
                        .out = invocation.get("output"),
                        .target = invocation.get("target"),
                        .dtype = dtype_option(invocation).value_or(Dtype::kF32),
                        .warm = WarmStart{algorithm, 0, {}},
                        .report = reporter(invocation)};
  const std::filesystem::path config = options.source / "config.json";
  const arch::DraftFamily& from = arch::draft_family(Json::parse(read_file(config), config.string()));
  if (kind && from.blocks && from.name != algorithm) options.warm->config = kind->read(settings);
  options.warm->seed = static_cast<uint64_t>(config::Apply(settings, "what begins anew", "tool").whole("draft.seed"));
  const config::Apply without(settings, "0 shapes (those of --from are taken)", "tool");
  for (const std::string& key : settings.unapplied()) without.nothing(key);
  app::settle_settings(invocation);
  publish(
      invocation, [&] { return import_model(options); }, [&] { return plan_import(options); });
  return 0;
}

}  // namespace

int init_model_verb(app::Invocation& invocation) {
  refuse_existing(invocation.get("output"));
  InitModelOptions options{.source = invocation.positional().front(),
                           .out = invocation.get("output"),
                           .dtype = dtype_option(invocation),
                           .tied_from = invocation.get("tied-from", ""),
                           .strict = invocation.has("strict"),
                           .resume = invocation.has("resume"),
                           .report = reporter(invocation)};
  if (invocation.has("ranks")) options.ranks = app::ranks_from_text(invocation.get("ranks"), kMostReaders);
  if (invocation.has("shard-bytes"))
    options.shard_bytes = bytes_from_text(invocation.get("shard-bytes"), "--shard-bytes");
  SF_CHECK(!invocation.has("ranks") || !invocation.has("shard-bytes"), Exit::kUsage,
           "--ranks and --shard-bytes both say how files are cut; give one");
  publish(
      invocation, [&] { return init_model(options); }, [&] { return plan_model(options); });
  return 0;
}

std::vector<std::string> draft_algorithms() {
  std::vector<std::string> names;
  for (const arch::DraftFamily& family : arch::draft_families()) names.emplace_back(family.name);
  return names;
}

int init_draft_verb(app::Invocation& invocation) {
  refuse_existing(invocation.get("output"));
  const std::string& algorithm = invocation.positional().front();
  const BlockKind* kind = block_kind(algorithm);
  if (invocation.has("from")) return init_from_verb(invocation, algorithm, kind);
  if (kind) return init_blocks_verb(invocation, *kind);
  InitDraftOptions options = draft_options(invocation);
  app::settle_settings(invocation);
  publish(
      invocation, [&] { return init_draft(options); }, [&] { return plan_draft(options); });
  return 0;
}

int init_lora_verb(app::Invocation& invocation) {
  refuse_existing(invocation.get("output"));
  config::Apply apply(invocation.settings(), "1 adapter", "tool");
  InitLoraOptions options{.target = invocation.positional().front(),
                          .out = invocation.get("output"),
                          .seed = static_cast<uint64_t>(apply.whole("lora.seed")),
                          .report = reporter(invocation)};
  options.lora = apply_lora(invocation.settings());
  if (std::optional<Dtype> dtype = dtype_option(invocation)) options.dtype = *dtype;
  app::settle_settings(invocation);
  publish(
      invocation, [&] { return init_lora(options); }, [&] { return plan_lora(options); });
  return 0;
}

int shard_inspect_verb(app::Invocation& invocation) {
  Inspection found = inspect(invocation.positional().front(), invocation.has("digests"));
  print_text(invocation, found.json, found.table);
  return 0;
}

int shard_diff_verb(app::Invocation& invocation) {
  DiffOptions options{
      .a = invocation.positional()[0], .b = invocation.positional()[1], .values = invocation.has("values")};
  if (invocation.has("ulp")) options.most_ulp = whole_option(invocation, "ulp");
  Diff found = diff(options);
  print_text(invocation, found.json, found.table);
  return found.equal ? 0 : 1;
}

int shard_export_verb(app::Invocation& invocation) {
  ExportOptions options{.checkpoint = invocation.positional().front(),
                        .out = invocation.get("output"),
                        .target = invocation.get("target", ""),
                        .to = invocation.get("to"),
                        .dtype = dtype_option(invocation),
                        .report = reporter(invocation)};
  publish(
      invocation, [&] { return export_model(options); }, [&] { return plan_export(options); });
  return 0;
}

int shard_import_verb(app::Invocation& invocation) {
  ImportOptions options{.source = invocation.positional().front(),
                        .out = invocation.get("output"),
                        .target = invocation.get("target", ""),
                        .draft_config = invocation.get("draft-config", ""),
                        .dtype = dtype_option(invocation),
                        .report = reporter(invocation)};
  publish(
      invocation, [&] { return import_model(options); }, [&] { return plan_import(options); });
  return 0;
}

int shard_reshard_verb(app::Invocation& invocation) {
  ReshardOptions options{
      .checkpoint = invocation.positional().front(), .out = invocation.get("output"), .report = reporter(invocation)};
  if (invocation.has("shard-bytes"))
    options.shard_bytes = bytes_from_text(invocation.get("shard-bytes"), "--shard-bytes");
  publish(
      invocation, [&] { return reshard(options); }, [&] { return plan_reshard(options); });
  return 0;
}

int shard_merge_verb(app::Invocation& invocation) {
  MergeOptions options{.adapter = invocation.positional().front(),
                       .out = invocation.get("output"),
                       .target = invocation.get("target", ""),
                       .keep = invocation.has("keep"),
                       .report = reporter(invocation)};
  bool undo = invocation.has("undo");
  SF_CHECK(!undo || (!options.keep && options.target.empty()), Exit::kUsage,
           "--undo needs neither --target nor --keep: all is in the merged checkpoint");
  end_if_asked(invocation);  // from here on a stop waits for the end of a piece of work
  publish(
      invocation, [&] { return undo ? unmerge(options.adapter, options.out, options.report) : merge_adapter(options); },
      [&] { return undo ? plan_unmerge(options.adapter, options.out) : plan_merge(options); });
  return 0;
}

int shard_verify_verb(app::Invocation& invocation) {
  std::string dir = invocation.positional().front();
  std::vector<std::string> problems = verify(dir);
  if (invocation.json_output()) {
    Json list = Json::array();
    for (const std::string& problem : problems) list.push(problem);
    invocation.result(
        Json::object().set("path", dir).set("whole", problems.empty()).set("problems", std::move(list)).dump());
  } else {
    for (size_t i = 0; i < std::min(problems.size(), ckpt::kListed); ++i) invocation.result(problems[i]);
    if (problems.size() > ckpt::kListed)
      invocation.result(fmt::format("and {} more of {} problems", problems.size() - ckpt::kListed, problems.size()));
    if (problems.empty()) invocation.result(dir + ": whole");
  }
  return problems.empty() ? 0 : 1;
}

}  // namespace sf::tool
