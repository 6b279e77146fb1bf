// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/rows.h"

#include <cmath>
#include <vector>

#include "elements.h"
#include "sf_kernels/loss.h"

namespace sf::kernels::reference {

namespace {

float rounded(Type type, float value) {
  float out = 0;
  put(type, &out, 0, value);
  return get(type, &out, 0);
}

}  // namespace

void rms_norm(const RmsNorm& op, void* y, float* rstd) {
  for (size_t r = 0; r < op.rows; ++r) {
    double squares = 0;
    for (size_t i = 0; i < op.width; ++i) squares += std::pow(get(op.type, op.x, r * op.x_row + i), 2.0);
    rstd[r] = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(op.width) + op.eps));
    for (size_t i = 0; i < op.width; ++i) {
      const float unit = rounded(op.type, get(op.type, op.x, r * op.x_row + i) * rstd[r]);
      put(op.type, y, r * op.width + i, unit * get(op.type, op.weight, i));
    }
  }
}

void swiglu(Type type, const void* gate, const void* up, void* y, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const double value = get(type, gate, i);
    put(type, y, i, static_cast<float>(value / (1 + std::exp(-value)) * get(type, up, i)));
  }
}

void rotary(const Rotary& op) {
  for (size_t b = 0; b < op.batch; ++b) {
    for (size_t h = 0; h < op.heads; ++h) {
      for (size_t s = 0; s < op.length; ++s) {
        const size_t from = b * op.x_batch + h * op.x_head + s * op.x_token;
        const size_t to = b * op.y_batch + h * op.y_head + s * op.y_token;
        const size_t row = static_cast<size_t>(op.positions[b * op.position_row + s]) * op.half;
        for (size_t i = 0; i < op.dims; ++i) put(op.type, op.y, to + i, get(op.type, op.x, from + i));
        for (size_t i = 0; i < op.half; ++i) {
          const float c = op.cos[row + i], d = op.inverse ? -op.sin[row + i] : op.sin[row + i];
          const float x1 = get(op.type, op.x, from + i), x2 = get(op.type, op.x, from + op.half + i);
          put(op.type, op.y, to + i, x1 * c - x2 * d);
          put(op.type, op.y, to + op.half + i, x2 * c + x1 * d);
        }
      }
    }
  }
}

void hard_loss(const HardLoss& op, HardRow* out) {
  for (size_t r = 0; r < op.rows; ++r) {
    float* z = op.z + r * op.width;
    const size_t label = static_cast<size_t>(op.label[r]);
    size_t best = 0;
    double total = 0;
    for (size_t i = 0; i < op.width; ++i) best = z[i] > z[best] ? i : best;
    for (size_t i = 0; i < op.width; ++i) total += std::exp(static_cast<double>(z[i]));
    out[r].argmax = static_cast<int32_t>(best);
    out[r].lse = static_cast<float>(std::log(total));
    out[r].nll = static_cast<float>(std::log(total) - z[label]);
    out[r].loss = op.weight[r] * out[r].nll;
    double moment = 0;
    for (size_t i = 0; i < op.width; ++i) moment += std::exp(static_cast<double>(z[i])) / total * z[i];
    out[r].entropy = static_cast<float>(std::log(total) - moment);
    for (size_t i = 0; i < op.width && op.gradient; ++i) {
      const double p = std::exp(static_cast<double>(z[i])) / total;
      put(op.type, z, i, static_cast<float>(op.weight[r] * (p - (i == label))));
    }
  }
}

void soft_loss(const SoftLoss& op, SoftRow* out) {
  for (size_t r = 0; r < op.rows; ++r) {
    const size_t teacher = static_cast<size_t>(op.teacher[r]);
    auto z = [&](size_t i) { return static_cast<double>(op.z[r * op.width + i]); };
    auto t = [&](size_t i) { return static_cast<double>(op.t[teacher * op.width + i]); };
    SoftRow row;
    for (size_t i = 1; i < op.width; ++i) {
      if (z(i) > z(static_cast<size_t>(row.argmax))) row.argmax = static_cast<int32_t>(i);
    }
    double z_total = 0, t_total = 0, dot = 0, common = 0;
    for (size_t i = 0; i < op.width; ++i) z_total += std::exp(z(i)), t_total += std::exp(t(i));
    for (size_t i = 0; i < op.width; ++i) {
      dot += std::exp(t(i)) / t_total * (z(i) - std::log(z_total));
      if (op.target_lse) common += std::fmin(std::exp(z(i)) / z_total, std::exp(t(i) - op.target_lse[teacher]));
    }
    if (op.weight[r] != 0) {
      row.nll = static_cast<float>(-dot);
      row.loss = static_cast<float>(-dot * op.weight[r]);
      row.acceptance = static_cast<float>(common);
    }
    out[r] = row;
    for (size_t i = 0; i < op.width && op.gradient; ++i) {
      const double q = std::exp(z(i)) / z_total, p = std::exp(t(i)) / t_total;
      put(op.type, op.z + r * op.width, i, static_cast<float>(op.weight[r] * (q - p)));
    }
  }
}

void distance_loss(const DistanceLoss& op, DistanceRow* out) {
  for (size_t r = 0; r < op.rows; ++r) {
    auto z = [&](size_t i) { return static_cast<double>(op.z[r * op.width + i]); };
    auto t = [&](size_t i) { return op.t ? static_cast<double>(op.t[r * op.width + i]) : 0; };
    const size_t label = static_cast<size_t>(op.label[r]);
    size_t best = 0, best_t = 0;
    double z_total = 0, t_total = 0, l1 = 0, mean = 0;
    for (size_t i = 0; i < op.width; ++i) {
      if (z(i) > z(best)) best = i;
      if (t(i) > t(best_t)) best_t = i;
      z_total += std::exp(z(i)), t_total += std::exp(t(i));
    }
    auto p = [&](size_t i) { return std::exp(z(i)) / z_total; };
    auto q = [&](size_t i) { return op.t ? std::exp(t(i)) / t_total : p(i); };
    auto side = [&](size_t i) { return p(i) > q(i) ? 1.0 : p(i) < q(i) ? -1.0 : 0.0; };
    for (size_t i = 0; i < op.width; ++i) l1 += std::fabs(p(i) - q(i)), mean += p(i) * side(i);
    const double nll = std::log(z_total) - z(label), of_l1 = op.t ? op.l1_weight[r] : 0;
    out[r] = DistanceRow{static_cast<float>(op.nll_weight[r] * nll + of_l1 * l1),
                         static_cast<float>(nll),
                         static_cast<float>(l1),
                         static_cast<float>(p(best)),
                         op.t ? static_cast<float>(q(best_t)) : 0,
                         static_cast<int32_t>(best),
                         static_cast<int32_t>(best_t)};
    std::vector<float> gradient;
    for (size_t i = 0; i < op.width; ++i) {
      const double slope = op.nll_weight[r] * (p(i) - (i == label)) + of_l1 * p(i) * (side(i) - mean);
      gradient.push_back(static_cast<float>(slope));
    }
    for (size_t i = 0; i < op.width && op.gradient; ++i) put(op.type, op.z + r * op.width, i, gradient[i]);
  }
}

void label_loss(const LabelLoss& op, LabelRow* seen) {
  for (size_t r = 0; r < op.rows; ++r) {
    LabelRow& row = seen[r];
    float* z = op.z + r * op.width;
    double top = row.top, total = 0;
    for (size_t i = 0; i < op.width; ++i) {
      if (z[i] > top) top = z[i], row.argmax = static_cast<int32_t>(op.first + static_cast<int64_t>(i));
      if (op.first + static_cast<int64_t>(i) == op.label[r]) row.at_label = z[i];
    }
    for (size_t i = 0; i < op.width; ++i) total += std::exp(static_cast<double>(z[i]) - top);
    const double shrink = row.total == 0 ? 0 : std::exp(row.top - top);
    row.top = static_cast<float>(top);
    row.total = static_cast<float>(total + shrink * row.total);
    if (!op.shrink) continue;
    op.shrink[r] = static_cast<float>(shrink);
    for (size_t i = 0; i < op.width; ++i) {
      const bool label = op.first + static_cast<int64_t>(i) == op.label[r];
      z[i] = label ? 0 : static_cast<float>(std::exp(static_cast<double>(z[i]) - top));
    }
  }
}

}  // namespace sf::kernels::reference
