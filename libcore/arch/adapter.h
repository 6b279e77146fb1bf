// SPDX-License-Identifier: Apache-2.0
// LoRA adapters as data: which parameters of a target they change, what they are made of, and PEFT's
// adapter_config.json. Source: rl_lora 2.1, 2.2, 2.7.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arch/model_spec.h"
#include "base/json.h"

namespace sf::arch {

// Which modules: those whose name is one of `names` or ends in "." and one of them; or, if it is given, those whose
// whole name `pattern` matches (a regular expression in ECMAScript's syntax, without {}).
struct Selection {
  std::vector<std::string> names;
  std::string pattern;

  bool empty() const { return names.empty() && pattern.empty(); }
  friend bool operator==(const Selection&, const Selection&) = default;
};
// The pattern that stands for every linear layer of every block.
inline constexpr const char* kAllLinear = "all-linear";

struct Lora {
  int64_t rank = 8;
  double alpha = 8;
  bool rank_stabilised = false;         // scale alpha / sqrt(rank) in place of alpha / rank
  double dropout = 0;                   // of PEFT's training; ours has none
  Selection targets, excluded;          // of linear layers, by module: "model.layers.0.self_attn.q_proj"
  std::vector<std::string> parameters;  // of fused experts, by full name or ending: "mlp.experts.gate_up_proj"
  std::vector<int64_t> layers;          // blocks that count, by number; empty: all
  // Overrides by module, as regular expressions for the end of its name; the first that matches counts.
  std::vector<std::pair<std::string, int64_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;

  friend bool operator==(const Lora&, const Lora&) = default;
};

// adapter_config.json. kData for what is missing (rank and alpha have no default) or malformed, kConfig for what would
// be computed otherwise than here: another peft_type, DoRA, biases, further modules that train, ...
Lora lora_from_config(const Json& config);
// As PEFT writes it: keys sorted, its own spelling.
Json lora_to_config(const Lora& lora);
// Whether config.json is in fact an adapter_config.json.
bool is_adapter_config(const Json& config);

// The adapter of one parameter W: W + scale * B A, rank for each expert. A: [experts * rank, in], row e * rank + k;
// B: [out, rank * experts], column k * experts + e. A linear layer has one expert.
struct Adapter {
  std::string parameter;  // W: [out, in], or [experts, out, in]
  std::string module;     // "model.layers.0.self_attn.q_proj"
  std::string a, b;       // names, as PEFT saves them
  int64_t experts = 1, out = 0, in = 0, rank = 0;
  double scale = 1;

  Shape a_shape() const { return {experts * rank, in}; }
  Shape b_shape() const { return {out, rank * experts}; }
};

// In the order of the target's parameters. kConfig if nothing matches, naming the endings there are.
std::vector<Adapter> adapters_of(const Lora& lora, const ModelSpec& target);
// kConfig naming the entries of targets and parameters that match nothing of the target, or the overrides that match
// no adapter.
void check_targets(const Lora& lora, const ModelSpec& target);
// The endings of all linear layers, for a Lora whose pattern is kAllLinear: what PEFT writes in its place.
std::vector<std::string> linear_endings(const ModelSpec& target);
// A and B of each adapter, in order; they train.
std::vector<Parameter> parameters_of(std::span<const Adapter> adapters);
// Freezes all parameters of `spec` and adds A and B of each adapter to the segment that uses W.
void add_adapters(ModelSpec& spec, std::span<const Adapter> adapters);

}  // namespace sf::arch
