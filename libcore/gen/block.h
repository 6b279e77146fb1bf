// SPDX-License-Identifier: Apache-2.0
// One transformer block for inference, shared by the target and its drafts: fused projections, cached attention.
// Every row's bits depend on its own sequence alone (shardforge(7), Numbers).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gen/cache.h"
#include "gen/delta_net.h"
#include "gen/linear.h"
#include "gen/mlp.h"
#include "gen/weights.h"
#include "model/rotary.h"
#include "ops/packed_linear.h"

namespace sf::gen {

// The rows of one forward: runs of consecutive positions, each appended to its sequence's cache, or of nodes of the
// tree behind it.
class Rows {
 public:
  struct Run {
    Cache* cache;
    int64_t first, count;  // positions first .. first + count - 1; first is the cache's length
    int64_t row;           // of its first token in this forward
    int64_t node = -1;     // the first of its nodes, which stand at first + depth; -1: no tree
  };
  // kSoftware if a cache is named twice or is too small; grows each cache's length by its run.
  void add(Cache& cache, int64_t count);
  // Nodes, numbered on from the cache's; each one's parent: kTrunk or an earlier node.
  void add(Cache& cache, std::span<const int32_t> parents);
  void place(const model::Rotary& rotary);  // after the last add()

  std::span<const Run> runs() const { return runs_; }
  int64_t count() const { return static_cast<int64_t>(positions_.size()); }
  const ops::RotaryTable& table() const { return table_; }
  const at::Tensor& turns() const { return turns_; }  // I64 [count]: the row's entry in table()
  std::span<const int64_t> positions(const Run& run) const {
    return std::span(positions_).subspan(static_cast<size_t>(run.row), static_cast<size_t>(run.count));
  }

 private:
  std::vector<Run> runs_;
  std::vector<int64_t> positions_;
  ops::RotaryTable table_;
  at::Tensor turns_;
};

struct BlockShape {
  int64_t in = 0;  // width of what attention reads (2 H in the draft)
  int64_t hidden = 0, intermediate = 0, heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  double eps = 1e-6;
  bool qkv_bias = false, o_bias = false, mlp_bias = false, qk_norm = false;
  bool gated = false, centred = false;  // as arch::Decoder says of attention and norms
  std::optional<arch::DeltaNet> delta;  // in the place of attention
  arch::Experts experts;                // of a layer with a router; count 0: it has one MLP
  bool whole_run = false;               // a row sees all of its run, not what lies before it alone
};

// The norm of the shape's family.
at::Tensor normed(const BlockShape& shape, const at::Tensor& x, const at::Tensor& weight);

class Block {
 public:
  // `prefix`: "model.layers.3." or "midlayer.".
  Block(const Weights& weights, const std::string& prefix, const BlockShape& shape);
  // x: normed input [rows, in] -> output of attention or delta net [rows, hidden]; writes the cache's layer `layer`, of
  // those with attention or of the recurrent ones.
  at::Tensor attend(const at::Tensor& x, const Rows& rows, int64_t layer) const;
  // Writes keys and values of x alone.
  void remember(const at::Tensor& x, const Rows& rows, int64_t layer) const;
  // h: [rows, hidden] -> h + MLP(norm(h)); h is overwritten.
  void feed_forward(at::Tensor& h) const;
  at::Tensor post_normed(const at::Tensor& h) const;  // what the MLP reads
  at::Tensor mlp(const at::Tensor& x) const;
  at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const { return normed(shape_, x, weight); }
  size_t adapt(const LiveAdapter& adapter);  // as Linear::adapt
  std::optional<Recurrent> fresh() const;    // what a sequence's cache needs of it at the beginning; none: attention

 private:
  struct Heads {
    at::Tensor q, k, v;  // [heads, rows, hd], normed and turned
    at::Tensor gate;     // [rows, heads, hd], of what is found; undefined: there is none
  };
  void make_attention(const Weights& weights, const std::string& at);
  Heads heads(const at::Tensor& x, const Rows& rows) const;
  // One run's rows, behind a cache that they join -> into `mixed`.
  void attend(const Heads& own, const Rows& rows, const Rows::Run& run, int64_t layer, at::Tensor& mixed) const;
  void attend_nodes(const Heads& own, const Rows& rows, const Rows::Run& run, int64_t layer, at::Tensor& mixed) const;

  BlockShape shape_;
  Linear qkv_, o_;
  std::optional<DeltaNet> delta_;
  std::optional<Mlp> mlp_;  // or:
  std::optional<RoutedMlp> routed_;
  at::Tensor qkv_bias_, o_bias_, q_norm_, k_norm_, post_norm_;
};

}  // namespace sf::gen
