// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/attention.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace sf::kernels::reference {

namespace {

double element(Type type, const void* p, size_t i) {
  if (type == Type::kF32) return static_cast<const float*>(p)[i];
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(p)[i]) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

}  // namespace

void attention(const Attention& op, Heads<float> out, float* lse) {
  const size_t group = op.heads / op.kv_heads;
  for (size_t b = 0; b < op.batch; ++b) {
    for (size_t h = 0; h < op.heads; ++h) {
      for (size_t r = 0; r < op.rows; ++r) {
        const float* q = op.q.data + b * op.q.batch + h * op.q.head + r * op.q.row;
        const size_t own = ((b * op.kv_heads + h / group) * op.rows + r) * op.dims;
        std::vector<double> weights, sum(op.dims);
        std::vector<std::vector<double>> values;
        auto see = [&](Type type, const void* k, const void* v, size_t k_at, size_t v_at) {
          double dot = 0;
          for (size_t d = 0; d < op.dims; ++d) dot += q[d] * element(type, k, k_at + d);
          weights.push_back(dot * op.scale);
          values.emplace_back();
          for (size_t d = 0; d < op.dims; ++d) values.back().push_back(element(type, v, v_at + d));
        };
        const auto low = static_cast<size_t>(op.low[b * op.rows + r]),
                   high = static_cast<size_t>(op.high[b * op.rows + r]);
        for (size_t j = low; j < high; ++j) {
          see(op.kv_type, op.k.data, op.v.data, b * op.k.batch + h / group * op.k.head + j * op.k.row,
              b * op.v.batch + h / group * op.v.head + j * op.v.row);
        }
        for (size_t i = 0; i < op.diagonals; ++i) see(Type::kF32, op.k_diagonal[i], op.v_diagonal[i], own, own);
        double top = -INFINITY, total = 0;
        for (double w : weights) top = std::fmax(top, w);
        for (size_t j = 0; j < weights.size(); ++j) {
          const double p = std::exp(weights[j] - top);
          total += p;
          for (size_t d = 0; d < op.dims; ++d) sum[d] += p * values[j][d];
        }
        float* to = out.data + b * out.batch + h * out.head + r * out.row;
        for (size_t d = 0; d < op.dims; ++d) to[d] = weights.empty() ? 0 : static_cast<float>(sum[d] / total);
        if (lse) lse[(b * op.heads + h) * op.rows + r] = static_cast<float>(top + std::log(total));
      }
    }
  }
}

}  // namespace sf::kernels::reference
