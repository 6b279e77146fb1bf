// SPDX-License-Identifier: Apache-2.0
// What a model is made of, without LibTorch: parameters, aliases, buffers, segments. `plan`, `sf-init` and --plan live
// on it, and room `model` is checked against it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace sf::arch {

// Frozen tables of the target, as the training of a draft names them: the draft's own files hold neither.
inline constexpr const char* kTargetEmbedding = "target_embedding.weight";
inline constexpr const char* kTargetHead = "target_head.weight";

// One storage. `name` is its Hugging Face name.
struct Parameter {
  std::string name;
  Shape shape;
  bool trainable = false;
  // How sf-init makes a new one: "normal:0.02", "uniform:0.1" (from -0.1 to 0.1), "ones", "zeros", "copy:<target's
  // name>", "copy:<target's name>*0.2" (scaled), "rows:<target's name>" (the rows of the draft vocabulary),
  // "pass:0.004" ([n, m]: the last n columns an identity, all plus normal(0, 0.004)), or "" (must be given).
  std::string init;
};

// A further name of a parameter.
struct Alias {
  std::string name, of;
};

// Recomputed at start, never stored, never cast ("rotary"), or stored with the checkpoint ("t2d").
struct Buffer {
  std::string name;
  Shape shape;
  Dtype dtype = Dtype::kF32;
  bool stored = false;
  std::vector<float> values = {};  // what it is recomputed to; empty: stored
};

// A pure function: parameters + boundary tensors -> boundary tensors. Parameters of a segment form its group.
struct Segment {
  std::string name;
  // Names by which the segment calls them: a tied head says "lm_head.weight" (follow ModelSpec::storage_of to the
  // storage).
  std::vector<std::string> parameters;
  std::vector<std::string> reads, writes;  // boundary names
  double flops_per_token = 0;  // forward, multiply and add counted as two; matrix products with parameters only
};

// A frozen parameter of one row a vocabulary entry. Its uses decide which residencies fit it.
struct Table {
  std::string parameter;
  bool looked_up = false;   // rows are taken by id
  bool multiplied = false;  // states are multiplied with all its rows: a head
  bool in_group = false;    // its segment is given the whole: shard cuts and gathers it with the group
  bool own = false;         // the draft's, not the target's: reference A cuts it with its group in any case
};

struct ModelSpec {
  std::string family;  // "llama", "qwen2", "qwen3", "mistral", "eagle3", ...
  std::vector<Parameter> parameters;
  std::vector<Alias> aliases;
  std::vector<Buffer> buffers;
  std::vector<Segment> segments;
  std::vector<Table> tables;  // frozen only

  const Parameter* find(std::string_view name) const;        // null if absent; aliases are not followed
  std::string_view storage_of(std::string_view name) const;  // follows an alias; the name itself otherwise
  int64_t parameter_count() const;
};

}  // namespace sf::arch
