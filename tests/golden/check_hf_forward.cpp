// SPDX-License-Identifier: Apache-2.0
// Decoders against Hugging Face: states of every layer, logits, loss and gradients; dense ones for every padding form,
// those with experts for one.
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/where.h>
#include <fmt/core.h>

#include "arch/decoder.h"
#include "golden.h"
#include "model/decoder.h"
#include "tensor/convert.h"

namespace sf::golden {
namespace {

// case.json: "fp32, expect <= 2e-5 abs on hidden/logits, 1e-5 rel on loss"; gradients: the suite's default, 2e-5
// absolute.
constexpr double kStates = 2e-5, kLoss = 1e-5, kGradients = 2e-5;

at::Tensor load(const ckpt::SafetensorsFile& file, std::string_view name) {
  return tensor::copy(file.view(name));
}

// The name of a form's tensor; a case of one form has no prefix.
std::string in(const std::string& form, std::string_view name) {
  return form.empty() ? std::string(name) : fmt::format("{}/{}", form, name);
}

class Checked {
 public:
  Checked(const Case& c)
      : case_(c),
        file_(c.tensors()),
        decoder_(arch::decoder_from_config(c.json.at("config"))),
        segments_(model::decoder_segments(decoder_)) {
    for (const model::Segment& segment : segments_)
      for (const std::string& name : segment.parameters)
        weights_[name] = load(file_, "weights/" + name).set_requires_grad(true);
  }

  Outcome run() {
    size_t stored = 0;
    for (const ckpt::TensorInfo& tensor : file_.tensors()) stored += tensor.name.starts_with("weights/");
    if (stored != weights_.size())
      return Outcome::failed(fmt::format("{} parameters described, {} stored", weights_.size(), stored));
    const Json& all = case_.json.at("expected");
    if (all.contains("loss")) {
      if (Outcome outcome = check("", all); outcome.verdict != Outcome::kPassed) return outcome;
    } else {
      for (const auto& [form, expected] : all.as_object())
        if (Outcome outcome = check(form, expected); outcome.verdict != Outcome::kPassed) return outcome;
    }
    return gradients_ > 0 ? Outcome::passed() : Outcome::failed("no form held gradients");
  }

 private:
  Outcome check(const std::string& form, const Json& expected) {
    model::Tensors boundaries{{"ids", load(file_, in(form, "input_ids"))}};
    at::Tensor mask = load(file_, in(form, "attention_mask"));
    boundaries["attention_mask"] = mask;
    boundaries["positions"] = file_.find(in(form, "position_ids"))
                                  ? load(file_, in(form, "position_ids"))
                                  : at::arange(mask.size(1), at::kLong).expand(mask.sizes());
    for (const model::Segment& segment : segments_) {
      model::Tensors own;
      for (const std::string& name : segment.parameters) own[name] = weights_.at(name);
      for (auto& [name, tensor] : segment.forward(own, boundaries)) boundaries[name] = tensor;
    }
    for (int64_t i = 0; i <= decoder_.layers; ++i) {
      const at::Tensor& found = boundaries.at(i == decoder_.layers ? "final_norm" : fmt::format("hidden.{}", i));
      if (Outcome o = rows(form, fmt::format("hidden_states.{}", i), found, mask); o.verdict != Outcome::kPassed)
        return o;
    }
    if (Outcome o = rows(form, "logits", boundaries.at("logits"), mask); o.verdict != Outcome::kPassed) return o;
    // The reference's loss counts the first token of a left padded row, which a padded query predicts; what that query
    // holds is unspecified here, so padded rows take the logits that the case stores.
    at::Tensor real = mask.ne(0).unsqueeze(-1);
    return loss(form, expected, at::where(real, boundaries.at("logits"), load(file_, in(form, "logits"))));
  }

  // Rows of real tokens only: padded queries are unspecified.
  Outcome rows(const std::string& form, const std::string& name, const at::Tensor& found, const at::Tensor& mask) {
    at::Tensor wanted = load(file_, in(form, name));
    at::Tensor keep = mask.ne(0).reshape({-1}).nonzero().reshape({-1});
    at::Tensor a = found.detach().reshape({-1, found.size(-1)}).index_select(0, keep).contiguous();
    at::Tensor b = wanted.reshape({-1, found.size(-1)}).index_select(0, keep).contiguous();
    return close(in(form, name), a.data_ptr<float>(), b.data_ptr<float>(), static_cast<size_t>(a.numel()), kStates, 0);
  }

  Outcome loss(const std::string& form, const Json& expected, const at::Tensor& logits) {
    at::Tensor labels = load(file_, in(form, "labels"));
    int64_t length = labels.size(1);
    at::Tensor value = at::cross_entropy_loss(logits.narrow(1, 0, length - 1).reshape({-1, logits.size(2)}),
                                              labels.narrow(1, 1, length - 1).reshape({-1}));
    float found = value.item<float>();
    float wanted = static_cast<float>(expected.at("loss").as_double());
    if (Outcome o = close(form + " loss", &found, &wanted, 1, 0, kLoss); o.verdict != Outcome::kPassed) return o;
    return gradients(form, value);
  }

  Outcome gradients(const std::string& form, const at::Tensor& value) {
    if (!file_.find(in(form, "grad/model.norm.weight"))) return Outcome::passed();
    for (auto& [name, weight] : weights_) weight.mutable_grad() = at::Tensor();
    value.backward();
    for (auto& [name, weight] : weights_) {
      at::Tensor wanted = load(file_, in(form, "grad/" + name));
      at::Tensor found = weight.grad().contiguous();
      ++gradients_;
      Outcome o = close(in(form, "grad/" + name), found.data_ptr<float>(), wanted.data_ptr<float>(),
                        static_cast<size_t>(wanted.numel()), kGradients, 0);
      if (o.verdict != Outcome::kPassed) return o;
    }
    return Outcome::passed();
  }

  const Case& case_;
  ckpt::SafetensorsFile file_;
  arch::Decoder decoder_;
  std::vector<model::Segment> segments_;
  model::Tensors weights_;
  size_t gradients_ = 0;
};

Outcome check(const Case& c) {
  return Checked(c).run();
}

const bool registered = add("hf_forward", check) && add("hf_forward_moe", check);

}  // namespace
}  // namespace sf::golden
