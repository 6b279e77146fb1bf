// SPDX-License-Identifier: Apache-2.0
// EAGLE3's corrected step written a second time, from the formulas (eagle_dflash 1.2, 1.4, 1.5): plain loops over fp64,
// full vocabulary, no packing. Dual numbers carry one exact derivative along, so that gradients need no second
// derivation.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sf::test {

struct Dual {
  double v = 0, d = 0;
  Dual() = default;
  Dual(double value, double derivative = 0) : v(value), d(derivative) {}
  Dual& operator+=(const Dual& b) { return *this = Dual(v + b.v, d + b.d); }
};
inline Dual operator+(const Dual& a, const Dual& b) {
  return {a.v + b.v, a.d + b.d};
}
inline Dual operator-(const Dual& a, const Dual& b) {
  return {a.v - b.v, a.d - b.d};
}
inline Dual operator*(const Dual& a, const Dual& b) {
  return {a.v * b.v, a.d * b.v + a.v * b.d};
}
inline Dual operator/(const Dual& a, const Dual& b) {
  return {a.v / b.v, (a.d * b.v - a.v * b.d) / (b.v * b.v)};
}
inline Dual exp(const Dual& a) {
  return {std::exp(a.v), std::exp(a.v) * a.d};
}
inline Dual log(const Dual& a) {
  return {std::log(a.v), a.d / a.v};
}
inline Dual sqrt(const Dual& a) {
  return {std::sqrt(a.v), a.d / (2 * std::sqrt(a.v))};
}

using Vec = std::vector<Dual>;

struct Sizes {
  int64_t vocab, draft_vocab, hidden, target_hidden, intermediate, heads, kv_heads, head_dim, unroll;
  double theta, eps;
  bool fc_norm, norm_output;
};

// One row of the data, unpadded.
struct RowData {
  std::vector<int64_t> ids, mask;
  std::vector<std::vector<double>> captured, final_norm;  // [S][3Ht], [S][Ht]
};

struct StepSums {
  Vec numerator;                                                 // [T]
  std::vector<double> trained, correct, supervised, acceptance;  // [T]
};

class Eagle3Reference {
 public:
  Sizes n;
  std::map<std::string, Vec> p;  // row-major, Hugging Face names
  std::vector<double> head;      // the target's whole head, [V, Ht]
  std::vector<int64_t> used;     // target id of each draft id, ascending

  StepSums run(const std::vector<RowData>& rows) const {
    StepSums sums{Vec(n.unroll), std::vector<double>(n.unroll), std::vector<double>(n.unroll),
                  std::vector<double>(n.unroll), std::vector<double>(n.unroll)};
    for (const RowData& row : rows) one_row(row, sums);
    return sums;
  }

 private:
  Vec linear(const std::string& name, const Vec& x) const {
    const Vec& w = p.at(name + ".weight");
    Vec y(w.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o)
      for (size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
    return y;
  }
  Vec norm(const std::string& name, const Vec& x) const {
    Dual square = 0;
    for (const Dual& e : x) square += e * e;
    Dual root = sqrt(square / Dual(static_cast<double>(x.size())) + Dual(n.eps));
    Vec y;
    for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] / root * p.at(name + ".weight")[i]);
    return y;
  }
  Vec rotate(Vec x, int64_t position) const {
    int64_t half = n.head_dim / 2;
    for (size_t base = 0; base < x.size(); base += n.head_dim)
      for (int64_t i = 0; i < half; ++i) {
        double angle = static_cast<double>(position) *
                       std::pow(n.theta, -2.0 * static_cast<double>(i) / static_cast<double>(n.head_dim));
        Dual a = x[base + i], b = x[base + half + i], c = std::cos(angle), s = std::sin(angle);
        x[base + i] = a * c - b * s;
        x[base + half + i] = b * c + a * s;
      }
    return x;
  }
  Vec embedding(const RowData& row, int64_t at) const {
    int64_t id = at < std::ssize(row.ids) ? row.ids[at] : 0;
    const Vec& table = p.at("embed_tokens.weight");
    return Vec(table.begin() + id * n.hidden, table.begin() + (id + 1) * n.hidden);
  }
  Vec feature(const RowData& row, int64_t j) const {
    Vec all(row.captured[j].begin(), row.captured[j].end());
    if (!n.fc_norm) return linear("fc", all);
    Vec normed;
    for (int c = 0; c < 3; ++c)
      for (const Dual& e : norm("fc_norm." + std::to_string(c),
                                Vec(all.begin() + c * n.target_hidden, all.begin() + (c + 1) * n.target_hidden)))
        normed.push_back(e);
    return linear("fc", normed);
  }

  using Blocks = std::vector<std::vector<Vec>>;  // [step][index], heads side by side
  Vec attend(const Vec& q, int64_t j, int64_t k, const Blocks& keys, const Blocks& values) const {
    Vec out(n.heads * n.head_dim);
    for (int64_t h = 0; h < n.heads; ++h) {
      int64_t kv = h / (n.heads / n.kv_heads) * n.head_dim;
      std::vector<std::pair<int64_t, int64_t>> seen;
      for (int64_t i = 0; i <= j; ++i) seen.push_back({0, i});
      for (int64_t step = 1; step <= k; ++step) seen.push_back({step, j});
      Vec weight;
      Dual total = 0;
      for (auto [step, i] : seen) {
        Dual score = 0;
        for (int64_t d = 0; d < n.head_dim; ++d) score += q[h * n.head_dim + d] * keys[step][i][kv + d];
        weight.push_back(exp(score / Dual(std::sqrt(static_cast<double>(n.head_dim)))));
        total += weight.back();
      }
      for (size_t s = 0; s < seen.size(); ++s)
        for (int64_t d = 0; d < n.head_dim; ++d)
          out[h * n.head_dim + d] += weight[s] / total * values[seen[s].first][seen[s].second][kv + d];
    }
    return out;
  }
  Vec feed_forward(const Vec& x) const {
    Vec gate = linear("midlayer.mlp.gate_proj", x), up = linear("midlayer.mlp.up_proj", x), mixed;
    for (size_t i = 0; i < gate.size(); ++i) mixed.push_back(gate[i] / (Dual(1) + exp(Dual(0) - gate[i])) * up[i]);
    return linear("midlayer.mlp.down_proj", mixed);
  }

  void one_row(const RowData& row, StepSums& sums) const {
    int64_t length = std::ssize(row.ids);
    Blocks keys(n.unroll, std::vector<Vec>(length)), values = keys;
    std::vector<Vec> hidden;
    for (int64_t j = 0; j < length; ++j) hidden.push_back(feature(row, j));
    for (int64_t k = 0; k < n.unroll; ++k) {
      std::vector<Vec> input(length);
      for (int64_t j = 0; j < length; ++j) {
        input[j] = norm("midlayer.input_layernorm", embedding(row, j + 1 + k));
        for (const Dual& e : norm("midlayer.hidden_norm", hidden[j])) input[j].push_back(e);
        keys[k][j] = rotate(linear("midlayer.self_attn.k_proj", input[j]), j + k);
        values[k][j] = linear("midlayer.self_attn.v_proj", input[j]);
      }
      for (int64_t j = 0; j < length; ++j) {
        Vec q = rotate(linear("midlayer.self_attn.q_proj", input[j]), j + k);
        Vec mixed = linear("midlayer.self_attn.o_proj", attend(q, j, k, keys, values));
        for (int64_t d = 0; d < n.hidden; ++d) hidden[j][d] += mixed[d];
        Vec more = feed_forward(norm("midlayer.post_attention_layernorm", hidden[j]));
        for (int64_t d = 0; d < n.hidden; ++d) hidden[j][d] += more[d];
        judge(row, hidden[j], j, k, sums);
      }
    }
  }

  // Index j at step k predicts token j + k + 2 from the teacher at j + k + 1, under that token's own mask.
  void judge(const RowData& row, const Vec& hidden, int64_t j, int64_t k, StepSums& sums) const {
    int64_t at = j + k + 1;
    if (at >= std::ssize(row.ids) || row.mask[at] == 0) return;
    ++sums.supervised[k];
    std::vector<double> z(n.vocab);
    for (int64_t v = 0; v < n.vocab; ++v)
      for (int64_t d = 0; d < n.target_hidden; ++d) z[v] += head[v * n.target_hidden + d] * row.final_norm[at][d];
    int64_t top1 = std::max_element(z.begin(), z.end()) - z.begin();
    if (std::find(used.begin(), used.end(), top1) == used.end()) return;
    ++sums.trained[k];
    double whole = 0, part = 0;
    for (double e : z) whole += std::exp(e);
    for (int64_t id : used) part += std::exp(z[id]);
    Vec logits = linear("lm_head", n.norm_output ? norm("norm", hidden) : hidden);
    Dual total = 0;
    for (const Dual& e : logits) total += exp(e);
    int64_t best = 0;
    for (int64_t v = 0; v < n.draft_vocab; ++v) {
      sums.numerator[k] += Dual(-std::exp(z[used[v]]) / part) * log(exp(logits[v]) / total);
      sums.acceptance[k] += std::min(std::exp(logits[v].v) / total.v, std::exp(z[used[v]]) / whole);
      if (logits[v].v > logits[best].v) best = v;
    }
    sums.correct[k] += used[best] == top1;
  }
};

}  // namespace sf::test
