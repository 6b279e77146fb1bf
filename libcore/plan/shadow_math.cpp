// SPDX-License-Identifier: Apache-2.0
// Shadows of LibTorch's element-wise mathematics, and of functions that are computed again for their gradient.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/shadow_ops.h"

namespace sf::plan {

Shade ShadowOps::wide(const Shade& x) {
  if (x.type == Dtype::kF32) return x;
  Shades out{tape_.make(x.shape, Dtype::kF32)};
  tape_.record(out, {x}, [this, type = x.type](const Shades& gradients) -> Shades {
    return {tape_.make(gradients[0].shape, type)};
  });
  return out[0];
}

Shade ShadowOps::from_result(const Shade& x) {
  Shades out{tape_.make(x.shape, x.type)};
  tape_.record(out, {x}, [this, kept = out[0].detached()](const Shades&) -> Shades {
    return {tape_.make(kept.shape, kept.type)};
  });
  return out[0];
}

Shade ShadowOps::from_input(const Shade& x, int made_on_the_way) {
  Shades out{tape_.make(x.shape, x.type)};
  tape_.record(out, {x}, [this, kept = x.detached(), made_on_the_way](const Shades&) -> Shades {
    Shades made;
    for (int i = 0; i < made_on_the_way; ++i) made.push_back(tape_.make(kept.shape, kept.type));
    return {tape_.make(kept.shape, kept.type)};
  });
  return out[0];
}

// What a gradient of extents `from` becomes for an input of extents `to`, summed where that was stretched.
Shade ShadowOps::summed_to(Shade gradient, const Shade& to) {
  return numel(gradient.shape) == to.elements() ? gradient.as(to.shape) : tape_.make(to.shape, to.type);
}

Shade ShadowOps::plus(const Shade& a, const Shade& b, Shape shape) {
  Shades out{tape_.make(std::move(shape), a.type)};
  Shade first = a.detached(), second = b.detached();
  first.memory = second.memory = nullptr;
  tape_.record(out, {a, b}, [this, first, second](const Shades& gradients) -> Shades {
    return {summed_to(gradients[0], first), summed_to(gradients[0], second)};
  });
  return out[0];
}

Shade ShadowOps::times(const Shade& a, const Shade& b, Shape shape) {
  Shades out{tape_.make(shape, a.type)};
  bool da = a.needs_gradient(), db = b.needs_gradient();
  Shade first = a.detached(), second = b.detached();
  if (!db) first.memory = nullptr;  // only the other's gradient reads it
  if (!da) second.memory = nullptr;
  tape_.record(out, {a, b}, [this, first, second, shape, da, db](const Shades&) -> Shades {
    Shades made(2);
    if (da) made[0] = tape_.make(shape, first.type);
    if (db) made[1] = tape_.make(shape, first.type);
    if (da) made[0] = summed_to(std::move(made[0]), first);
    if (db) made[1] = summed_to(std::move(made[1]), second);
    return made;
  });
  return out[0];
}

Shade ShadowOps::summed_to_wide(const Shade& x, Shape shape) {
  { Shade copy = x.type == Dtype::kF32 ? x.detached() : tape_.make(x.shape, Dtype::kF32); }
  Shades out{tape_.make(std::move(shape), Dtype::kF32)};
  tape_.record(out, {x}, [this, back = x.shape, type = x.type](const Shades& gradients) -> Shades {
    if (type != Dtype::kF32) return {tape_.make(back, type)};
    Shade stretched = gradients[0];
    stretched.shape = back;
    return {stretched};
  });
  return out[0];
}

// As LibTorch does it, what is gathered from is kept, for its extents.
Shade ShadowOps::gather(const Shade& x, int64_t columns) {
  Shades out{tape_.make({x.shape[0], columns}, x.type)};
  tape_.record(out, {x},
               [this, kept = x.detached()](const Shades&) -> Shades { return {tape_.make(kept.shape, kept.type)}; });
  return out[0];
}

Shade ShadowOps::top_k(const Shade& x, int64_t count) {
  Shade ids = tape_.make({x.shape[0], count}, Dtype::kI64);
  Shades out{tape_.make({x.shape[0], count}, x.type)};
  tape_.record(out, {x}, [this, ids, whole = x.shape, type = x.type](const Shades&) -> Shades {
    return {tape_.make(whole, type)};
  });
  return out[0];
}

Shade ShadowOps::joined(const Shades& parts, Shape shape) {
  Shades out{tape_.make(std::move(shape), parts[0].type)};
  std::vector<Shape> shapes;
  for (const Shade& part : parts) shapes.push_back(part.shape);
  tape_.record(out, parts, [shapes](const Shades& gradients) -> Shades {
    Shades made;
    for (const Shape& shape : shapes) {
      made.push_back(gradients[0].as(shape));
      made.back().dense = false;
    }
    return made;
  });
  return out[0];
}

Shades ShadowOps::chunks(const Shade& x, int64_t count) {
  Shades out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(x.as({x.shape[0], x.shape[1] / count}).detached());
    out.back().dense = false;
  }
  tape_.record(out, {x},
               [this, whole = x.shape, type = x.type](const Shades&) -> Shades { return {tape_.make(whole, type)}; });
  return out;
}

Shades ShadowOps::recomputed(const Shades& inputs, ShadowFunction f) {
  Shades kept;
  std::vector<bool> wanted;
  for (const Shade& input : inputs) {
    kept.push_back(input.detached());
    wanted.push_back(input.needs_gradient());
  }
  Shades out = f(kept);
  tape_.record(out, inputs, [this, kept, wanted, f = std::move(f)](const Shades& gradients) -> Shades {
    Shades leaves = kept;
    for (size_t i = 0; i < leaves.size(); ++i)
      if (wanted[i]) leaves[i] = tape_.leaf(kept[i].shape, kept[i].type, kept[i].memory);
    Shades roots, seeds, made;
    for (size_t i = 0; Shade & output : f(leaves)) {
      if (output.needs_gradient() && gradients[i].memory) roots.push_back(output), seeds.push_back(gradients[i]);
      ++i;
    }
    tape_.run_backward(roots, std::move(seeds));
    for (const Shade& leaf : leaves) made.push_back(leaf.needs_gradient() ? leaf.node->gradient : Shade());
    return made;
  });
  return out;
}

Shades ShadowOps::in_slices(const Shades& rows, const Shades& whole, int64_t slice, const ShadowFunction& f) {
  std::vector<Shades> parts;
  int64_t all = rows[0].shape[0];
  for (int64_t lo = 0; lo < all; lo += slice) {
    int64_t count = std::min(slice, all - lo);
    Shades inputs;
    for (const Shade& each : rows)
      inputs.push_back(each.shape.size() == 1 ? narrow(each, {count}) : narrow(each, {count, each.shape[1]}));
    inputs.insert(inputs.end(), whole.begin(), whole.end());
    Shades results = recomputed(inputs, f);
    parts.resize(results.size());
    for (size_t i = 0; i < results.size(); ++i) parts[i].push_back(results[i]);
  }
  Shades out;
  for (const Shades& each : parts) {
    Shape shape = each[0].shape;
    shape[0] = all;
    out.push_back(joined(each, shape));
  }
  return out;
}

}  // namespace sf::plan
