// SPDX-License-Identifier: Apache-2.0
#include "tool/init_blocks.h"

#include <algorithm>

#include "arch/dflash2.h"
#include "arch/domino.h"
#include "arch/drafts.h"
#include "arch/dspark.h"
#include "base/error.h"
#include "ckpt/buffers.h"
#include "ckpt/draft.h"
#include "config/apply.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "tool/draft_files.h"
#include "tool/model_source.h"
#include "tool/new_values.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

struct Prepared {
  ckpt::Checkpoint target;
  text::ChatEncoder encoder;
  arch::Dflash draft;
  Json config;
  arch::ModelSpec spec;
};

Prepared prepare(const InitBlocksOptions& options) {
  SF_CHECK(options.dtype == Dtype::kF32 || options.dtype == Dtype::kBF16, Exit::kUsage,
           "a draft is stored as F32 or BF16, not {}", name_of(options.dtype));
  Prepared p{ckpt::Checkpoint::open(options.target), text::ChatEncoder::open(options.target), {}, {}, {}};
  arch::Decoder decoder = arch::decoder_from_config(p.target.config());
  p.draft = arch::dflash_for_target(decoder, std::max<int64_t>(options.layers, 1));
  p.draft.block = options.block;
  p.draft.mask_token = choose_mask_token(options.mask_token, p.encoder, decoder, options.report);
  p.draft.stored = options.dtype;
  if (!options.capture_layers.empty()) p.draft.capture_layers = options.capture_layers;
  for (int64_t layer : p.draft.capture_layers)
    SF_CHECK(layer >= 1 && layer <= decoder.layers, Exit::kConfig,
             "draft.layers: layer {} is out of range, wanted 1 to the target's {}", layer, decoder.layers);
  for (int64_t i = 0; i + 1 < p.draft.layers; ++i) p.draft.windows[static_cast<size_t>(i)] = options.window;
  p.config = options.config(p.draft);
  p.spec = arch::draft_family(p.config).describe(p.config);
  return p;
}

ckpt::Manifest manifest_of(const InitBlocksOptions& options, const Prepared& p) {
  ckpt::Manifest manifest;
  manifest.kind = "draft";
  manifest.seed = options.seed;
  ckpt::TargetLink link{p.target.identity(), p.encoder.tokenizer_digest(), p.encoder.template_digest(),
                        fs::canonical(options.target).string(),
                        taken_of(p.config, arch::decoder_from_config(p.target.config()))};
  manifest.buffers = ckpt::buffer_records(p.spec);
  manifest.extra.set("algorithm", options.kind);
  ckpt::set_target(manifest, link);
  return manifest;
}

using config::Apply;

// The kind's own fields on top of the blocks.
template <typename Draft>
Draft built_on(const arch::Dflash& blocks, Draft own) {
  static_cast<arch::Dflash&>(own) = blocks;
  return own;
}

DraftConfig dflash(config::Settings&) {
  return arch::dflash_to_config;
}

DraftConfig dflash2(config::Settings& settings) {
  Apply parts(settings, "1 draft", "tool");
  arch::Dflash2 own;
  own.taps = parts.whole("draft.conv_kernel_size");
  own.group = parts.whole("draft.conv_group_size");
  own.rank = parts.whole("draft.selector_rank");
  own.top_k = parts.whole("draft.selector_top_k");
  return [own](const arch::Dflash& blocks) { return arch::dflash2_to_config(built_on(blocks, own)); };
}

DraftConfig dspark(config::Settings& settings) {
  Apply head(settings, "1 draft", "tool");
  arch::Dspark own;
  own.rank = head.whole("draft.markov_rank");
  own.markov = arch::markov_from_name(head.word("draft.markov_head_type"));
  own.confidence = head.flag("draft.confidence_head");
  own.confidence_with_markov = head.flag("draft.confidence_head_with_markov");
  return [own](const arch::Dflash& blocks) { return arch::dspark_to_config(built_on(blocks, own)); };
}

DraftConfig domino(config::Settings& settings) {
  Apply head(settings, "1 draft", "tool");
  arch::Domino own;
  own.projection = head.whole("draft.emb_dim");
  own.state = head.whole("draft.gru_hidden_dim");
  own.prefix = head.whole("draft.pure_draft_prefix_len");
  own.shift_label = head.flag("draft.shift_label");
  return [own](const arch::Dflash& blocks) { return arch::domino_to_config(built_on(blocks, own)); };
}

}  // namespace

std::span<const BlockKind> block_kinds() {
  static const BlockKind kinds[] = {
      {"dflash", {}, dflash},
      {"dflash2",
       {"draft.conv_kernel_size", "draft.conv_group_size", "draft.selector_rank", "draft.selector_top_k"},
       dflash2},
      {"dspark",
       {"draft.markov_rank", "draft.markov_head_type", "draft.confidence_head", "draft.confidence_head_with_markov"},
       dspark},
      {"domino", {"draft.emb_dim", "draft.gru_hidden_dim", "draft.pure_draft_prefix_len", "draft.shift_label"}, domino},
  };
  return kinds;
}

const BlockKind* block_kind(std::string_view name) {
  for (const BlockKind& kind : block_kinds())
    if (kind.name == name) return &kind;
  return nullptr;
}

// eagle_dflash 2.4: a row that no token has cannot be met in a text.
int64_t choose_mask_token(int64_t asked, const text::ChatEncoder& encoder, const arch::Decoder& target,
                          const Reporter& report) {
  int64_t unused = encoder.tokenizer().vocab_size();
  SF_CHECK(asked < target.vocab, Exit::kConfig, "draft.mask_token_id = {} is outside the target's vocabulary of {}",
           asked, target.vocab);
  if (asked >= 0) return asked;
  if (unused < target.vocab) return unused;
  SF_CHECK(!target.eos.empty(), Exit::kConfig,
           "every row of the target's embedding is a token's and it has no end of sequence: give draft.mask_token_id");
  report.say("every row of the target's embedding is a token's; the end of sequence serves as mask");
  return target.eos.front();
}

fs::path init_blocks(const InitBlocksOptions& options) {
  Prepared p = prepare(options);
  std::vector<ckpt::TensorSource> tensors;
  for (const arch::Parameter& parameter : p.spec.parameters) {
    Start start{parameter.name, parameter.init, parameter.shape, options.seed};
    auto write = [=, &p, as = options.dtype](const Sink& sink) { write_start(start, p.target, {}, as, sink); };
    tensors.push_back({parameter.name, options.dtype, parameter.shape, write});
  }
  report_writing(tensors, options.report);
  ckpt::Publisher publisher(options.out);
  return publisher.commit(tensors, p.config, manifest_of(options, p));
}

Json plan_blocks(const InitBlocksOptions& options) {
  Prepared p = prepare(options);
  Json layers = Json::array();
  for (int64_t layer : p.draft.capture_layers) layers.push(layer);
  int64_t count = p.spec.parameter_count();
  Json plan = Json::object();
  plan.set("algorithm", options.kind).set("target", options.target.string()).set("out", options.out.string());
  plan.set("parameters", count).set("vocab", p.draft.vocab).set("hidden_layers", p.draft.layers);
  plan.set("block_size", p.draft.block).set("mask_token_id", p.draft.mask_token).set("capture_layers", layers);
  return plan.set("dtype", name_of(options.dtype)).set("bytes", count * static_cast<int64_t>(size_of(options.dtype)));
}

}  // namespace sf::tool
