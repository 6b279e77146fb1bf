// SPDX-License-Identifier: Apache-2.0
#include "tool/init_lora.h"

#include <charconv>

#include "arch/decoder.h"
#include "base/error.h"
#include "ckpt/draft.h"
#include "config/apply.h"
#include "config/origins.h"
#include "text/chat.h"
#include "tool/model_source.h"
#include "tool/new_values.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

constexpr int kMostOverride = 65536;

struct Prepared {
  ckpt::Checkpoint target;
  arch::Lora lora;
  std::vector<arch::Parameter> parameters;  // A and B of every adapter

  int64_t elements() const {
    int64_t count = 0;
    for (const arch::Parameter& parameter : parameters) count += numel(parameter.shape);
    return count;
  }
};

Prepared prepare(const InitLoraOptions& options) {
  SF_CHECK(options.dtype == Dtype::kF32 || options.dtype == Dtype::kBF16, Exit::kUsage,
           "an adapter is stored as F32 or BF16, not {}", name_of(options.dtype));
  Prepared p{ckpt::Checkpoint::open(options.target), options.lora, {}};
  arch::ModelSpec spec = arch::describe(arch::decoder_from_config(p.target.config()));
  p.parameters = arch::parameters_of(new_adapters(p.lora, spec));
  return p;
}

ckpt::Manifest manifest_of(const InitLoraOptions& options, const Prepared& p) {
  ckpt::Manifest manifest;
  manifest.kind = "adapter";
  manifest.seed = options.seed;
  text::ChatEncoder encoder = text::ChatEncoder::open(options.target);
  ckpt::set_target(manifest, {p.target.identity(),
                              encoder.tokenizer_digest(),
                              encoder.template_digest(),
                              fs::canonical(options.target).string(),
                              {}});
  return manifest;
}

std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    std::string_view name = text.substr(0, text.find(','));
    if (!name.empty()) names.emplace_back(name);
    text.remove_prefix(std::min(text.size(), name.size() + 1));
  }
  return names;
}

template <typename Value>
std::vector<std::pair<std::string, Value>> overrides_from_text(std::string_view text, std::string_view key, Value least,
                                                               std::string_view wanted) {
  std::vector<std::pair<std::string, Value>> overrides;
  for (const std::string& entry : names_in(text)) {
    Value value{};
    const size_t equals = std::min(entry.rfind('='), entry.size());
    const char *begin = entry.data() + std::min(equals + 1, entry.size()), *end = entry.data() + entry.size();
    auto [stop, error] = std::from_chars(begin, end, value);
    bool good = equals > 0 && error == std::errc() && stop == end && value >= least && value <= Value{kMostOverride};
    SF_CHECK(good, Exit::kConfig, "{}: \"{}\" is no NAME=NUMBER with {} to {}", key, entry, wanted, kMostOverride);
    overrides.emplace_back(entry.substr(0, equals), value);
  }
  return overrides;
}

}  // namespace

fs::path init_lora(const InitLoraOptions& options) {
  Prepared p = prepare(options);
  std::vector<ckpt::TensorSource> tensors;
  for (const arch::Parameter& parameter : p.parameters) {
    Start start{parameter.name, parameter.init, parameter.shape, options.seed};
    auto write = [=, &p, &options](const Sink& sink) { write_start(start, p.target, {}, options.dtype, sink); };
    tensors.push_back({parameter.name, options.dtype, parameter.shape, write});
  }
  options.report.say(
      fmt::format("{} adapted parameters, {} elements that train", p.parameters.size() / 2, p.elements()));
  report_writing(tensors, options.report);
  ckpt::Publisher publisher(options.out);
  return publisher.commit(tensors, arch::lora_to_config(p.lora), manifest_of(options, p));
}

Json plan_lora(const InitLoraOptions& options) {
  Prepared p = prepare(options);
  Json plan = Json::object();
  plan.set("target", options.target.string()).set("out", options.out.string());
  plan.set("adapted", static_cast<int64_t>(p.parameters.size() / 2)).set("parameters", p.elements());
  plan.set("rank", p.lora.rank).set("alpha", p.lora.alpha).set("dtype", name_of(options.dtype));
  return plan.set("bytes", p.elements() * static_cast<int64_t>(size_of(options.dtype)));
}

arch::Lora apply_lora(config::Settings& settings) {
  const config::Apply apply(settings, "1 adapter", "tool");
  arch::Lora lora;
  lora.rank = apply.whole("lora.rank");
  lora.alpha = apply.number("lora.alpha");
  lora.rank_stabilised = apply.word("lora.scaling") == "rslora";
  lora.targets = selection_from_text(apply.word("lora.targets"));
  lora.excluded = selection_from_text(apply.word("lora.exclude"));
  lora.parameters = selection_from_text(apply.word("lora.experts")).names;
  lora.ranks = ranks_from_text(apply.word("lora.rank_pattern"));
  lora.alphas = alphas_from_text(apply.word("lora.alpha_pattern"));
  return lora;
}

std::vector<arch::Adapter> new_adapters(arch::Lora& lora, const arch::ModelSpec& spec) {
  if (lora.targets.pattern == arch::kAllLinear) lora.targets = {arch::linear_endings(spec), {}};
  arch::Lora plain = lora;
  plain.ranks.clear(), plain.alphas.clear();
  config::judged("lora.targets, lora.experts", [&] { arch::check_targets(plain, spec); });
  config::judged("lora.rank_pattern, lora.alpha_pattern", [&] { arch::check_targets(lora, spec); });
  return arch::adapters_of(lora, spec);
}

arch::Selection selection_from_text(std::string_view text) {
  if (text == arch::kAllLinear) return {{}, std::string(text)};
  if (text.starts_with("re:")) return {{}, std::string(text.substr(3))};
  return {names_in(text), {}};
}

std::vector<std::pair<std::string, int64_t>> ranks_from_text(std::string_view text) {
  return overrides_from_text<int64_t>(text, "lora.rank_pattern", 1, "a whole number from 1");
}

std::vector<std::pair<std::string, double>> alphas_from_text(std::string_view text) {
  return overrides_from_text<double>(text, "lora.alpha_pattern", 0, "a number from 0");
}

}  // namespace sf::tool
