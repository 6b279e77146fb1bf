// SPDX-License-Identifier: Apache-2.0
// One step of supervised fine-tuning as transformers takes it: the loss and every gradient, through collation,
// objective and engine; on a real model the norm of every gradient and sampled elements. Bounds: losses 1e-5 relative
// (fp32 sums in another order); gradients of the tiny models 2e-5 absolute; of the real one, 30 layers deep, 1e-4 of
// the parameter's largest element, three times the worst of its 272 parameters as measured (3.3e-5, the sums' order;
// the same on one thread and two), and norms 1e-4 relative (tiny models: 1e-5).
#include <ATen/ops/from_blob.h>

#include <cmath>
#include <cstdlib>
#include <optional>

#include "arch/decoder.h"
#include "ckpt/checkpoint.h"
#include "comm/group.h"
#include "data/collate.h"
#include "engine/engine.h"
#include "golden.h"
#include "model/sft.h"
#include "train/sft.h"

namespace sf::golden {
namespace {

constexpr double kGradientBound = 2e-5, kSampleBound = 1e-4;

Outcome near(const std::string& what, double found, double wanted, double relative) {
  if (std::abs(found - wanted) <= relative * std::abs(wanted)) return Outcome::passed();
  return Outcome::failed(what + " is " + double_text(found) + ", wanted " + double_text(wanted));
}

template <typename T>
const T* at(const TensorView& view) {
  return reinterpret_cast<const T*>(view.data);
}

std::vector<stream::Sample> samples(const ckpt::SafetensorsFile& file) {
  TensorView ids = file.view("input_ids"), mask = file.view("loss_mask"), lengths = file.view("lengths");
  std::vector<stream::Sample> made;
  for (int64_t b = 0; b < ids.shape[0]; ++b) {
    const int64_t n = at<int64_t>(lengths)[b], first = b * ids.shape[1];
    HostTensor row(Dtype::kI32, {n}), supervised(Dtype::kU8, {n});
    std::copy_n(at<int32_t>(ids) + first, n, row.as<int32_t>().begin());
    std::copy_n(at<uint8_t>(mask) + first, n, supervised.as<uint8_t>().begin());
    stream::Sample sample{.position = static_cast<uint64_t>(b), .row = static_cast<uint64_t>(b)};
    sample.tensors = {{"input_ids", row}, {"loss_mask", supervised}};
    made.push_back(std::move(sample));
  }
  return made;
}

struct Step {
  const Case& c;
  ckpt::SafetensorsFile file;
  std::optional<ckpt::Checkpoint> real;
  arch::Decoder decoder;
  arch::ModelSpec spec;
  std::unique_ptr<comm::Group> group = comm::make_single();
  engine::Engine engine;
  double loss = 0;

  Step(const Case& given, std::optional<ckpt::Checkpoint> checkpoint)
      : c(given),
        file(given.tensors()),
        real(std::move(checkpoint)),
        decoder(arch::decoder_from_config(real ? real->config() : given.json.at("config"))),
        spec(arch::describe_training(decoder)),
        engine(*group, spec, model::sft_segments(decoder), {}) {
    for (const arch::Parameter& p : spec.parameters) {
      engine.load(p.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
        if (real) return real->read(p.name, lo, hi, Dtype::kF32, std::as_writable_bytes(to));
        std::copy_n(at<float>(file.view("weights/" + p.name)) + lo, hi - lo, to.begin());
      });
    }
    model::Tensors batch = data::collate_sft(samples(file), decoder.vocab, 0).tensors;
    train::SftObjective objective;
    const std::vector<int64_t> counts = objective.counts(batch);
    objective.weigh(batch, {counts});
    loss = engine.round(batch, "loss", {"loss"}).at("loss").item<double>();
    labels = counts[0];
  }
  int64_t labels = 0;
  double norm_bound() const { return real ? 1e-4 : 1e-5; }
};

Outcome gradient(Step& step, const std::string& name) {
  const at::Tensor found = step.engine.gathered_gradient(name);
  const double norm = step.c.json.at("expected").at("grad_norms").at(name).as_double();
  Outcome outcome = near("norm of grad/" + name, found.to(at::kDouble).norm().item<double>(), norm, step.norm_bound());
  if (outcome.verdict != Outcome::kPassed) return outcome;
  if (!step.real)
    return close("grad/" + name, found.const_data_ptr<float>(), at<float>(step.file.view("grad/" + name)),
                 static_cast<size_t>(found.numel()), kGradientBound, 0);
  TensorView places = step.file.view("at/" + name);
  const float* wanted = at<float>(step.file.view("grad_at/" + name));
  std::vector<float> sampled;
  for (int64_t i = 0; i < places.shape[0]; ++i)
    sampled.push_back(found.const_data_ptr<float>()[at<int64_t>(places)[i]]);
  return close("grad/" + name, sampled.data(), wanted, sampled.size(), kSampleBound * std::abs(wanted[0]), 0);
}

Outcome check(const Case& c) {
  std::optional<ckpt::Checkpoint> real;
  if (c.json.contains("model")) {
    const char* dir = std::getenv("SF_SMOLLM2");
    if (!dir || !std::filesystem::exists(dir)) return Outcome::not_run("SF_SMOLLM2 names no checkpoint");
    real = ckpt::Checkpoint::open(dir);
  }
  Step step(c, std::move(real));
  const Json& expected = c.json.at("expected");
  if (step.labels != expected.at("labels").as_int()) return Outcome::failed("the number of labels differs");
  Outcome outcome = near("loss", step.loss, expected.at("loss").as_double(), 1e-5);
  for (const arch::Parameter& p : step.spec.parameters)
    if (outcome.verdict == Outcome::kPassed) outcome = gradient(step, p.name);
  if (outcome.verdict == Outcome::kPassed)
    outcome = near("gradient norm", step.engine.step(0, 0, {}).grad_norm, expected.at("grad_norm").as_double(),
                   step.norm_bound());
  return outcome;
}

const bool registered = add("sft_step", check);

}  // namespace
}  // namespace sf::golden
