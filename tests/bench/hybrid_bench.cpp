// SPDX-License-Identifier: Apache-2.0
// usage: hybrid_bench layer delta|experts FOLDER fp32|bf16 THREADS STEPS OUT   forward and backward of one layer
//        hybrid_bench rows FILE BASE WIDTH TOKENS REPEAT                       rows of n-grams from a mapped table, a
//        core
// FOLDER: config.json and the layer's parameters, x and the result's gradient, "g". OUT: y and all gradients, fp32.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <filesystem>

#include "arch/decoder.h"
#include "base/deadline.h"
#include "base/json.h"
#include "base/rng.h"
#include "ckpt/checkpoint.h"
#include "comm/group.h"
#include "engine/tables.h"
#include "model/block_parts.h"
#include "model/ngrams.h"
#include "tensor/convert.h"
#include "tensor/memory.h"
#include "tensor/threads.h"
#include "tool/memory_used.h"

namespace {

using namespace sf;

Json list(const std::vector<double>& values) {
  Json out = Json::array();
  for (double value : values) out.push(value);
  return out;
}

// Leaves in the compute type; nothing of the file stays in memory.
model::Tensors read_all(const ckpt::Checkpoint& files, Dtype compute) {
  model::Tensors all;
  for (const std::string& name : files.names()) {
    at::Tensor value = at::empty(files.info(name).shape, at::kFloat);
    const std::span<float> floats(value.mutable_data_ptr<float>(), static_cast<size_t>(value.numel()));
    files.read(name, 0, value.numel(), Dtype::kF32, std::as_writable_bytes(floats));
    all[name] = value.to(tensor::to_scalar(compute)).set_requires_grad(name != "g");
  }
  return all;
}

int layer(const std::string& kind, const std::filesystem::path& dir, Dtype compute, int64_t steps,
          const std::filesystem::path& out) {
  tensor::install_allocator();
  const tool::PeakMemory memory;
  const ckpt::Checkpoint files = ckpt::Checkpoint::open(dir);
  const arch::Decoder decoder = arch::decoder_from_config(files.config());
  const model::Part part = kind == "delta" ? model::delta_net_part(decoder) : model::feed_forward_part(decoder, 0);
  model::Tensors tensors = read_all(files, compute);
  const model::BlockNames names("model.layers.0.", {});
  const model::Given given(names, tensors, {});
  at::Tensor y;
  std::vector<double> seconds;
  for (int64_t step = 0; step < steps; ++step) {
    for (auto& [name, value] : tensors) value.mutable_grad() = at::Tensor();
    y = at::Tensor();
    const double start = monotonic_s();
    y = part(given, tensors.at("x"));
    y.backward(tensors.at("g"));
    seconds.push_back(monotonic_s() - start);
  }
  const double peak = static_cast<double>(memory.bytes()) / (1 << 20);
  std::map<std::string, HostTensor> found;
  found["y"] = tensor::to_host(y, Dtype::kF32);
  for (const auto& [name, value] : tensors)
    if (name != "g") found["d." + name] = tensor::to_host(value.grad(), Dtype::kF32);
  std::vector<std::pair<std::string, TensorView>> views;
  for (const auto& [name, value] : found) views.emplace_back(name, value.view());
  ckpt::write_safetensors(out, views);
  fmt::print("{}\n", Json::object().set("s", list(seconds)).set("mib", peak).dump());
  return 0;
}

constexpr const char* kNgrams = R"({"model_type": "qwen4_exp_text", "vocab_size": 248320, "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
  "max_position_embeddings": 128, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
  "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "full_attention_interval": 2, "num_experts": 4,
  "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 12, "eos_token_id": 2,
  "hc_count": 4, "hc_lowrank": 8, "ple_layer_ids": [1], "rope_parameters": {"rope_theta": 10000, "mrope_section": [3, 3, 2]},
  "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8, "indexer_compress_ratio": 4})";

// The file's first rows of `width` bf16, mapped where they lie as a run maps a table of residency host, as many as
// primes from `base` on give: hashing of random tokens, and the rows that they find, each time others; every page was
// read before.
int rows(const std::filesystem::path& file, int64_t base, int64_t width, int64_t tokens, int64_t repeat) {
  tensor::install_allocator();
  arch::Decoder decoder = arch::decoder_from_config(Json::parse(kNgrams, "bench"));
  const int64_t heads = decoder.ngrams.all_heads();
  decoder.ngrams.base = base;
  decoder.ngrams.hashes = {arch::ngram_hash(decoder.ngrams, 0, decoder.vocab)};
  const int64_t count = decoder.ngrams.hashes[0].rows;
  arch::ModelSpec spec;
  spec.parameters = {{"table", {count, width}, false, ""}};
  spec.tables = {{"table", true, false}};
  plan::ScheduleOptions options{.compute = Dtype::kBF16};
  options.tables["table"] = plan::Residency::kHost;
  options.host_types["table"] = Dtype::kBF16;
  const arch::Segment described{"table", {"table"}, {"ngram_ids.0"}, {"ngram_rows.0"}, 0};
  const std::vector<model::Segment> segments{model::ngram_table_segment(described)};
  const plan::Schedule plan = plan::make_schedule(spec, {described}, options);
  const std::unique_ptr<comm::Group> group = comm::make_single();
  engine::HostTables hosts(plan, *group, {.sources = {{"table", {file, 0, Dtype::kBF16, ""}}}});
  hosts.seal();
  const engine::Store store(plan, spec, segments, 0);
  const auto exchange = engine::table_exchanges(plan, segments, spec, *group, {.hosts = &hosts}).at("table");
  const model::Segment hash = model::ngrams_segment(decoder, {"ngrams", {}, {"ids"}, {"ngram_ids.0"}, 0});
  std::vector<double> hashing, finding;
  double sum = at::Tensor(hosts.table(0)).sum(at::kFloat).item<double>();  // reads every page
  for (int64_t i = 0; i < repeat; ++i) {
    at::Tensor ids = at::empty({1, tokens}, at::kLong);
    const Rng rng(static_cast<uint64_t>(i), "tokens");
    for (int64_t t = 0; t < tokens; ++t)
      ids.mutable_data_ptr<int64_t>()[t] = 3 + static_cast<int64_t>(rng.below(248000, static_cast<uint64_t>(t)));
    const double start = monotonic_s();
    const model::Tensors places = hash.forward({}, {{"ids", ids}});
    const double hashed = monotonic_s();
    sum += exchange->forward(store, &places, false).at("ngram_rows.0").select(1, 0).select(0, 0).item<double>();
    finding.push_back(static_cast<double>(tokens * heads) / (monotonic_s() - hashed));
    hashing.push_back(static_cast<double>(tokens * heads) / (hashed - start));
  }
  fmt::print("{}\n", Json::object().set("hashed", list(hashing)).set("found", list(finding)).set("rows", count).dump());
  return sum == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string verb = words.empty() ? "" : words[0];
  try {
    if (verb == "layer" && words.size() == 7) {
      tensor::set_threads(std::stoi(words[4]));
      return layer(words[1], words[2], words[3] == "bf16" ? Dtype::kBF16 : Dtype::kF32, std::stoll(words[5]), words[6]);
    }
    if (verb == "rows" && words.size() == 6) {
      tensor::set_threads(1);
      return rows(words[1], std::stoll(words[2]), std::stoll(words[3]), std::stoll(words[4]), std::stoll(words[5]));
    }
    fmt::print(stderr, "usage: hybrid_bench layer ... | rows ...\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "hybrid_bench: {}\n", error.what());
  }
  return 1;
}
