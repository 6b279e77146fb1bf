// SPDX-License-Identifier: Apache-2.0
// Shadows of what stands at a model's ends: look-ups, vocabulary heads with their losses, attention of blocks.
#include <algorithm>
#include <utility>

#include "plan/shadow_ops.h"

namespace sf::plan {
namespace {

constexpr int64_t kLogitBytes = int64_t{64} << 20;  // as ops/head_blocks.cpp
constexpr int64_t kColumns = 2048;
constexpr int64_t kPanel = 16;

int64_t packed(int64_t n, int64_t k, Dtype type) {
  int64_t depth = type == Dtype::kBF16 ? (k + 1) / 2 * 2 : k;
  return (n + kPanel - 1) / kPanel * kPanel * depth;
}

}  // namespace

Shade ShadowOps::embedding(const Shade& table, Shape ids) {
  ids.push_back(table.shape[1]);
  Shades out{tape_.make(std::move(ids), table.type)};
  tape_.record(out, {table}, [this, whole = table.shape, type = table.type](const Shades& gradients) -> Shades {
    Shade g = dense(gradients[0]);
    return {tape_.make(whole, type)};
  });
  return out[0];
}

Shades ShadowOps::head_state(const Shade& x) {
  const int64_t n = x.shape[0], width = x.shape[1];
  return {dense(x).detached(), tape_.make({n, 4}, Dtype::kI32), tape_.make({n, width}, Dtype::kF32),
          tape_.make({n, width}, x.type)};
}

Shade ShadowOps::head_loss(const Shades& state, int64_t vocab, int64_t chunk) {
  const Shade& x = state[0];
  const int64_t n = x.shape[0], rows = std::min(chunk, vocab), width = x.shape[1];
  {
    Shade logits = tape_.make({n, rows}, Dtype::kF32);
    { Shade panels = tape_.make({packed(rows, width, x.type)}, x.type); }
    if (x.type != Dtype::kF32) logits = tape_.make({n, rows}, x.type);
    Shade part = tape_.make({n, width}, Dtype::kF32), panels = tape_.make({packed(width, rows, x.type)}, x.type);
  }
  Shade top1 = tape_.make({n}, Dtype::kI64);
  return tape_.make({n}, Dtype::kF32);
}

Shade ShadowOps::head_gradient(const Shades& state) {
  const Shade sum = tape_.make(state[0].shape, Dtype::kF32);
  { const Shade of_labels = tape_.make(state[0].shape, Dtype::kF32); }
  return state[0].type == Dtype::kF32 ? sum : tape_.make(state[0].shape, state[0].type);
}

Shade ShadowOps::vocabulary_head(const Shade& x, int64_t vocab, int64_t chunk) {
  const Shades state = head_state(x);
  Shades out{head_loss(state, vocab, chunk)};
  tape_.record(out, {x}, [this, state](const Shades&) -> Shades { return {head_gradient(state)}; });
  return out[0];
}

int64_t ShadowOps::head_block(int64_t rows, int64_t vocab) {
  return std::min(std::clamp<int64_t>(kLogitBytes / (4 * vocab) / 2 * 2, 16, std::max<int64_t>(rows, 16)), rows);
}

// ops/head_blocks.h; `judge` is what looks at a block's logits.
Shades ShadowOps::head_by_blocks(const std::vector<std::pair<Shade, Shade>>& parts,
                                 const std::function<void()>& judge) {
  const int64_t n = parts[0].first.shape[0], vocab = parts[0].second.shape[0], some = head_block(n, vocab);
  const Dtype type = parts[0].first.type;
  const bool narrow = type != Dtype::kF32, many = n > some;
  Shades gradients, work;
  for (const auto& [x, table] : parts) {
    gradients.push_back(x.needs_gradient() ? tape_.make(x.shape, type) : Shade{});
    gradients.push_back(table.needs_gradient() ? tape_.make(table.shape, type) : Shade{});
  }
  work.push_back(tape_.make({some, vocab}, Dtype::kF32));
  int64_t panels = 0;
  for (const auto& [x, table] : parts) {
    const int64_t width = x.shape[1];
    panels = std::max({panels, packed(kColumns, width, type), packed(width, kColumns, type)});
    if (x.needs_gradient() || table.needs_gradient()) work.push_back(tape_.make({n, width}, Dtype::kF32));
    if (table.needs_gradient() && narrow && many) work.push_back(tape_.make(table.shape, Dtype::kF32));
  }
  work.push_back(tape_.make({panels}, type));
  judge();
  for (const auto& [x, table] : parts) {
    const int64_t width = x.shape[1];
    if (x.needs_gradient()) work.push_back(tape_.make({some, width}, Dtype::kF32));
    if (table.needs_gradient()) work.push_back(tape_.make({packed(width, some, type)}, type));
  }
  if (many) judge();
  return gradients;
}

Shade ShadowOps::linear_soft_cross_entropy(const Shade& x, const Shade& table, int64_t teacher_width,
                                           int64_t teachers) {
  int64_t n = x.shape[0], vocab = table.shape[0];
  Dtype type = x.type;
  // Rows in their teachers' order, and what is found of each.
  Shade from = tape_.make({n}, Dtype::kI64), of = tape_.make({n}, Dtype::kI64), weights = tape_.make({n}, Dtype::kF32);
  Shade ordered = tape_.make(x.shape, type);
  ordered.node = x.node;
  Shades gradients = head_by_blocks({{ordered, table}}, [&] {
    Shade states = tape_.make({teachers, teacher_width}, type),
          panels = tape_.make({packed(kColumns, teacher_width, type)}, type);
    Shade logits = tape_.make({teachers, vocab}, Dtype::kF32);
  });
  ordered = {};
  if (gradients[0].memory) gradients[0] = tape_.make(x.shape, type);
  Shade nll = tape_.make({n}, Dtype::kF32), argmax = tape_.make({n}, Dtype::kI64),
        accepted = tape_.make({n}, Dtype::kF32);
  Shades out{tape_.make({}, Dtype::kF32)};
  tape_.record(out, {x, table}, [gradients](const Shades&) { return gradients; });
  return out[0];
}

Shade ShadowOps::linear_distance(const std::vector<std::pair<Shade, Shade>>& parts, bool teacher) {
  const auto& [x, table] = parts[0];
  const int64_t n = x.shape[0], vocab = table.shape[0];
  Shades gradients = head_by_blocks(parts, [&] {
    if (!teacher) return;
    Shade panels = tape_.make({packed(kColumns, x.shape[1], x.type)}, x.type);
    Shade logits = tape_.make({head_block(n, vocab), vocab}, Dtype::kF32);
  });
  Shades told, inputs;
  for (int i = 0; i < 4; ++i) told.push_back(tape_.make({n}, Dtype::kF32));
  for (int i = 0; i < 2; ++i) told.push_back(tape_.make({n}, Dtype::kI64));
  for (const auto& [rows, head] : parts) inputs.insert(inputs.end(), {rows, head});
  Shades out{tape_.make({}, Dtype::kF32)};
  tape_.record(out, inputs, [gradients](const Shades&) { return gradients; });
  return out[0];
}

Shade ShadowOps::linear_cross_entropy(const Shade& x, const Shade& table) {
  int64_t n = x.shape[0];
  Shades gradients = head_by_blocks({{x, table}}, [] {});
  Shade nll = tape_.make({n}, Dtype::kF32), argmax = tape_.make({n}, Dtype::kI64);
  Shades out{tape_.make({}, Dtype::kF32)};
  tape_.record(out, {x, table}, [gradients](const Shades&) { return gradients; });
  return out[0];
}

// LibTorch's soft-max and minimum: each keeps what it gave or was given, the minimum's gradient asks twice who is less.
Shade ShadowOps::acceptance(const Shade& logits, const Shade& teacher) {
  Shape all = logits.shape, rows{logits.shape[0]};
  auto wide = [this](const Shade& x) {
    return x.type == Dtype::kF32 ? x.detached() : tape_.make(x.shape, Dtype::kF32);
  };
  Shade draft, target;
  {
    Shade z = wide(logits);
    draft = tape_.make(all, Dtype::kF32);
  }
  {
    Shade t = wide(teacher), above = tape_.make(all, Dtype::kF32), clamped = tape_.make(all, Dtype::kF32);
    target = tape_.make(all, Dtype::kF32);
  }
  { Shade least = tape_.make(all, Dtype::kF32); }
  Shades out{tape_.make(rows, Dtype::kF32)};
  tape_.record(out, {logits}, [this, draft, target, all, type = logits.type](const Shades&) mutable -> Shades {
    Shade shared;
    {
      Shade equal = tape_.make(all, Dtype::kBool), half = tape_.make(all, Dtype::kF32);
      shared = tape_.make(all, Dtype::kF32);
      Shade above = tape_.make(all, Dtype::kBool);
    }
    target = {};
    Shade z = tape_.make(all, Dtype::kF32);
    draft = {}, shared = {};
    return {type == Dtype::kF32 ? z : tape_.make(all, type)};
  });
  return out[0];
}

// [kv, N K, hd] -> [K, 1, kv, N K, hd]. Its gradient is summed over the slots of a block.
Shade ShadowOps::seen_in_block(const Shade& x, int64_t blocks) {
  int64_t block = x.shape[1] / blocks;
  Shades out{tape_.make({block, 1, x.shape[0], x.shape[1], x.shape[2]}, x.type)};
  tape_.record(out, {x},
               [this, back = x.shape, type = x.type](const Shades&) -> Shades { return {tape_.make(back, type)}; });
  return out[0];
}

Shade ShadowOps::attention_of_blocks(const Shade& q, const Shade& k_before, const Shade& v_before, const Shade& k,
                                     const Shade& v, int64_t blocks) {
  auto batched = [](const Shade& x) { return x.as({1, x.shape[0], x.shape[1], x.shape[2]}); };
  Shade v_stack = seen_in_block(v, blocks), k_stack = seen_in_block(k, blocks);
  return attend({batched(q), batched(k_before), batched(v_before), k_stack, v_stack});
}

// [heads, N K, hd] -> K times [heads, N, hd], views; their gradients are joined again.
Shades ShadowOps::by_offset(const Shade& x, int64_t block) {
  Shades out;
  for (int64_t o = 0; o < block; ++o) {
    out.push_back(x.as({1, x.shape[0], x.shape[1] / block, x.shape[2]}).detached());
    out.back().dense = false;
  }
  tape_.record(out, {x},
               [this, whole = x.shape, type = x.type](const Shades&) -> Shades { return {tape_.make(whole, type)}; });
  return out;
}

Shade ShadowOps::windowed_blocks(const Shade& q, const Shade& k_before, const Shade& v_before, const Shade& k,
                                 const Shade& v, int64_t blocks) {
  auto batched = [](const Shade& x) { return x.as({1, x.shape[0], x.shape[1], x.shape[2]}); };
  int64_t block = q.shape[1] / blocks;
  Shades queries = by_offset(q, block), keys = by_offset(k, block), values = by_offset(v, block), seen;
  for (int64_t o = 0; o < block; ++o) {
    Shades inputs{queries[static_cast<size_t>(o)], batched(k_before), batched(v_before)};
    for (const Shades* side : {&keys, &values}) inputs.push_back(stacked({side->begin(), side->begin() + o + 1}));
    seen.push_back(attend(inputs));
  }
  Shade whole = joined(seen, q.shape);
  whole.dense = false;  // head by head: what merges them copies
  return whole;
}

Shade ShadowOps::transposed(const Shade& x) {
  Shades out{x.detached()};
  tape_.record(out, {x}, [back = x.shape](const Shades& gradients) -> Shades {
    Shade g = gradients[0].as(back);
    g.dense = false;
    return {g};
  });
  return out[0];
}

Shade ShadowOps::narrow(const Shade& x, Shape part) {
  Shades out{x.as(std::move(part)).detached()};
  tape_.record(out, {x},
               [this, whole = x.shape, type = x.type](const Shades&) -> Shades { return {tape_.make(whole, type)}; });
  return out[0];
}

Shade ShadowOps::reshape(const Shade& x, Shape other) {
  Shades out{dense(x).as(std::move(other)).detached()};
  tape_.record(out, {x},
               [this, back = x.shape](const Shades& gradients) -> Shades { return {dense(gradients[0]).as(back)}; });
  return out[0];
}

}  // namespace sf::plan
