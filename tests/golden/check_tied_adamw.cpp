// SPDX-License-Identifier: Apache-2.0
// One AdamW step of a tied model, and of the same model with the tie lost: what becomes of embedding and head. Bounds:
// losses 1e-5 relative, gradients 2e-5 absolute (fp32 sums in another order). The first step of AdamW is about
// lr * sign(g), so weights are compared only where the gradient decides: an element of the untied pair that differs by
// more than 2 ulp must be one of the file's, but for those that lie within 2 ulp of that limit in either.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "arch/decoder.h"
#include "comm/group.h"
#include "data/collate.h"
#include "engine/engine.h"
#include "golden.h"
#include "model/sft.h"
#include "train/sft.h"

namespace sf::golden {
namespace {

constexpr double kGradientBound = 2e-5;
constexpr int64_t kUlp = 2;
constexpr const char *kEmbedding = "model.embed_tokens.weight", *kHead = "lm_head.weight";

const float* floats(const TensorView& view) {
  return reinterpret_cast<const float*>(view.data);
}

int64_t ulp(float a, float b) {
  auto ordered = [](float value) {
    int32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits < 0 ? int64_t{INT32_MIN} - bits : int64_t{bits};
  };
  return std::abs(ordered(a) - ordered(b));
}

// All tokens are labels of the token before: mean cross-entropy over rows and positions, as transformers takes it.
std::vector<stream::Sample> samples(const ckpt::SafetensorsFile& file) {
  TensorView ids = file.view("input_ids");
  std::vector<stream::Sample> made;
  for (int64_t b = 0; b < ids.shape[0]; ++b) {
    HostTensor row(Dtype::kI32, {ids.shape[1]}), supervised(Dtype::kU8, {ids.shape[1]});
    for (int64_t i = 0; i < ids.shape[1]; ++i) {
      row.as<int32_t>()[i] = static_cast<int32_t>(reinterpret_cast<const int64_t*>(ids.data)[b * ids.shape[1] + i]);
      supervised.as<uint8_t>()[i] = 1;
    }
    stream::Sample sample{.position = static_cast<uint64_t>(b), .row = static_cast<uint64_t>(b)};
    sample.tensors = {{"input_ids", row}, {"loss_mask", supervised}};
    made.push_back(std::move(sample));
  }
  return made;
}

struct Model {
  ckpt::SafetensorsFile file;
  arch::ModelSpec spec;
  std::unique_ptr<comm::Group> group = comm::make_single();
  std::unique_ptr<engine::Engine> engine;
  double loss = 0;

  Model(const Case& c, bool tied) : file(c.tensors()) {
    Json config = c.json.at("config");
    config.set("tie_word_embeddings", tied);
    config.set("architectures", Json(Json::Array{Json("Qwen2ForCausalLM")}));
    arch::Decoder decoder = arch::decoder_from_config(config);
    spec = arch::describe_training(decoder);
    engine = std::make_unique<engine::Engine>(*group, spec, model::sft_segments(decoder), engine::EngineOptions{});
    for (const arch::Parameter& p : spec.parameters)
      engine->load(p.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
        std::copy_n(floats(file.view("weights/" + (p.name == kHead ? kEmbedding : p.name))) + lo, hi - lo, to.begin());
      });
    model::Tensors batch = data::collate_sft(samples(file), decoder.vocab, 0).tensors;
    train::SftObjective objective;
    std::vector<int64_t> counts = objective.counts(batch);
    objective.weigh(batch, {counts});
    loss = engine->round(batch, "loss", {"loss"}).at("loss").item<double>();
  }

  Outcome gradients(const std::string& kind) const {
    for (const arch::Parameter& p : spec.parameters) {
      at::Tensor found = engine->gathered_gradient(p.name);
      Outcome outcome =
          close(kind + "/grad/" + p.name, found.const_data_ptr<float>(), floats(file.view(kind + "/grad/" + p.name)),
                static_cast<size_t>(found.numel()), kGradientBound, 0);
      if (outcome.verdict != Outcome::kPassed) return outcome;
    }
    return Outcome::passed();
  }

  void step(const Json& o) {
    const Json::Array& betas = o.at("betas").as_array();
    engine::AdamW adamw{.beta1 = betas[0].as_double(),
                        .beta2 = betas[1].as_double(),
                        .eps = o.at("eps").as_double(),
                        .weight_decay = o.at("weight_decay").as_double()};
    engine->step(o.at("lr").as_double(), 0, adamw);
  }
};

Outcome check_loss(const Case& c, const Model& model, const std::string& kind) {
  double wanted = c.json.at("expected").at(kind).at("loss").as_double();
  if (std::abs(model.loss - wanted) <= 1e-5 * wanted) return Outcome::passed();
  return Outcome::failed(kind + ": loss is " + double_text(model.loss) + ", wanted " + double_text(wanted));
}

// Elements of the lost tie that differ here and in the file.
Outcome check_lost_tie(const Case& c, const Model& untied) {
  at::Tensor embedding = untied.engine->gathered(kEmbedding), head = untied.engine->gathered(kHead);
  const float *ours_e = embedding.const_data_ptr<float>(), *ours_h = head.const_data_ptr<float>();
  TensorView file_e = untied.file.view(std::string("untied/after/") + kEmbedding),
             file_h = untied.file.view(std::string("untied/after/") + kHead);
  int64_t differ = 0, in_file = 0, near = 0, other = 0;
  for (int64_t i = 0; i < numel(file_e.shape); ++i) {
    int64_t ours = ulp(ours_e[i], ours_h[i]), theirs = ulp(floats(file_e)[i], floats(file_h)[i]);
    differ += ours > 0;
    in_file += theirs > 0;
    if ((ours > kUlp) == (theirs > kUlp)) continue;
    bool close_to_limit = std::min(std::abs(ours - kUlp), std::abs(theirs - kUlp)) <= kUlp;
    ++(close_to_limit ? near : other);
  }
  std::string counts = std::to_string(differ) + " elements differ once the tie is lost, " + std::to_string(in_file) +
                       " in the file; " + std::to_string(near) + " near the limit, " + std::to_string(other) +
                       " beyond";
  int64_t said = c.json.at("expected").at("untied").at("embed_vs_head_differing_elements_after_step").as_int();
  bool fine = other == 0 && differ > 0 && in_file == said && near <= 8;
  return fine ? Outcome::passed() : Outcome::failed(counts);
}

Outcome check(const Case& c) {
  Model tied(c, true), untied(c, false);
  for (const Outcome& outcome : {check_loss(c, tied, "tied"), check_loss(c, untied, "untied"), tied.gradients("tied"),
                                 untied.gradients("untied")})
    if (outcome.verdict != Outcome::kPassed) return outcome;
  if (tied.spec.find(kHead)) return Outcome::failed("the tied head has a storage of its own");
  tied.step(c.json.at("optimizer"));
  untied.step(c.json.at("optimizer"));
  return check_lost_tie(c, untied);
}

const bool registered = add("tied_adamw", check);

}  // namespace
}  // namespace sf::golden
