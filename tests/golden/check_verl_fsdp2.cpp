// SPDX-License-Identifier: Apache-2.0
// One AdamW step of the reference's FSDP2 initialisation on two ranks: losses, gradients, norm, which modules are
// wrapped, and each rank's own shard of every parameter afterwards. Bounds: losses and norm 1e-5 relative, gradients
// 2e-5 absolute. The first step is about lr * sign(g): where the stored gradient is below 1e-6 its sign is not
// determined, and a weight may differ by 2 lr; all others by the gradient's bound.
#include <ATen/ops/from_blob.h>

#include <set>

#include "arch/decoder.h"
#include "data/collate.h"
#include "model/sft.h"
#include "plan/wrap.h"
#include "train/sft.h"
#include "train_step.h"

namespace sf::golden {
namespace {

// Every token is the label of the one before.
stream::Sample sample_of(const ckpt::SafetensorsFile& file, int rank) {
  TensorView ids = file.view("rank" + std::to_string(rank) + "/input_ids");
  HostTensor row(Dtype::kI32, {ids.shape[1]}), supervised(Dtype::kU8, {ids.shape[1]});
  for (int64_t i = 0; i < ids.shape[1]; ++i) {
    row.as<int32_t>()[i] = static_cast<int32_t>(reinterpret_cast<const int64_t*>(ids.data)[i]);
    supervised.as<uint8_t>()[i] = 1;
  }
  stream::Sample sample;
  sample.tensors = {{"input_ids", row}, {"loss_mask", supervised}};
  return sample;
}

class Run {
 public:
  explicit Run(const Case& c) : case_(c), file_(c.tensors()) {
    Json config = c.json.at("config");
    config.set("architectures", Json(Json::Array{Json("Qwen2ForCausalLM")}));
    decoder_ = arch::decoder_from_config(config);
    spec_ = arch::describe_training(decoder_);
  }

  Outcome on(comm::Group& group) const {
    engine::Engine engine(group, spec_, model::sft_segments(decoder_), engine::EngineOptions{});
    for (const arch::Parameter& p : spec_.parameters)
      engine.load(p.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
        const auto* from = reinterpret_cast<const float*>(file_.view("weights/" + p.name).data);
        std::copy(from + lo, from + hi, to.begin());
      });
    stream::Sample sample = sample_of(file_, group.rank());
    model::Tensors batch = data::collate_sft(std::span(&sample, 1), decoder_.vocab, 0).tensors;
    train::SftObjective objective;
    std::vector<int64_t> counts = objective.counts(batch);
    group.all_reduce_sum(counts, {"labels of all ranks", Deadline::after(Seconds(60))});
    objective.weigh(batch, {counts});
    double loss = engine.round(batch, "loss", {"loss"}).at("loss").item<double>();
    const Json& expected = case_.json.at("expected");
    double wanted = expected.at("loss_per_rank").as_array()[static_cast<size_t>(group.rank())].as_double();
    return first_failure({near("loss", 2 * loss, wanted, 1e-5), check_gradients(engine, spec_, file_),
                          check_step(engine, group.rank())});
  }

  Outcome check_units() const {
    std::vector<std::string> found =
        plan::wrap_targets(plan::modules_of(spec_), {{"Qwen2DecoderLayer"}, !spec_.aliases.empty(), {}});
    std::set<std::string> units(found.begin(), found.end()), wanted;
    units.insert("");
    for (const Json& unit : case_.json.at("expected").at("sharded_units").as_array()) wanted.insert(unit.as_string());
    return units == wanted ? Outcome::passed() : Outcome::failed("other modules are wrapped than in the file");
  }

 private:
  Outcome check_step(engine::Engine& engine, int rank) const {
    const Json& o = case_.json.at("optimizer");
    double lr = o.at("lr").as_double();
    engine::AdamW adamw{.beta1 = o.at("betas").as_array()[0].as_double(),
                        .beta2 = o.at("betas").as_array()[1].as_double(),
                        .eps = o.at("eps").as_double(),
                        .weight_decay = o.at("weight_decay").as_double()};
    engine::StepResult step = engine.step(lr, o.at("max_grad_norm").as_double(), adamw);
    double norm = case_.json.at("expected").at("grad_norm_before_clip").as_double();
    Outcome outcome = near("gradient norm", step.grad_norm, norm, 1e-5);
    for (const engine::Engine::Piece& piece : engine.state()) {
      if (piece.name.ends_with(".exp_avg") || piece.name.ends_with(".exp_avg_sq")) continue;
      if (outcome.verdict == Outcome::kPassed) outcome = check_shard(piece, rank, lr);
    }
    return outcome;
  }

  Outcome check_shard(const engine::Engine::Piece& piece, int rank, double lr) const {
    std::string name = "rank" + std::to_string(rank) + "/local_after/" + piece.name;
    at::Tensor wanted = load(file_, name).flatten();
    if (wanted.numel() != piece.interval.size()) return Outcome::failed(name + " is another shard");
    at::Tensor found = at::from_blob(piece.values.data(), {piece.interval.size()}, at::kFloat);
    at::Tensor gradient = load(file_, "grad/" + piece.name).flatten();
    at::Tensor undetermined = gradient.narrow(0, piece.interval.lo, piece.interval.size()).abs().lt(1e-6);
    return first_failure(
        {same(name, found.masked_fill(undetermined, 0), wanted.masked_fill(undetermined, 0), kGradientBound),
         same(name + " (undetermined sign)", found, wanted, 2 * lr)});
  }

  const Case& case_;
  ckpt::SafetensorsFile file_;
  arch::Decoder decoder_;
  arch::ModelSpec spec_;
};

Outcome check(const Case& c) {
  Run run(c);
  std::vector<Outcome> outcomes(static_cast<size_t>(c.json.at("world_size").as_int()));
  comm::run_threads(static_cast<int>(outcomes.size()),
                    [&](comm::Group& group) { outcomes[static_cast<size_t>(group.rank())] = run.on(group); });
  outcomes.push_back(run.check_units());
  for (const Outcome& outcome : outcomes)
    if (outcome.verdict != Outcome::kPassed) return outcome;
  return Outcome::passed();
}

const bool registered = add("verl_fsdp2_step", check);

}  // namespace
}  // namespace sf::golden
