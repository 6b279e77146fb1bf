// SPDX-License-Identifier: Apache-2.0
#include "tool/synthetic.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>

#include "arch/decoder.h"
#include "arch/drafts.h"
#include "base/error.h"
#include "base/rng.h"
#include "ckpt/draft.h"
#include "config/apply.h"
#include "stream/feature_dir.h"
#include "stream/features.h"
#include "tool/capture_wish.h"
#include "tool/outputs.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;
using config::Apply;

constexpr int64_t kMostRows = 1 << 24;

struct KnownShape {
  std::string_view name;
  int64_t vocab, hidden, layers;
};
constexpr KnownShape kKnown[] = {{"qwen3-8b", 151936, 4096, 36},
                                 {"qwen3-4b", 151936, 2560, 36},
                                 {"llama-3.1-8b", 128256, 4096, 32},
                                 {"smollm2-135m", 49152, 576, 30}};

int64_t whole_number(std::string_view what, const std::string& text, int64_t most) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && value >= 1 && value <= most, Exit::kUsage,
           "{}: wanted a whole number from 1 to {}, found '{}'", what, most, text);
  return value;
}

stream::Contract eagle3_shape(int64_t vocab, int64_t hidden, const std::vector<std::string>& layers) {
  stream::Contract contract;
  contract.algorithm = "eagle3";
  contract.vocab = vocab;
  contract.hidden = hidden;
  contract.layers = layers;
  return contract;
}

// The last of these contracts' layers is the last normed state.
bool has_final_norm(const stream::Contract& contract) {
  return contract.layers.back() == "final_norm";
}
bool has_teacher(const stream::Contract& contract) {
  return contract.algorithm == "eagle3";
}

std::vector<std::string> default_layers(int64_t count) {
  return {"2", std::to_string(count / 2), std::to_string(count - 3), "final_norm"};
}

stream::Contract of_directory(const std::string& dir) {
  ckpt::Checkpoint files = ckpt::Checkpoint::open(dir);
  if (!arch::find_draft_family(files.config())) {
    arch::Decoder target = arch::decoder_from_config(files.config());
    SF_CHECK(target.layers >= 4, Exit::kConfig, "{} has {} layers; a draft captures three of at least 4", dir,
             target.layers);
    stream::Contract contract = eagle3_shape(target.vocab, target.hidden, default_layers(target.layers));
    contract.target = files.identity();
    return contract;
  }
  CaptureWish wish = capture_wish(files.config());
  const Json* wide = files.config().find("target_hidden_size");
  stream::Contract contract = eagle3_shape(files.config().at("vocab_size").as_int(),
                                           (wide ? *wide : files.config().at("hidden_size")).as_int(), wish.names);
  contract.algorithm = wish.algorithm;
  ckpt::TargetLink link = ckpt::target_of(files);
  contract.target = link.identity;
  contract.tokenizer = link.tokenizer;
  contract.chat_template = link.chat_template;
  return contract;
}

HostTensor random_states(const Rng& rng, uint64_t row, Shape shape, Dtype type) {
  HostTensor wide(Dtype::kF32, shape), states(type, std::move(shape));
  std::span<float> values = wide.as<float>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = rng.normal(row, i);
  convert(wide.view().span(), Dtype::kF32, {states.data(), states.bytes()}, type);
  return states;
}

uint64_t row_bytes(const stream::Contract& contract) {
  uint64_t states = contract.layers.size() * static_cast<uint64_t>(contract.hidden);
  uint64_t ids_mask = 4 + 1, best_lse = has_teacher(contract) ? 4 + 4 : 0;
  return static_cast<uint64_t>(contract.max_length) *
         (ids_mask + best_lse + states * size_of(*dtype_from_name(contract.feature_dtype)));
}

stream::Contract complete(app::Invocation& invocation, stream::Contract contract) {
  config::Settings& settings = invocation.settings();
  std::string rows = fmt::format("{} rows", contract.rows);
  contract.max_length = Apply(settings, rows, "run").whole("capture.max_length");
  contract.order_seed = static_cast<uint64_t>(Apply(settings, rows, "stream").whole("data.order_seed"));
  contract.feature_dtype = stream::feature_type(
      Apply(settings, fmt::format("{} layers", contract.layers.size()), "run").word("capture.feature_dtype"));
  SF_CHECK(contract.feature_dtype != stream::kFloat8, Exit::kConfig,
           "capture.feature_dtype = \"fp8\" with --synthetic: random states are carried in bf16 or fp32 only");
  contract.compute_dtype = contract.feature_dtype;
  contract.mask_rule = "turn";
  contract.data = "synthetic";
  Apply without(settings, "0 targets (the features are random numbers)", "run");
  for (const std::string& key : settings.given_keys())
    if (key != "capture.max_length" && key != "data.order_seed" && key != "capture.feature_dtype") without.nothing(key);
  return contract;
}

}  // namespace

stream::Contract synthetic_contract(const std::string& shape) {
  std::error_code ignored;
  if (fs::is_directory(shape, ignored)) return of_directory(shape);
  size_t slash = shape.find('/');
  std::string name = shape.substr(0, slash);
  int64_t scale = slash == std::string::npos ? 1 : whole_number("--synthetic " + shape, shape.substr(slash + 1), 4096);
  std::vector<std::string> names;
  for (const KnownShape& known : kKnown) {
    names.emplace_back(known.name);
    if (known.name != name) continue;
    SF_CHECK(known.hidden % scale == 0, Exit::kUsage, "--synthetic {}: the hidden size {} is no multiple of {}", shape,
             known.hidden, scale);
    return eagle3_shape(known.vocab / scale, known.hidden / scale, default_layers(known.layers));
  }
  std::string near = config::nearest(name, names);
  fail(Exit::kUsage, "--synthetic {}: no such directory of a draft or target, and no shape that is known: {}{}", shape,
       fmt::join(names, ", "), near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

std::vector<int64_t> proposed_ids(const std::string& shape) {
  std::error_code ignored;
  if (!fs::is_directory(shape, ignored)) return {};
  ckpt::Checkpoint files = ckpt::Checkpoint::open(shape);
  return files.contains("d2t") ? ckpt::read_vocab_map(files).used : std::vector<int64_t>{};
}

stream::Sample synthetic_sample(const stream::Contract& contract, std::span<const int64_t> proposed, uint64_t row) {
  Rng rng(contract.order_seed, "synthetic features");
  int64_t length = contract.max_length;
  auto vocab = static_cast<uint64_t>(contract.vocab), choices = proposed.empty() ? vocab : proposed.size();
  Dtype type = *dtype_from_name(contract.feature_dtype);
  HostTensor ids(Dtype::kI32, {length}), mask(Dtype::kU8, {length}), best(Dtype::kI32, {length}),
      lse(Dtype::kF32, {length});
  // Logits of a random head are about normal: their log-sum-exp is the vocabulary's logarithm and half a variance.
  auto usual = static_cast<float>(std::log(static_cast<double>(vocab)) + 0.5);
  for (int64_t i = 0; i < length; ++i) {
    auto at = static_cast<size_t>(i);
    ids.as<int32_t>()[at] = static_cast<int32_t>(rng.below(vocab, ~row, 2 * at));
    uint64_t choice = rng.below(choices, ~row, 2 * at + 1);
    best.as<int32_t>()[at] = static_cast<int32_t>(proposed.empty() ? choice : proposed[choice]);
    mask.as<uint8_t>()[at] = i >= length / 4;
    lse.as<float>()[at] = usual;
  }
  bool teacher = has_teacher(contract);
  auto captured = static_cast<int64_t>(contract.layers.size()) - (has_final_norm(contract) ? 1 : 0);
  stream::Sample sample{.row = row};
  sample.tensors.push_back({"input_ids", std::move(ids)});
  sample.tensors.push_back({"loss_mask", std::move(mask)});
  sample.tensors.push_back({teacher ? "hidden_state" : "hidden_states",
                            random_states(rng, 2 * row, {length, captured * contract.hidden}, type)});
  if (has_final_norm(contract))
    sample.tensors.push_back({"final_norm", random_states(rng, 2 * row + 1, {length, contract.hidden}, type)});
  if (!teacher) return sample;
  sample.tensors.push_back({"target_top1", std::move(best)});
  sample.tensors.push_back({"target_lse", std::move(lse)});
  return sample;
}

int synthetic_features(app::Invocation& invocation) {
  for (const char* option : {"target", "draft", "data", "import", "rejected", "handle-file"})
    SF_CHECK(!invocation.has(option), Exit::kUsage, "--{} has no part in --synthetic, which computes nothing", option);
  SF_CHECK(invocation.ranks().world == 1, Exit::kUsage, "--synthetic computes nothing: one process writes it");
  const std::string out = invocation.get("output");
  refuse_existing(out);
  stream::Contract contract = synthetic_contract(invocation.get("synthetic"));
  std::vector<int64_t> proposed = proposed_ids(invocation.get("synthetic"));
  contract.rows = static_cast<uint64_t>(whole_number("--n", invocation.get("n", "256"), kMostRows));
  contract = complete(invocation, std::move(contract));
  app::settle_settings(invocation);
  uint64_t bytes = contract.rows * row_bytes(contract);
  if (invocation.plan_only()) {
    invocation.result(contract.to_json().set("bytes", bytes).dump(2));
    return 0;
  }
  stream::FeatureWriter writer(out, contract, 0, invocation.command_line(), stream::Others::kDone);
  const std::vector<uint64_t> positions = stream::first_positions(contract.rows, contract.order_seed);
  for (uint64_t row = 0; row < contract.rows; ++row) {
    if (writer.has(row)) continue;
    if (invocation.stop() != app::Stop::kNone) {
      writer.close();
      invocation.log(fmt::format("stopped; {} of {} rows are kept", writer.rows(), contract.rows));
      return static_cast<int>(Exit::kAgain);
    }
    stream::Sample sample = synthetic_sample(contract, proposed, row);
    sample.position = positions[row];
    writer.add(sample);
    invocation.progress("features", static_cast<int64_t>(row) + 1, static_cast<int64_t>(contract.rows), "");
  }
  writer.close();
  std::string path = writer.publish().string();
  Json json = Json::object().set("path", path).set("rows", contract.rows).set("bytes", bytes);
  invocation.result(invocation.json_output() ? json.dump() : path);
  return 0;
}

}  // namespace sf::tool
