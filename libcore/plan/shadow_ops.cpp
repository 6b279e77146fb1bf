// SPDX-License-Identifier: Apache-2.0
#include "plan/shadow_ops.h"

#include <utility>

#include "base/error.h"

namespace sf::plan {
namespace {

constexpr int64_t kPanel = 16;   // rows of a packed weight side by side (kernels)
constexpr int64_t kDimsOf = 16;  // attention fills head dims up to a multiple

int64_t rows_of(const Shade& x) {
  return x.elements() / x.shape.back();
}

int64_t up_to(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Shade ShadowOps::dense(const Shade& x) {
  return x.dense ? x : tape_.make(x.shape, x.type);
}

Shade ShadowOps::product(int64_t m, int64_t n, int64_t k, Dtype type) {
  Shade y = tape_.make({m, n}, type);
  int64_t depth = type == Dtype::kBF16 ? up_to(k, 2) : k;
  Shade packed = tape_.make({up_to(n, kPanel), depth}, type);
  return y;
}

Shade ShadowOps::linear(const Shade& x, const Shade& weight, const Shade* bias) {
  int64_t m = rows_of(x), n = weight.shape[0], k = weight.shape[1];
  Dtype type = x.type;
  Shape shape = x.shape;
  shape.back() = n;
  Shades out;
  {
    Shade rows = dense(x);
    out.push_back(product(m, n, k, type).as(shape));
  }
  bool dx = x.needs_gradient(), dw = weight.needs_gradient(), db = bias && bias->needs_gradient();
  Shades inputs{x, weight};
  if (bias) inputs.push_back(*bias);
  tape_.record(out, inputs, [this, kept = x.detached(), m, n, k, type, dx, dw, db](const Shades& gradients) -> Shades {
    Shade g = dense(gradients[0]);
    Shades made(3);
    if (dx) made[0] = product(m, k, n, type).as(kept.shape);
    if (dw) {
      Shade rows = dense(kept);
      made[1] = product(n, k, m, type);
    }
    if (db) made[2] = tape_.make({n}, type);
    return made;
  });
  return out[0];
}

Shade ShadowOps::norm(const Shade& input, const Shade& weight) {
  Shade x = dense(input).detached();
  Shades out{tape_.make(x.shape, x.type)};
  Shade rstd = tape_.make({rows_of(x)}, Dtype::kF32);
  bool dx = input.needs_gradient(), dw = weight.needs_gradient();
  tape_.record(out, {input, weight}, [this, x, rstd, width = weight.shape, dx, dw](const Shades& gradients) -> Shades {
    Shade g = dense(gradients[0]);
    Shades made(2);
    if (dx) made[0] = tape_.make(x.shape, x.type);
    if (dw) {
      made[1] = tape_.make(width, Dtype::kF32);
      if (x.type != Dtype::kF32) made[1] = tape_.make(width, x.type);
    }
    return made;
  });
  return out[0];
}

Shade ShadowOps::rotary(const Shade& x, bool own_positions) {
  Shade positions;
  if (own_positions) positions = tape_.make({x.shape[x.shape.size() - 2]}, Dtype::kI64);
  Shades out{tape_.make(x.shape, x.type)};
  out[0].dense = x.dense;
  tape_.record(out, {x}, [this, positions](const Shades& gradients) -> Shades {
    Shade made = tape_.make(gradients[0].shape, gradients[0].type);
    made.dense = gradients[0].dense;
    return {made};
  });
  return out[0];
}

Shade ShadowOps::swiglu(const Shade& gate_in, const Shade& up_in) {
  Shade gate = dense(gate_in).detached(), up = dense(up_in).detached();
  Shades out{tape_.make(gate.shape, gate.type)};
  tape_.record(out, {gate_in, up_in}, [this, gate, up](const Shades& gradients) -> Shades {
    Shade g = dense(gradients[0]);
    return {tape_.make(gate.shape, gate.type), tape_.make(up.shape, up.type)};
  });
  return out[0];
}

// fp32 with head dims filled up; the tensor itself where nothing is to do.
Shade ShadowOps::prepared(const Shade& x) {
  int64_t dims = up_to(x.shape.back(), kDimsOf);
  if (x.type == Dtype::kF32 && dims == x.shape.back()) return x.detached();
  Shade wide = x.type == Dtype::kF32 ? x.detached() : tape_.make(x.shape, Dtype::kF32);
  if (dims == x.shape.back()) return wide;
  Shape filled = x.shape;
  filled.back() = dims;
  return tape_.make(filled, Dtype::kF32);
}

Shade ShadowOps::stacked(const Shades& parts) {
  Shape shape = parts[0].shape;
  shape.insert(shape.begin(), std::ssize(parts));
  Shades out{tape_.make(shape, parts[0].type)};
  tape_.record(out, parts, [count = parts.size(), one = parts[0].shape](const Shades& gradients) -> Shades {
    return Shades(count, gradients[0].as(one));
  });
  return out[0];
}

Shade ShadowOps::attention(const Shade& q, const Shades& keys, const Shades& values) {
  Shades inputs{q, keys[0], values[0]};
  if (keys.size() > 1)
    for (const Shades* side : {&keys, &values}) inputs.push_back(stacked({side->begin() + 1, side->end()}));
  return attend(inputs);
}

// inputs: q, keys, values and, if there are diagonals, their stacks.
Shade ShadowOps::attend(const Shades& inputs) {
  const Shade& q = inputs[0];
  Shade ranges = tape_.make({2, q.shape[0], q.shape[2]}, Dtype::kI64);
  Shades saved;
  for (const Shade& input : inputs) saved.push_back(prepared(input));
  Shape wide = saved[0].shape;
  Shade out = tape_.make(wide, Dtype::kF32);
  Shade lse = tape_.make({q.shape[0], q.shape[1], q.shape[2]}, Dtype::kF32);
  bool filled = wide.back() != q.shape.back();
  Shade shown = q.type == Dtype::kF32 ? out.as(q.shape) : tape_.make(q.shape, q.type);
  shown.dense = !filled;  // as [B, S, heads, hd]
  Shades result{shown};
  saved.insert(saved.end(), {ranges, out, lse});
  tape_.record(
      result, inputs,
      [this, saved, inputs = inputs.size(), type = q.type, dims = q.shape.back()](const Shades& gradients) -> Shades {
        Shade g = prepared(gradients[0]);
        Shades made;
        for (size_t i = 0; i < inputs; ++i) made.push_back(tape_.make(saved[i].shape, Dtype::kF32));
        for (Shade& one : made) {
          Shape narrow = one.shape;
          narrow.back() = dims;
          bool cut = narrow != one.shape;
          if (type != Dtype::kF32)
            one = tape_.make(narrow, type);
          else
            one = one.as(narrow);
          one.dense = !cut;
        }
        return made;
      });
  return result[0];
}

Shade ShadowOps::index_select(const Shade& x, int64_t rows) {
  Shade index = tape_.make({rows}, Dtype::kI64);
  Shape shape = x.shape;
  shape[0] = rows;
  Shades out{tape_.make(shape, x.type)};
  tape_.record(out, {x}, [this, index, whole = x.shape, type = x.type](const Shades&) -> Shades {
    return {tape_.make(whole, type)};
  });
  return out[0];
}

Shade ShadowOps::index_copy_into_zeros(const Shade& rows, int64_t all) {
  Shades out;
  {
    Shade zeros = tape_.make({all, rows.shape[1]}, rows.type);
    out.push_back(tape_.make({all, rows.shape[1]}, rows.type));
  }
  // LibTorch keeps the rows themselves, for their shape.
  tape_.record(out, {rows},
               [this, kept = rows.detached()](const Shades&) -> Shades { return {tape_.make(kept.shape, kept.type)}; });
  return out[0];
}

Shade ShadowOps::cat_columns(const Shades& parts) {
  int64_t width = 0;
  for (const Shade& part : parts) width += part.shape[1];
  return joined(parts, {parts[0].shape[0], width});
}

Shade ShadowOps::cat_rows(const Shades& parts) {
  int64_t rows = 0;
  for (const Shade& part : parts) rows += part.shape[0];
  Shades out{tape_.make({rows, parts[0].shape[1]}, parts[0].type)};
  std::vector<Shape> shapes;
  for (const Shade& part : parts) shapes.push_back(part.shape);
  tape_.record(out, parts, [shapes](const Shades& gradients) -> Shades {
    Shades made;
    for (const Shape& shape : shapes) made.push_back(gradients[0].as(shape));
    return made;
  });
  return out[0];
}

Shades ShadowOps::split_rows(const Shade& x, const std::vector<int64_t>& rows) {
  Shades out;
  for (int64_t count : rows) out.push_back(x.as({count, x.shape[1]}).detached());
  tape_.record(out, {x},
               [this, whole = x.shape, type = x.type](const Shades&) -> Shades { return {tape_.make(whole, type)}; });
  return out;
}

Shade ShadowOps::add(const Shade& a, const Shade& b) {
  Shades out{tape_.make(a.shape, a.type)};
  tape_.record(out, {a, b}, [](const Shades& gradients) -> Shades { return {gradients[0], gradients[0]}; });
  return out[0];
}

Shade ShadowOps::scaled(const Shade& x) {
  Shades out{tape_.make(x.shape, x.type)};
  tape_.record(out, {x},
               [this, shape = x.shape, type = x.type](const Shades&) -> Shades { return {tape_.make(shape, type)}; });
  return out[0];
}

Shade ShadowOps::summed(const Shade& x) {
  Shades out{tape_.make({}, x.type)};
  tape_.record(out, {x}, [back = x.shape](const Shades& gradients) -> Shades {
    Shade g = gradients[0];
    g.shape = back;  // expanded
    return {g};
  });
  return out[0];
}

Shade ShadowOps::split_heads(const Shade& x, Shape heads_shape) {
  Shades out{x.as(std::move(heads_shape)).detached()};
  tape_.record(out, {x}, [this, back = x.shape](const Shades& gradients) -> Shades {
    // The gradient comes head by head, its rows do not lie together.
    return {tape_.make(back, gradients[0].type)};
  });
  return out[0];
}

Shade ShadowOps::merge_heads(const Shade& x, Shape merged) {
  Shades out{dense(x).as(std::move(merged)).detached()};
  tape_.record(out, {x}, [back = x.shape](const Shades& gradients) -> Shades { return {gradients[0].as(back)}; });
  return out[0];
}

}  // namespace sf::plan
