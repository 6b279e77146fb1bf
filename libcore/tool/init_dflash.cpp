// SPDX-License-Identifier: Apache-2.0
#include "tool/init_dflash.h"

#include "arch/dflash.h"
#include "base/error.h"
#include "ckpt/draft.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "tool/new_values.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

struct Prepared {
  ckpt::Checkpoint target;
  text::ChatEncoder encoder;
  bool tied = false;
  arch::Dflash draft;
  arch::ModelSpec spec;
};

// eagle_dflash 2.4: a row that no token has cannot be met in a text.
int64_t mask_token(const InitDflashOptions& options, const text::ChatEncoder& encoder, const arch::Decoder& target) {
  int64_t asked = options.mask_token, unused = encoder.tokenizer().vocab_size();
  SF_CHECK(asked < target.vocab, Exit::kConfig, "draft.mask_token_id = {} is outside the target's vocabulary of {}",
           asked, target.vocab);
  if (asked >= 0) return asked;
  if (unused < target.vocab) return unused;
  SF_CHECK(!target.eos.empty(), Exit::kConfig,
           "every row of the target's embedding is a token's and it has no end of sequence: give draft.mask_token_id");
  options.report.say("every row of the target's embedding is a token's; the end of sequence serves as mask");
  return target.eos.front();
}

Prepared prepare(const InitDflashOptions& options) {
  SF_CHECK(options.dtype == Dtype::kF32 || options.dtype == Dtype::kBF16, Exit::kUsage,
           "a draft is stored as F32 or BF16, not {}", name_of(options.dtype));
  Prepared p{ckpt::Checkpoint::open(options.target), text::ChatEncoder::open(options.target), false, {}, {}};
  arch::Decoder decoder = arch::decoder_from_config(p.target.config());
  p.tied = decoder.tied;
  p.draft = arch::dflash_for_target(decoder, options.layers);
  p.draft.block = options.block;
  p.draft.mask_token = mask_token(options, p.encoder, decoder);
  p.draft.stored = options.dtype;
  if (!options.capture_layers.empty()) p.draft.capture_layers = options.capture_layers;
  for (int64_t layer : p.draft.capture_layers)
    SF_CHECK(layer >= 1 && layer <= decoder.layers, Exit::kConfig,
             "capture layer {} is out of range, wanted 1 to the target's {}", layer, decoder.layers);
  p.spec = arch::describe(p.draft);
  return p;
}

ckpt::Manifest manifest_of(const InitDflashOptions& options, const Prepared& p) {
  ckpt::Manifest manifest;
  manifest.kind = "draft";
  manifest.seed = options.seed;
  std::string embedding = "model.embed_tokens.weight";
  ckpt::TargetLink link{
      p.target.identity(),
      p.encoder.tokenizer_digest(),
      p.encoder.template_digest(),
      fs::canonical(options.target).string(),
      {{arch::kTargetEmbedding, embedding}, {arch::kTargetHead, p.tied ? embedding : "lm_head.weight"}}};
  for (const arch::Buffer& buffer : p.spec.buffers)
    if (!buffer.stored) manifest.recompute.push_back(buffer.name);
  manifest.extra.set("algorithm", "dflash");
  ckpt::set_target(manifest, link);
  return manifest;
}

}  // namespace

fs::path init_dflash(const InitDflashOptions& options) {
  Prepared p = prepare(options);
  ckpt::Publisher publisher(options.out);
  std::vector<ckpt::TensorSource> tensors;
  for (const arch::Parameter& parameter : p.spec.parameters) {
    Start start{parameter.name, parameter.init, parameter.shape, options.seed};
    auto write = [=, &p, as = options.dtype](const Sink& sink) { write_start(start, p.target, {}, as, sink); };
    tensors.push_back({parameter.name, options.dtype, parameter.shape, write});
  }
  return publisher.commit(tensors, arch::dflash_to_config(p.draft), manifest_of(options, p));
}

Json plan_dflash(const InitDflashOptions& options) {
  Prepared p = prepare(options);
  Json layers = Json::array();
  for (int64_t layer : p.draft.capture_layers) layers.push(layer);
  int64_t count = p.spec.parameter_count();
  Json plan = Json::object();
  plan.set("algorithm", "dflash").set("target", options.target.string()).set("out", options.out.string());
  plan.set("parameters", count).set("vocab", p.draft.vocab).set("hidden_layers", p.draft.layers);
  plan.set("block_size", p.draft.block).set("mask_token_id", p.draft.mask_token).set("capture_layers", layers);
  return plan.set("dtype", name_of(options.dtype)).set("bytes", count * static_cast<int64_t>(size_of(options.dtype)));
}

}  // namespace sf::tool
