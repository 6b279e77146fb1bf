// SPDX-License-Identifier: Apache-2.0
// Policy losses under every aggregation with their gradients and metrics, KL forms, entropies and log-probabilities of
// logits, the adaptive KL factor. Bounds: 1e-5 relative for losses, 1e-6 absolute for gradients (fp32 in the
// reference). geo_mean and sapo are not built and are left out by name.
#include <cmath>

#include "golden.h"
#include "grpo_tensors.h"
#include "rl/aggregate.h"
#include "rl/kl.h"
#include "rl/policy_loss.h"

namespace sf::golden {
namespace {

class Check {
 public:
  explicit Check(const Case& c) : case_(c), file_(c.tensors()) {
    const Shape shape = file_.view("response_mask").shape;
    for (int64_t s = 0; s < shape.at(0); ++s) rows_.add(shape.at(1));
    width_ = static_cast<double>(shape.at(1));
    mask_ = mask_of(file_, "response_mask");
    log_prob_ = numbers(file_, "log_prob"), old_ = numbers(file_, "old_log_prob");
    advantages_ = numbers(file_, "advantages"), reference_ = numbers(file_, "ref_log_prob");
    weights_ = numbers(file_, "rollout_is_weights");
  }

  Outcome run() {
    size_t seen = 0;
    for (const auto& [name, wanted] : case_.json.at("expected").as_object()) {
      if (name == "other/geo_mean" || name == "other/sapo") continue;
      Outcome one = each(name, wanted);
      if (one.verdict != Outcome::kPassed) return one;
      ++seen;
    }
    if (seen < 65) return Outcome::failed("only " + std::to_string(seen) + " settings were checked");
    return logits();
  }

 private:
  Outcome number(const std::string& what, double found, double wanted) {
    return close(what, std::vector{found}, std::vector{wanted}, 1e-6, 1e-5);
  }

  Outcome each(const std::string& name, const Json& wanted) {
    if (name.starts_with("kl/")) return kl(name, wanted);
    if (name.starts_with("adaptive_kl")) return adaptive(wanted);
    if (name.starts_with("entropy_loss")) return entropy_loss(name, wanted);
    return policy(name, wanted);
  }

  rl::Aggregation mode_of(const std::string& name) {
    const size_t begin = name.find('/') + 1;
    return rl::aggregation_from_name(name.substr(begin, name.find('/', begin) - begin));
  }

  // verl's information about the whole batch, or what it takes from this micro-batch.
  std::vector<double> shares(rl::Aggregation mode, const Json* info) {
    rl::Denominators by = rl::local_denominators(rows_, mask_);
    by.factor = width_;
    double ranks = 1;
    if (info && !info->is_null()) {
      by.tokens = info->get_double("batch_num_tokens", by.tokens);
      by.sequences = info->get_double("global_batch_size", by.sequences);
      by.factor = info->get_double("loss_scale_factor", by.factor);
      ranks = info->get_double("dp_size", 1);
    }
    std::vector<double> result = rl::token_shares(rows_, mask_, mode, by);
    for (double& share : result) share *= ranks;
    return result;
  }

  Outcome policy(const std::string& name, const Json& wanted) {
    const bool other = name.starts_with("other/");
    const rl::PolicyLoss kind = other ? rl::policy_loss_from_name(name.substr(6)) : rl::PolicyLoss::kPpo;
    rl::Aggregation mode = other ? rl::Aggregation::kTokenMean : mode_of(name);
    if (kind == rl::PolicyLoss::kGspo) mode = rl::Aggregation::kSeqMeanTokenMean;
    rl::Clip clip{.high = 0.28};  // where the case names none
    if (const Json* given = wanted.find("clip"))
      clip = {given->at("clip_ratio_low").as_double(), given->at("clip_ratio_high").as_double(),
              given->get_double("clip_ratio_c", 3)};
    const rl::PolicyResult found =
        rl::policy_loss(kind, clip,
                        {rows_, mask_, log_prob_, old_, advantages_, shares(mode, wanted.find("global_batch_info")),
                         name.ends_with("/is") ? rl::Numbers(weights_) : rl::Numbers()});
    if (Outcome o = number(name, found.loss, wanted.at("loss").as_double()); o.verdict != Outcome::kPassed) return o;
    for (const auto& [key, value] : {std::pair("actor/pg_clipfrac", found.clipped),
                                     {"actor/ppo_kl", found.kl},
                                     {"actor/pg_clipfrac_lower", found.clipped_lower}})
      if (const Json* metric = wanted.find(key))
        if (Outcome o = number(name + " " + key, value / found.tokens, metric->as_double());
            o.verdict != Outcome::kPassed)
          return o;
    if (!file_.find("grad/" + name)) return Outcome::passed();
    return close("gradient of " + name, found.gradient, numbers(file_, "grad/" + name), 1e-6, 1e-5);
  }

  Outcome kl(const std::string& name, const Json& wanted) {
    const std::string form = name.substr(3, name.find('/', 3) - 3);
    const rl::Kl kl = rl::kl_from_name(form);
    std::vector<double> values(mask_.size(), 0), gradients(mask_.size(), 0);
    for (size_t t = 0; t < mask_.size(); ++t) {
      const rl::KlToken token = rl::kl_of(kl, log_prob_[t], reference_[t]);
      values[t] = token.value, gradients[t] = token.gradient;
    }
    if (Outcome o = close(name, values, numbers(file_, "kl/" + form + "/value"), 1e-5, 1e-5);
        o.verdict != Outcome::kPassed)
      return o;
    const std::vector<double> share = shares(mode_of(name.substr(3)), nullptr);
    if (Outcome o = number(name, rl::weighted_sum(values, share), wanted.as_double()); o.verdict != Outcome::kPassed)
      return o;
    if (!name.ends_with("/token-mean")) return Outcome::passed();
    for (size_t t = 0; t < mask_.size(); ++t) gradients[t] *= share[t];
    return close("gradient of " + name, gradients, numbers(file_, "kl/" + form + "/grad_token_mean"), 1e-6, 1e-5);
  }

  Outcome adaptive(const Json& wanted) {
    double beta = 0.1;
    for (const Json& row : wanted.as_array()) {
      beta = rl::adapted_beta(beta, row.as_array()[0].as_double(), 0.05, row.as_array()[1].as_double(), 100);
      if (Outcome o = number("adaptive KL", beta, row.as_array()[2].as_double()); o.verdict != Outcome::kPassed)
        return o;
    }
    return Outcome::passed();
  }

  std::vector<double> entropies() {
    const TensorView view = file_.view("logits");
    const auto* z = reinterpret_cast<const float*>(view.data);
    const auto vocab = static_cast<size_t>(view.shape.at(2));
    std::vector<double> result;
    for (size_t t = 0; t < mask_.size(); ++t) result.push_back(rl::entropy({z + t * vocab, vocab}));
    return result;
  }

  Outcome entropy_loss(const std::string& name, const Json& wanted) {
    return number(name, rl::weighted_sum(entropies(), shares(mode_of(name), nullptr)), wanted.as_double());
  }

  Outcome logits() { return close("entropy", entropies(), numbers(file_, "entropy_from_logits"), 1e-5, 1e-5); }

  const Case& case_;
  ckpt::SafetensorsFile file_;
  rl::Ragged rows_;
  double width_ = 0;
  std::vector<uint8_t> mask_;
  std::vector<double> log_prob_, old_, advantages_, reference_, weights_;
};

const bool registered = add("grpo_loss", [](const Case& c) { return Check(c).run(); });

}  // namespace
}  // namespace sf::golden
