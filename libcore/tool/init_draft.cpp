// SPDX-License-Identifier: Apache-2.0
#include "tool/init_draft.h"

#include <algorithm>
#include <memory>

#include "arch/drafts.h"
#include "arch/eagle3.h"
#include "arch/peagle.h"
#include "arch/vocab_map.h"
#include "base/error.h"
#include "ckpt/buffers.h"
#include "ckpt/draft.h"
#include "text/chat.h"
#include "tool/draft_files.h"
#include "tool/init_blocks.h"
#include "tool/model_source.h"
#include "tool/new_values.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kPeagleLayers = 4;  // as the reference
constexpr std::string_view kLayered = "peagle";

struct Prepared {
  ckpt::Checkpoint target;
  arch::Decoder decoder;
  arch::Eagle3 draft;  // what P-EAGLE's has of it too
  Json config;
  arch::ModelSpec spec;
};

std::array<int64_t, 3> checked_layers(const std::array<int64_t, 3>& layers, int64_t count) {
  for (int64_t layer : layers)
    SF_CHECK(layer >= 1 && layer <= count, Exit::kConfig,
             "draft.layers: layer {} is out of range, wanted 1 to the target's {}", layer, count);
  return layers;
}

Json peagle_config(const InitDraftOptions& options, const Prepared& p) {
  SF_CHECK(!options.from_target && !options.fc_norm, Exit::kConfig,
           "draft.init = \"target\" and draft.fc_norm are of EAGLE3 drafts; leave them out");
  int64_t layers = options.layers > 0 ? options.layers : kPeagleLayers;
  arch::Peagle draft = arch::peagle_for_target(p.decoder, p.draft.draft_vocab, layers);
  draft.capture_layers = p.draft.capture_layers;
  draft.stored = options.dtype;
  draft.norm_before_residual = options.norm_before_residual;
  text::ChatEncoder encoder = text::ChatEncoder::open(options.target);
  draft.mask_token = choose_mask_token(options.mask_token, encoder, p.decoder, options.report);
  return arch::peagle_to_config(draft);
}

Prepared prepare(const InitDraftOptions& options) {
  SF_ASSERT(!arch::draft_family_named(options.algorithm).blocks);
  SF_CHECK(options.dtype == Dtype::kF32 || options.dtype == Dtype::kBF16, Exit::kUsage,
           "a draft is stored as F32 or BF16, not {}", name_of(options.dtype));
  Prepared p{ckpt::Checkpoint::open(options.target), {}, {}, {}, {}};
  try {
    p.decoder = arch::decoder_from_config(p.target.config());
  } catch (Error& error) {
    error.add_context(options.target.string());
    throw;
  }
  p.draft = arch::eagle3_for_target(p.decoder, options.draft_vocab == 0 ? p.decoder.vocab : options.draft_vocab);
  if (options.capture_layers) p.draft.capture_layers = checked_layers(*options.capture_layers, p.decoder.layers);
  p.draft.fc_norm = options.fc_norm;
  p.draft.norm_output = options.norm_output;
  p.draft.stored = options.dtype;
  p.config = has_layers(options.algorithm) ? peagle_config(options, p) : arch::eagle3_to_config(p.draft);
  p.spec = arch::draft_family(p.config).describe(p.config);
  SF_CHECK(p.draft.draft_vocab == p.draft.vocab || !options.data.empty(), Exit::kUsage,
           "a draft vocabulary of {} out of {} tokens is counted over the training chats: give them with --data",
           p.draft.draft_vocab, p.draft.vocab);
  return p;
}

struct Counted {
  arch::TokenCounts counts;
  uint64_t rows = 0, rejected = 0, empty = 0;
  std::string first_reason;
};

Counted count_tokens(const InitDraftOptions& options, const text::ChatEncoder& encoder, int64_t vocab) {
  Counted result{arch::TokenCounts(vocab), 0, 0, 0, {}};
  if (options.data.empty()) return result;
  text::MaskRule rule = options.reference_quirks ? text::MaskRule::kReference : text::MaskRule::kTurn;
  std::vector<text::ChatRow> rows = text::read_chats(options.data, encoder, rule, options.max_length);
  for (const text::ChatRow& row : rows) {
    options.report.at("count", ++result.rows, rows.size());
    if (row.rejected.empty()) {
      result.counts.add_row(row.encoded.ids, row.encoded.loss_mask);
      continue;
    }
    if (row.rejected == text::kNoSupervisedToken) {
      ++result.empty;
      continue;
    }
    if (result.rejected++ == 0) result.first_reason = fmt::format("{}: {}", row.id, row.rejected);
  }
  SF_CHECK(result.counts.total() > 0, Exit::kData, "{}: none of the {} rows holds a supervised token{}",
           options.data.string(), result.rows,
           result.first_reason.empty() ? "" : "; first rejection: " + result.first_reason);
  return result;
}

// The new value of one parameter. `p.target` and `map` outlive the source.
ckpt::TensorSource new_parameter(const arch::Parameter& parameter, const InitDraftOptions& options, const Prepared& p,
                                 const arch::VocabMap& map) {
  Start start{parameter.name, parameter.init, parameter.shape, options.seed};
  std::string warm = options.from_target ? arch::warm_start(p.draft, p.decoder, parameter.name) : "";
  if (!warm.empty()) start.init = warm;
  auto write = [=, &p, &map](const Sink& sink) { write_start(start, p.target, map.used, options.dtype, sink); };
  return {parameter.name, options.dtype, parameter.shape, write};
}

template <typename T>
ckpt::TensorSource buffer(const std::string& name, Dtype dtype, const std::vector<T>& values) {
  auto write = [&values](const Sink& sink) { sink(std::as_bytes(std::span(values))); };
  return {name, dtype, {static_cast<int64_t>(values.size())}, write};
}

Json counts_json(const InitDraftOptions& options, const Counted& counted, const arch::VocabMap& map) {
  Json out = Json::object();
  out.set("rows", counted.rows).set("rejected", counted.rejected).set("without_supervised_token", counted.empty);
  out.set("supervised_tokens", counted.counts.total()).set("covered", arch::covered(counted.counts, map));
  out.set("distinct", static_cast<int64_t>(counted.counts.seen().size()));
  out.set("mask_rule", options.reference_quirks ? "reference" : "turn");
  return out.set("tie_rule", options.reference_quirks ? "first_seen" : "lowest_id");
}

void report_counts(const InitDraftOptions& options, const Counted& counted, const arch::VocabMap& map) {
  if (options.data.empty()) return;
  int64_t total = counted.counts.total(), kept = arch::covered(counted.counts, map);
  options.report.say(fmt::format(
      "draft vocabulary of {} covers {} of {} supervised tokens ({:.2f} %), {} distinct ids seen", map.used.size(),
      kept, total, 100.0 * static_cast<double>(kept) / static_cast<double>(total), counted.counts.seen().size()));
  if (counted.rejected + counted.empty > 0)
    options.report.say(fmt::format("{} of {} rows rejected, {} without a supervised token{}", counted.rejected,
                                   counted.rows, counted.empty,
                                   counted.rejected ? "; first rejection: " + counted.first_reason : std::string()));
}

ckpt::Manifest manifest_of(const InitDraftOptions& options, const Prepared& p, const text::ChatEncoder& encoder) {
  ckpt::Manifest manifest;
  manifest.kind = "draft";
  manifest.seed = options.seed;
  ckpt::TargetLink link{p.target.identity(), encoder.tokenizer_digest(), encoder.template_digest(),
                        fs::canonical(options.target).string(), taken_of(p.config, p.decoder)};
  manifest.buffers = ckpt::buffer_records(p.spec);
  manifest.extra.set("algorithm", options.algorithm);
  ckpt::set_target(manifest, link);
  return manifest;
}

}  // namespace

bool has_layers(std::string_view algorithm) {
  return algorithm == kLayered;
}

Json vocabulary_shapes(std::string_view algorithm, const arch::Decoder& target, int64_t words, int64_t layers) {
  if (!has_layers(algorithm)) return arch::eagle3_to_config(arch::eagle3_for_target(target, words));
  return arch::peagle_to_config(arch::peagle_for_target(target, words, layers > 0 ? layers : kPeagleLayers));
}

fs::path init_draft(const InitDraftOptions& options) {
  Prepared p = prepare(options);
  text::ChatEncoder encoder = text::ChatEncoder::open(options.target);
  Counted counted = count_tokens(options, encoder, p.draft.vocab);
  arch::VocabMap map =
      arch::make_vocab_map(counted.counts, p.draft.draft_vocab,
                           options.reference_quirks ? arch::TieRule::kFirstSeen : arch::TieRule::kLowestId);
  report_counts(options, counted, map);
  std::vector<ckpt::TensorSource> tensors;
  for (const arch::Parameter& parameter : p.spec.parameters)
    if (parameter.trainable) tensors.push_back(new_parameter(parameter, options, p, map));
  tensors.push_back(buffer("d2t", Dtype::kI64, map.d2t));
  tensors.push_back(buffer("t2d", Dtype::kBool, map.t2d));
  report_writing(tensors, options.report);
  ckpt::Publisher publisher(options.out);
  ckpt::Manifest manifest = manifest_of(options, p, encoder);
  manifest.extra.set("vocabulary", counts_json(options, counted, map));
  return publisher.commit(tensors, p.config, manifest);
}

Json plan_draft(const InitDraftOptions& options) {
  Prepared p = prepare(options);
  int64_t trainable = 0;
  Json layers = Json::array();
  for (const arch::Parameter& parameter : p.spec.parameters)
    if (parameter.trainable) trainable += numel(parameter.shape);
  for (int64_t layer : p.draft.capture_layers) layers.push(layer);
  Json plan = Json::object();
  plan.set("algorithm", options.algorithm).set("target", options.target.string()).set("out", options.out.string());
  plan.set("parameters", trainable).set("vocab", p.draft.vocab).set("draft_vocab", p.draft.draft_vocab);
  plan.set("capture_layers", layers).set("dtype", name_of(options.dtype));
  return plan.set("bytes",
                  trainable * static_cast<int64_t>(size_of(options.dtype)) + p.draft.vocab + 8 * p.draft.draft_vocab);
}

}  // namespace sf::tool
