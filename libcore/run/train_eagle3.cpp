// SPDX-License-Identifier: Apache-2.0
// sf-train eagle3: what EAGLE3 adds to the training of a draft.
#include <algorithm>

#include "arch/eagle3.h"
#include "config/apply.h"
#include "data/collate.h"
#include "model/eagle3.h"
#include "plan/work.h"
#include "run/entry.h"
#include "run/train_draft.h"
#include "tensor/convert.h"
#include "tool/capture_wish.h"
#include "train/eagle3.h"

namespace sf::run {
namespace {

using config::Apply;

model::Eagle3Options eagle3_options(config::Settings& settings) {
  Apply loss(settings, "every label", "model");
  return {.unroll = static_cast<int>(Apply(settings, "1 segment", "model").whole("training.unroll")),
          .reference_quirks = Apply(settings, "loss and schedule", "train").flag("training.reference_quirks"),
          .lk = {model::lk_type_from_name(loss.word("training.lk_loss_type")), loss.number("training.kl_scale"),
                 loss.number("training.kl_decay")}};
}

class Eagle3 : public DraftAlgorithm {
 public:
  Eagle3(const DraftFiles& draft, config::Settings& settings)
      : target_(draft.target),
        shape_(arch::eagle3_from_config(draft.files.config())),
        options_(eagle3_options(settings)) {
    reference_quirks = options_.reference_quirks;
    ckpt::read_vocab_map(draft.files);  // refuses buffers that disagree
    for (const char* name : {"t2d", "d2t"}) buffers_.push_back({name, HostTensor::copy_of(draft.files.view(name))});
    vocabulary_.t2d = tensor::copy(buffers_[0].tensor.view()).to(at::kBool);
    vocabulary_.d2t = tensor::copy(buffers_[1].tensor.view());
  }

  arch::ModelSpec spec() const override { return arch::describe_training(shape_); }
  std::vector<model::Segment> segments() const override {
    return model::eagle3_segments(shape_, vocabulary_, options_);
  }
  std::unique_ptr<train::Objective> objective() const override {
    return std::make_unique<train::Eagle3Objective>(vocabulary_, options_);
  }
  stream::Contract samples() const override {
    return {.algorithm = "eagle3",
            .layers = tool::eagle3_layers(shape_),
            .vocab = shape_.vocab,
            .hidden = shape_.target_hidden};
  }
  data::Feed::Collate collate(int64_t max_length, Dtype compute) const override {
    data::Eagle3Shape shape{shape_.vocab, shape_.target_hidden, max_length, compute};
    return [shape](std::span<const stream::Sample> samples) { return data::collate_eagle3(samples, shape); };
  }
  std::vector<NamedTensor> buffers() const override { return buffers_; }
  std::vector<std::string> also_frozen() const override {
    return shape_.norm_output ? std::vector<std::string>{} : std::vector<std::string>{"norm.weight"};
  }

  tool::PlanRequest request(config::Settings& settings, const tool::Samples& samples, int world) const override {
    return tool::eagle3_request(settings, shape_, samples, world);
  }
  uint64_t constant_bytes() const override { return vocabulary_.t2d.nbytes() + vocabulary_.d2t.nbytes(); }
  std::function<uint64_t(const model::Tensors&)> work_bytes(const plan::Schedule& plan) const override {
    if (options_.lk.type != model::LkLoss::Type::kNone) return {};  // the shadows know the cross-entropy alone
    return [this, compute = plan.options.compute](const model::Tensors& micro_batch) {
      return plan::eagle3_work(shape_, options_.unroll, compute,
                               model::eagle3_batch(micro_batch, vocabulary_, options_));
    };
  }

  // Elements of the target head's rows that belong to the draft vocabulary, row by row.
  std::optional<engine::Engine::ReadInterval> reader(const std::string& parameter) const override {
    if (parameter != arch::kTargetHead) return std::nullopt;
    std::span<const int64_t> offsets = buffers_[1].tensor.as<int64_t>();
    return [this, offsets, width = shape_.target_hidden](int64_t lo, int64_t hi, std::span<float> to) {
      for (int64_t at = lo; at < hi;) {
        int64_t row = at / width, column = at % width, count = std::min(width - column, hi - at);
        int64_t start = (row + offsets[static_cast<size_t>(row)]) * width + column;
        target_.read("lm_head.weight", start, start + count, Dtype::kF32,
                     std::as_writable_bytes(to.subspan(static_cast<size_t>(at - lo), static_cast<size_t>(count))));
        at += count;
      }
    };
  }

 private:
  const ckpt::Checkpoint& target_;
  arch::Eagle3 shape_;
  model::Eagle3Options options_;
  std::vector<NamedTensor> buffers_;  // t2d, d2t as stored
  model::Eagle3Vocabulary vocabulary_;
};

}  // namespace

const DraftVerb& eagle3_verb() {
  static const DraftVerb verb{"eagle3",
                              {"training.unroll", "training.lk_loss_type", "training.kl_scale", "training.kl_decay"},
                              [](const DraftFiles& draft, config::Settings& settings) {
                                return std::unique_ptr<DraftAlgorithm>(std::make_unique<Eagle3>(draft, settings));
                              }};
  return verb;
}

}  // namespace sf::run

extern "C" int sf_train_eagle3(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_draft(*invocation, sf::run::eagle3_verb()); });
}
