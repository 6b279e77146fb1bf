// SPDX-License-Identifier: Apache-2.0
// LoRA against PEFT: its files read as they are, logits, the loss, every gradient, one step and merged weights.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>

#include "arch/decoder.h"
#include "ckpt/adapter.h"
#include "comm/group.h"
#include "model/decoder.h"
#include "model/sft.h"
#include "train_step.h"

namespace sf::golden {
namespace {

constexpr double kLogits = 2e-5;  // as in hf_forward
constexpr double kMerged = 1e-6;  // one product of rank terms in another order

// PEFT saves names without the adapter's own.
std::string live(std::string name) {
  return name.insert(name.rfind(".weight"), ".default");
}

class Checked {
 public:
  explicit Checked(const Case& c)
      : case_(c),
        file_(c.tensors()),
        decoder_(arch::decoder_from_config(c.json.at("config"))),
        adapter_(ckpt::AdapterFiles::open(c.dir / "adapter", arch::describe(decoder_))),
        spec_(arch::describe_training(decoder_, adapter_.adapters())) {}

  Outcome run() {
    for (auto check : {&Checked::files, &Checked::logits, &Checked::step, &Checked::merged})
      if (Outcome outcome = (this->*check)(); outcome.verdict != Outcome::kPassed) return outcome;
    return Outcome::passed();
  }

 private:
  at::Tensor parameter(const std::string& name) const {
    bool base = file_.find("base/" + name) != nullptr;
    return load(file_, base ? "base/" + name : "lora/" + live(name));
  }

  Outcome files() {
    int64_t elements = 0;
    for (const arch::Parameter& p : spec_.parameters) {
      if (!p.trainable) continue;
      elements += numel(p.shape);
      at::Tensor found = at::full(p.shape, 0.0, at::kFloat);
      adapter_.files().read(p.name, 0, found.numel(), Dtype::kF32,
                            {static_cast<std::byte*>(found.mutable_data_ptr()), found.nbytes()});
      if (Outcome o = same("file/" + p.name, found, parameter(p.name), 0); o.verdict != Outcome::kPassed) return o;
    }
    return near("n_trainable", static_cast<double>(elements),
                static_cast<double>(case_.json.at("expected").at("n_trainable").as_int()), 0);
  }

  at::Tensor forward(std::span<const arch::Adapter> adapters) const {
    at::Tensor ids = load(file_, "input_ids");
    model::Tensors boundaries{{"ids", ids}, {"positions", at::arange(ids.size(1), at::kLong).expand(ids.sizes())}};
    for (const model::Segment& segment : model::decoder_segments(decoder_, adapters)) {
      model::Tensors own;
      for (const std::string& name : segment.parameters) own[name] = parameter(name);
      for (auto& [name, tensor] : segment.forward(own, boundaries)) boundaries[name] = tensor;
    }
    return boundaries.at("logits");
  }

  // Rows of real tokens: what a padded query holds is unspecified.
  Outcome rows(const std::string& name, const at::Tensor& found) const {
    if (!file_.find(name)) return Outcome::passed();
    at::Tensor keep = load(file_, "input_ids").ge(0);
    if (file_.find("attention_mask")) keep = load(file_, "attention_mask").ne(0);
    keep = keep.unsqueeze(-1);
    return same(name, found.mul(keep), load(file_, name).mul(keep), kLogits);
  }

  Outcome logits() {
    return first_failure({rows("logits", forward(adapter_.adapters())), rows("logits_base", forward({}))});
  }

  // The token that follows, as our head wants it.
  model::Tensors batch() const {
    at::Tensor ids = load(file_, "input_ids"), labels = load(file_, "labels"), next = at::full_like(labels, -100);
    next.narrow(1, 0, next.size(1) - 1).copy_(labels.narrow(1, 1, labels.size(1) - 1));
    double count = static_cast<double>(next.ge(0).sum().item<int64_t>());
    return {{"ids", ids},
            {"positions", at::arange(ids.size(1), at::kLong).expand(ids.sizes()).contiguous()},
            {"labels", next},
            {"label_weight", at::full({}, 1 / count, at::kFloat)}};
  }

  Outcome step() {
    std::unique_ptr<comm::Group> group = comm::make_single();
    engine::Engine engine(*group, spec_, model::sft_segments(decoder_, adapter_.adapters()), {});
    for (const arch::Parameter& p : spec_.parameters)
      engine.load(p.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
        std::copy_n(parameter(p.name).const_data_ptr<float>() + lo, hi - lo, to.begin());
      });
    double loss = engine.round(batch(), "loss", {"loss"}).at("loss").item<double>();
    Outcome outcome = near("loss", loss, case_.json.at("expected").at("loss").as_double(), 1e-5);
    for (const arch::Parameter& p : spec_.parameters)
      if (p.trainable && outcome.verdict == Outcome::kPassed)
        outcome = same("grad/" + p.name, engine.gathered_gradient(p.name), load(file_, "grad/" + live(p.name)),
                       kGradientBound);
    return outcome.verdict == Outcome::kPassed ? update(engine) : outcome;
  }

  // A first update is about lr * g / (|g| + eps): below 1e-6 the sign of g is not determined within its bound, and such
  // a weight may differ by 2 lr.
  Outcome update(engine::Engine& engine) const {
    const Json& o = case_.json.at("optimizer");
    const Json::Array& betas = o.at("betas").as_array();
    double lr = o.at("lr").as_double();
    engine::AdamW adamw{betas[0].as_double(), betas[1].as_double(), o.at("eps").as_double(),
                        o.at("weight_decay").as_double()};
    engine::StepResult result = engine.step(lr, o.get_double("max_grad_norm", 0), adamw);
    if (const Json* norm = case_.json.at("expected").find("grad_norm_before_clip"))
      if (Outcome n = near("gradient norm", result.grad_norm, norm->as_double(), 1e-5); n.verdict != Outcome::kPassed)
        return n;
    for (const arch::Parameter& p : spec_.parameters) {
      at::Tensor found = engine.gathered(p.name);
      if (!p.trainable) {
        if (Outcome f = same("frozen/" + p.name, found, parameter(p.name), 0); f.verdict != Outcome::kPassed) return f;
        continue;
      }
      at::Tensor wanted = load(file_, "after/" + live(p.name));
      at::Tensor open = load(file_, "grad/" + live(p.name)).abs().lt(1e-6);
      Outcome outcome = first_failure(
          {same("after/" + p.name, found.masked_fill(open, 0), wanted.masked_fill(open, 0), kGradientBound),
           same("after/" + p.name + " (undetermined sign)", found, wanted, 2 * lr)});
      if (outcome.verdict != Outcome::kPassed) return outcome;
    }
    return Outcome::passed();
  }

  Outcome merged() {
    for (const arch::Adapter& adapter : adapter_.adapters()) {
      std::string name = "merged/" + adapter.parameter;
      if (!file_.find(name)) continue;
      at::Tensor found = parameter(adapter.parameter);
      adapter_.add_to(adapter, 0, found.numel(), {found.mutable_data_ptr<float>(), static_cast<size_t>(found.numel())});
      if (Outcome o = same(name, found, load(file_, name), kMerged); o.verdict != Outcome::kPassed) return o;
    }
    return Outcome::passed();
  }

  const Case& case_;
  ckpt::SafetensorsFile file_;
  arch::Decoder decoder_;
  ckpt::AdapterFiles adapter_;
  arch::ModelSpec spec_;
};

Outcome check(const Case& c) {
  return Checked(c).run();
}

const bool registered = add("peft_lora", check) && add("peft_lora_experts", check) && add("peft_lora_hybrid", check);

}  // namespace
}  // namespace sf::golden
