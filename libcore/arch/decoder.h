// SPDX-License-Identifier: Apache-2.0
// Decoders (Llama, Qwen2, Qwen3, Mistral, Qwen2 and Qwen3 with experts, and the hybrids: Qwen3-Next, Qwen3.5,
// Qwen4-Exp) as data: differences between families are fields, not subclasses. Source: Hugging Face config.json
// conventions (models_text_scoring 1.1-1.5, 3).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "arch/adapter.h"
#include "arch/hybrid.h"
#include "arch/model_spec.h"
#include "base/json.h"

namespace sf::arch {

// Rotary embedding parameters after both schemas (rope_parameters; rope_scaling + rope_theta) are merged.
struct Rope {
  std::string type = "default";  // default, linear, dynamic, llama3, yarn
  double theta = 10000;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;
  double original_max_positions = 0;
  double beta_fast = 32, beta_slow = 1;
  double mscale = 0, mscale_all_dim = 0;
  double attention_factor = 0;  // 0: derive
  bool truncate = true;
  double partial = 1;             // of a head's dims, how many turn
  std::vector<int64_t> sections;  // of slots by plane of position ids, interleaved; empty: there is one plane

  friend bool operator==(const Rope&, const Rope&) = default;
};

// Layers whose MLP is many, of which a router chooses some for each token (models_text_scoring 3.1).
struct Experts {
  int64_t count = 0, chosen = 0, width = 0;  // width: of one expert's inner states
  int64_t shared_width = 0;                  // of the expert that every token passes; 0: there is none
  bool normalise = false;                    // the weights of those chosen add up to one
  std::vector<bool> layers;                  // by layer: it has a router; empty: none has

  friend bool operator==(const Experts&, const Experts&) = default;
};

struct Decoder {
  std::string family;        // config's model_type
  std::string architecture;  // e.g. "LlamaForCausalLM"
  int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, max_positions = 0;
  double rms_eps = 1e-6;
  bool qkv_bias = false, o_bias = false, mlp_bias = false, qk_norm = false, tied = false;
  Rope rope;
  std::vector<int64_t> windows;  // per layer: sliding window (a key is visible iff i - j < window), 0 = full attention
  Dtype stored = Dtype::kF32;    // config's dtype; the safetensors header is what counts when reading
  Experts experts;
  bool gated_attention = false;  // q_proj holds, head by head, a query and a gate on what it finds
  bool centred_norms = false;    // norms multiply by 1 + weight
  DeltaNet delta;
  WideResidual wide;
  Indexer indexer;
  Ngrams ngrams;
  int64_t bos = -1;
  std::vector<int64_t> eos;

  bool routes(int64_t layer) const { return !experts.layers.empty() && experts.layers[static_cast<size_t>(layer)]; }
  // The layer has a delta net where others have attention.
  bool recurs(int64_t layer) const { return !delta.layers.empty() && delta.layers[static_cast<size_t>(layer)]; }
  int64_t rotary_dims() const { return static_cast<int64_t>(static_cast<double>(head_dim) * rope.partial); }
  friend bool operator==(const Decoder&, const Decoder&) = default;
};

// The language part's config of a multimodal model (ForConditionalGeneration), as if it stood alone; any other config
// as it is.
Json text_config(const Json& config);
// Throws kConfig naming an unknown architecture or a setting out of range; kData for a malformed file.
Decoder decoder_from_config(const Json& config);
// What `config`, which gave `decoder`, leaves to the family's class: "rms_norm_eps = 1e-06", ...
std::vector<std::string> assumed(const Json& config, const Decoder& decoder);
// What a family's rotary parameters are if a config is silent.
struct RopeForm {
  double partial = 0;                  // 0: all dims turn, and a config that says otherwise is refused
  std::vector<int64_t> sections = {};  // empty: position ids have one plane
};
// Both rope schemas of a config merged (the rope_scaling dictionary wins); shared with the drafts' configs.
Rope rope_from_config(const Json& config, int64_t max_positions, const RopeForm& form = {});
// Writes rope_theta, rope_scaling (null for the default) and rope_parameters: old and new readers agree.
void rope_to_config(const Rope& rope, Json& config);
// Writes the config.json that Hugging Face reads back to the same decoder (both rope schemas present).
Json decoder_to_config(const Decoder& decoder);
// Parameters are frozen (trainable = false). Segments: "embed", "layers.0" ... "layers.L-1", "head" (final norm and
// lm_head). Boundaries: "ids", "positions", "hidden.0" (embedding) ... "hidden.L" (un-normed state after L blocks),
// "final_norm", "logits".
ModelSpec describe(const Decoder& decoder);
// For fine-tuning: every parameter trains, or only A and B of the adapters if there are any; segment "head" reads
// hidden.L, labels and label_weight and writes loss and sums.
ModelSpec describe_training(const Decoder& decoder, std::span<const Adapter> adapters = {});

// Inverse frequencies (fp64, length rotary_dims/2) and the scale on cos and sin, for a sequence of `length` tokens
// (dynamic scaling alone depends on it). Source: models_text_scoring 1.5.
struct RopeTable {
  std::vector<double> inverse_frequency;
  double attention_scale = 1;
};
RopeTable rope_table(const Rope& rope, int64_t rotary_dims, int64_t max_positions, int64_t length);
// By slot, the plane of position ids that it turns by: in order of the sections, which then add up to `slots`; or
// interleaved, where of every three slots the second takes plane 1 and the third plane 2 while these have some left.
std::vector<int64_t> planes_of_slots(const std::vector<int64_t>& sections, int64_t slots, bool interleaved);
// The buffer "rotary" of a model: inverse frequencies of a sequence within max_positions, from fp64 to fp32.
Buffer rotary_buffer(const Rope& rope, int64_t rotary_dims, int64_t max_positions);

}  // namespace sf::arch
