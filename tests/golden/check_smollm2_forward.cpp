// SPDX-License-Identifier: Apache-2.0
// The converted real model against Hugging Face, through the inference path; and that path against itself: equal bits
// whatever shares a forward. SF_SMOLLM2 names the checkpoint directory that sf-init model made.
#include <ATen/ops/gather.h>
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "ckpt/checkpoint.h"
#include "gen/generate.h"
#include "gen/target.h"
#include "golden.h"
#include "tensor/compare.h"
#include "tensor/convert.h"

namespace sf::golden {
namespace {

// fp32 sums in another order through 30 layers, relative to the largest magnitude of the row compared. The suite's
// default for logits, 1e-5 relative, is met by logits; states grow large in a few channels and are held to the same.
constexpr double kRelative = 1e-5;
constexpr double kMargin = 1e-3;  // case.json: below it another kernel may pick the other token

std::vector<int32_t> ids_of(const at::Tensor& tensor) {
  at::Tensor flat = tensor.reshape({-1}).to(at::kInt);
  return {flat.const_data_ptr<int32_t>(), flat.const_data_ptr<int32_t>() + flat.numel()};
}

Outcome near(const std::string& what, const at::Tensor& found, const at::Tensor& wanted, double relative) {
  at::Tensor a = found.to(at::kFloat).contiguous(), b = wanted.contiguous();
  return close(what, a.const_data_ptr<float>(), b.const_data_ptr<float>(), static_cast<size_t>(b.numel()),
               relative * b.abs().max().item<double>(), 0);
}

class Checked {
 public:
  Checked(const Case& c, const ckpt::Checkpoint& checkpoint)
      : case_(c), file_(c.tensors()), checkpoint_(checkpoint), target_(gen::Target::load(checkpoint, Dtype::kF32)) {}

  Outcome run() {
    const Json::Array& rows = case_.json.at("expected").as_array();
    for (size_t i = 0; i < rows.size(); ++i)
      if (Outcome o = states(i, rows[i]); o.verdict != Outcome::kPassed) return o;
    if (Outcome o = greedy(rows); o.verdict != Outcome::kPassed) return o;
    for (Dtype compute : {Dtype::kF32, Dtype::kBF16})
      if (Outcome o = invariant(compute); o.verdict != Outcome::kPassed) return o;
    return Outcome::passed();
  }

 private:
  at::Tensor stored(size_t row, const std::string& name) const {
    return tensor::copy(file_.view(std::to_string(row) + "/" + name));
  }

  Outcome states(size_t i, const Json& expected) {
    const std::vector<int32_t> ids = ids_of(stored(i, "input_ids"));
    const std::vector<int64_t> layers{0, 1, 14, 29};
    gen::Cache cache = target_.make_cache(64);
    const gen::States found = target_.prefill(cache, ids, layers);
    const int64_t last = static_cast<int64_t>(ids.size()) - 1;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const std::string name = fmt::format("hidden_states.{}.last_position", layers[layer]);
      Outcome o =
          near(fmt::format("{}/{}", i, name), found.captured[layer].select(0, last), stored(i, name), kRelative);
      if (o.verdict != Outcome::kPassed) return o;
    }
    Outcome o = near(fmt::format("{}/final_norm", i), found.final_norm.select(0, last),
                     stored(i, "hidden_states.30.last_position"), kRelative);
    if (o.verdict != Outcome::kPassed) return o;
    const at::Tensor logits = target_.logits(found.final_norm);
    o = near(fmt::format("{}/top20_logits", i), at::gather(logits, 1, stored(i, "top20_ids")),
             stored(i, "top20_logits"), kRelative);
    return o.verdict == Outcome::kPassed ? nll(i, expected, ids, logits) : o;
  }

  Outcome nll(size_t i, const Json& expected, const std::vector<int32_t>& ids, const at::Tensor& logits) {
    const at::Tensor wanted = stored(i, "nll");
    const at::Tensor next = stored(i, "input_ids").reshape({-1, 1}).narrow(0, 1, static_cast<int64_t>(ids.size()) - 1);
    const at::Tensor scored = logits.narrow(0, 0, next.size(0));
    const at::Tensor found = scored.logsumexp(at::IntArrayRef{1}, true).sub(at::gather(scored, 1, next)).reshape({-1});
    // A difference of two numbers of the logits' size: bounded relative to them, not to itself.
    if (Outcome o =
            close(fmt::format("{}/nll", i), found.contiguous().const_data_ptr<float>(), wanted.const_data_ptr<float>(),
                  static_cast<size_t>(wanted.numel()), 2 * kRelative * logits.abs().max().item<double>(), 0);
        o.verdict != Outcome::kPassed)
      return o;
    const float mean = found.mean().item<float>(),
                wanted_mean = static_cast<float>(expected.at("nll_mean").as_double());
    return close(fmt::format("{}/nll_mean", i), &mean, &wanted_mean, 1, 0, kRelative);
  }

  std::vector<gen::Prompt> prompts(size_t count) const {
    std::vector<gen::Prompt> all;
    for (size_t i = 0; i < count; ++i) all.push_back({i, ids_of(stored(i, "input_ids"))});
    return all;
  }

  // Equal to the reference up to the first step where its own margin is below the bound.
  Outcome greedy(const Json::Array& rows) {
    std::map<size_t, gen::Completion> found;
    gen::GenerateOptions options{.max_new_tokens = 32, .stop_ids = {static_cast<int32_t>(target_.decoder().eos.at(0))}};
    gen::generate(target_, prompts(rows.size()), options, [&](const gen::Completion& c) { found[c.prompt] = c; });
    for (size_t i = 0; i < rows.size(); ++i) {
      const Json::Array& ids = rows[i].at("greedy_ids").as_array();
      for (size_t j = 0; j < ids.size(); ++j) {
        if (j < found[i].ids.size() && found[i].ids[j] == ids[j].as_int()) continue;
        const double margin = rows[i].at("top1_minus_top2_logit").as_array().at(j).as_double();
        if (margin < kMargin) break;
        return Outcome::failed(
            fmt::format("{}/greedy_ids: token {} differs, where the margin is {:.4g}", i, j, margin));
      }
    }
    return Outcome::passed();
  }

  // The bits of a sequence: as one prefill, token by token, and in a forward shared with others.
  Outcome invariant(Dtype compute) {
    gen::Target target = gen::Target::load(checkpoint_, compute);
    const std::vector<int32_t> ids = ids_of(stored(0, "input_ids")), other = ids_of(stored(1, "input_ids"));
    gen::Cache whole = target.make_cache(64), single = target.make_cache(64), shared = target.make_cache(64),
               guest = target.make_cache(64);
    const std::vector<int64_t> layers{14};
    const gen::States wanted = target.prefill(whole, ids, layers);
    const gen::Part together[] = {{&guest, other}, {&shared, ids}};
    const at::Tensor beside =
        target.forward(together).final_norm.narrow(0, static_cast<int64_t>(other.size()), wanted.final_norm.size(0));
    if (auto difference = tensor::first_difference(beside, wanted.final_norm))
      return Outcome::failed(fmt::format("{}: a shared forward differs at {}", name_of(compute), *difference));
    for (size_t i = 0; i < ids.size(); ++i) {
      const gen::Part part{&single, std::span(ids).subspan(i, 1)};
      const gen::States one = target.forward(std::span(&part, 1), layers);
      const auto row = static_cast<int64_t>(i);
      auto difference = tensor::first_difference(one.final_norm, wanted.final_norm.narrow(0, row, 1));
      if (!difference) difference = tensor::first_difference(one.captured[0], wanted.captured[0].narrow(0, row, 1));
      if (difference)
        return Outcome::failed(
            fmt::format("{}: decoding row {} differs from prefill at {}", name_of(compute), i, *difference));
    }
    return Outcome::passed();
  }

  const Case& case_;
  ckpt::SafetensorsFile file_;
  const ckpt::Checkpoint& checkpoint_;
  gen::Target target_;
};

Outcome check(const Case& c) {
  const char* dir = std::getenv("SF_SMOLLM2");
  if (!dir || !*dir) return Outcome::not_run("SF_SMOLLM2 does not name the converted model");
  const ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(dir);
  return Checked(c, checkpoint).run();
}

const bool registered = add("smollm2_forward", check);

}  // namespace
}  // namespace sf::golden
