// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "ops/checks.h"
#include "ops/kernels.h"
#include "ops/parallel.h"
#include "ops/plain.h"
#include "sf_kernels/attention.h"
#include "tensor/device.h"

namespace sf::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

size_t at_dim(const at::Tensor& t, int64_t dim) {
  return static_cast<size_t>(t.size(dim));
}
size_t step(const at::Tensor& t, int64_t dim) {
  return static_cast<size_t>(t.stride(dim));
}

template <typename T>
kernels::Heads<T> heads(const at::Tensor& t) {
  return {static_cast<T*>(const_cast<void*>(t.const_data_ptr())), step(t, 0), step(t, 1), step(t, 2)};
}

// fp32, dims contiguous and filled up with zeros to a multiple of 16: zeros add nothing to a product.
at::Tensor prepared(const at::Tensor& t) {
  at::Tensor out = t.to(at::kFloat);
  const int64_t missing = (16 - t.size(-1) % 16) % 16;
  if (missing > 0) out = at::constant_pad_nd(out, {0, missing});
  return out.stride(-1) == 1 ? out : out.contiguous();
}

// I64 [2, B, S]: first and one past the last visible key of every query.
at::Tensor key_ranges(int64_t batch, int64_t length, const AttentionOptions& options) {
  const at::Tensor ranges = at::empty({2, batch, length}, at::kLong);
  int64_t* low = ranges.mutable_data_ptr<int64_t>();
  int64_t* high = low + batch * length;
  at::Tensor begin, end;
  if (options.key_begin.defined()) begin = tensor::on_host(options.key_begin).to(at::kLong).contiguous();
  if (options.key_end.defined()) end = tensor::on_host(options.key_end).to(at::kLong).contiguous();
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t first = begin.defined() ? std::clamp<int64_t>(begin.const_data_ptr<int64_t>()[b], 0, length) : 0;
    const int64_t stop = end.defined() ? std::clamp<int64_t>(end.const_data_ptr<int64_t>()[b], 0, length) : length;
    for (int64_t i = 0; i < length; ++i) {
      const int64_t window = options.window > 0 ? std::max<int64_t>(0, i - options.window + 1) : 0;
      low[b * length + i] = std::max(first, window);
      high[b * length + i] = std::max(low[b * length + i], std::min(i + 1, stop));
    }
  }
  return ranges;
}

// The kernel's description, and the arrays of pointers it points to.
struct Call {
  kernels::Attention op;
  std::vector<const float*> k, v;
};

// One pointer for each of the stacked blocks [n, B, nKV, S, hd].
template <typename T>
std::vector<T*> blocks(const at::Tensor& stacked) {
  std::vector<T*> out;
  for (int64_t i = 0; i < stacked.size(0); ++i) {
    out.push_back(static_cast<T*>(const_cast<void*>(stacked.const_data_ptr())) + i * stacked.stride(0));
  }
  return out;
}

// saved: q, k, v and, if there are diagonals, their stacks; all prepared.
void describe(Call& call, const variable_list& saved, const at::Tensor& ranges, double scale) {
  const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
  kernels::Attention& op = call.op;
  op.batch = at_dim(q, 0), op.heads = at_dim(q, 1), op.rows = at_dim(q, 2), op.dims = at_dim(q, 3);
  op.kv_heads = at_dim(k, 1);
  op.scale = static_cast<float>(scale);
  op.q = heads<const float>(q);
  op.k = heads<const void>(k);
  op.v = heads<const void>(v);
  op.low = ranges.const_data_ptr<int64_t>();
  op.high = op.low + op.batch * op.rows;
  if (!saved[3].defined()) return;
  call.k = blocks<const float>(saved[3]), call.v = blocks<const float>(saved[4]);
  op.diagonals = call.k.size();
  op.k_diagonal = call.k.data(), op.v_diagonal = call.v.data();
}

// Back to the caller's dims and type.
at::Tensor restored(const at::Tensor& t, int64_t dims, at::ScalarType type) {
  return t.narrow(-1, 0, dims).to(type);
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_in, const at::Tensor& k_in,
                            const at::Tensor& v_in, const std::optional<at::Tensor>& k_diagonal,
                            const std::optional<at::Tensor>& v_diagonal, const at::Tensor& ranges, double scale) {
    variable_list saved{prepared(q_in), prepared(k_in), prepared(v_in), {}, {}};
    if (k_diagonal) saved[3] = prepared(*k_diagonal).contiguous(), saved[4] = prepared(*v_diagonal).contiguous();
    const at::Tensor q = saved[0];
    Call call;
    describe(call, saved, ranges, scale);
    // Heads of a token side by side: merging them is free.
    const at::Tensor out = at::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, at::kFloat).transpose(1, 2);
    at::Tensor lse = at::empty({q.size(0), q.size(1), q.size(2)}, at::kFloat);
    kernels::attention(call.op, heads<float>(out), lse.mutable_data_ptr<float>(), parallel());
    saved.insert(saved.end(), {ranges, lse, out});
    context->save_for_backward(saved);
    context->saved_data["scale"] = scale;
    context->saved_data["dims"] = q_in.size(3);
    context->saved_data["type"] = static_cast<int64_t>(q_in.scalar_type());
    // A view, so that what is saved above is not the output itself.
    return restored(out, q_in.size(3), q_in.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &ranges = saved[5], &lse = saved[6], &out = saved[7];
    const at::Tensor g = prepared(grads[0]);
    Call call;
    describe(call, saved, ranges, context->saved_data["scale"].toDouble());
    variable_list results;
    for (size_t i = 0; i < 5; ++i) {
      results.push_back(saved[i].defined() ? at::empty(saved[i].sizes(), at::kFloat) : at::Tensor());
    }
    std::vector<float*> dk, dv;
    if (results[3].defined()) dk = blocks<float>(results[3]), dv = blocks<float>(results[4]);
    kernels::AttentionGradient gradient;
    gradient.out = heads<const float>(out), gradient.g = heads<const float>(g);
    gradient.lse = lse.const_data_ptr<float>();
    gradient.keys = at_dim(saved[1], 2);
    gradient.dq = results[0].mutable_data_ptr<float>();
    gradient.dk = results[1].mutable_data_ptr<float>(), gradient.dv = results[2].mutable_data_ptr<float>();
    gradient.dk_diagonal = dk.data(), gradient.dv_diagonal = dv.data();
    kernels::attention_backward(call.op, gradient, parallel());
    const int64_t dims = context->saved_data["dims"].toInt();
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    for (at::Tensor& result : results) {
      if (result.defined()) result = restored(result, dims, type);
    }
    results.resize(7);
    return results;
  }
};

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const std::optional<at::Tensor>& k_diagonal, const std::optional<at::Tensor>& v_diagonal,
                  const at::Tensor& ranges, double scale) {
  if (plain_for(q)) return plain::attention(q, k, v, k_diagonal, v_diagonal, ranges, scale);
  return AttentionFunction::apply(q, k, v, k_diagonal, v_diagonal, ranges, scale);
}

double scale_of(double scale, int64_t dims) {
  return scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(dims));
}

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  SF_ASSERT(q.dim() == 4 && k.dim() == 4 && v.sizes() == k.sizes() && q.size(0) == k.size(0) && q.size(3) == k.size(3));
  SF_ASSERT(q.size(1) % k.size(1) == 0 && q.size(2) == k.size(2) &&
            q.size(3) <= static_cast<int64_t>(kernels::kMostDims));
  SF_ASSERT(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type());
  type_of(q);
}

}  // namespace

at::Tensor attention_with_diagonals(const at::Tensor& q, std::span<const at::Tensor> k, std::span<const at::Tensor> v,
                                    const AttentionOptions& options) {
  SF_ASSERT(!k.empty() && k.size() == v.size() && (options.window == 0 || k.size() == 1));
  for (size_t i = 0; i < k.size(); ++i) check(q, k[i], v[i]);
  std::optional<at::Tensor> k_diagonal, v_diagonal;
  if (k.size() > 1) {
    k_diagonal = at::stack(at::TensorList(k.data() + 1, k.size() - 1));
    v_diagonal = at::stack(at::TensorList(v.data() + 1, v.size() - 1));
  }
  return attend(q, k[0], v[0], k_diagonal, v_diagonal, key_ranges(q.size(0), q.size(2), options),
                scale_of(options.scale, q.size(3)));
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  return attention_with_diagonals(q, {&k, 1}, {&v, 1}, options);
}

at::Tensor attention_of_rows(const at::Tensor& q, const at::Tensor& k_context, const at::Tensor& v_context,
                             std::span<const at::Tensor> k, std::span<const at::Tensor> v, const KeyRanges& ranges) {
  const int64_t rows = q.size(1);
  SF_ASSERT(q.dim() == 3 && k_context.dim() == 3 && k_context.sizes() == v_context.sizes() && k.size() == v.size());
  SF_ASSERT(std::ssize(ranges.begin) == rows && std::ssize(ranges.end) == rows);
  const at::Tensor limits = at::empty({2, 1, rows}, at::kLong);
  for (int64_t r = 0; r < rows; ++r) {
    const auto at = static_cast<size_t>(r);
    SF_ASSERT(ranges.begin[at] >= 0 && ranges.end[at] <= k_context.size(1));
    limits.mutable_data_ptr<int64_t>()[r] = ranges.begin[at];
    limits.mutable_data_ptr<int64_t>()[rows + r] = ranges.end[at];
  }
  std::optional<at::Tensor> k_diagonal, v_diagonal;
  if (!k.empty()) {
    k_diagonal = at::stack(at::TensorList(k.data(), k.size())).unsqueeze(1);
    v_diagonal = at::stack(at::TensorList(v.data(), v.size())).unsqueeze(1);
  }
  return attend(q.unsqueeze(0), k_context.unsqueeze(0), v_context.unsqueeze(0), k_diagonal, v_diagonal, limits,
                scale_of(0, q.size(2)))
      .squeeze(0);
}

namespace {

// [nKV, N * K, hd] -> [K, 1, nKV, N * K, hd]: for every slot, the d-th slot of its block.
at::Tensor seen_in_block(const at::Tensor& slots, int64_t blocks) {
  const int64_t kv_heads = slots.size(0), block = slots.size(1) / blocks, dims = slots.size(2);
  return slots.reshape({kv_heads, blocks, 1, block, dims})
      .expand({kv_heads, blocks, block, block, dims})
      .permute({3, 0, 1, 2, 4})
      .reshape({block, 1, kv_heads, blocks * block, dims});
}

// [heads, N * K, hd] -> K times [heads, N, hd]: the slots of one offset together.
std::vector<at::Tensor> by_offset(const at::Tensor& slots, int64_t blocks) {
  return slots.reshape({slots.size(0), blocks, slots.size(1) / blocks, slots.size(2)}).unbind(2);
}

// Offset by offset: what a slot sees of its block is the diagonals of the offsets up to its own.
at::Tensor windowed_blocks(const at::Tensor& q, const at::Tensor& k_context, const at::Tensor& v_context,
                           const at::Tensor& k, const at::Tensor& v, std::span<const int64_t> anchors, int64_t window) {
  const int64_t blocks = std::ssize(anchors), block = q.size(1) / blocks;
  const std::vector<at::Tensor> queries = by_offset(q, blocks), keys = by_offset(k, blocks),
                                values = by_offset(v, blocks);
  std::vector<at::Tensor> seen;
  for (int64_t o = 0; o < block; ++o) {
    std::vector<int64_t> begin;
    for (const int64_t anchor : anchors) begin.push_back(std::clamp<int64_t>(anchor + o - (window - 1), 0, anchor));
    const size_t own = static_cast<size_t>(o), visible = own + 1;
    seen.push_back(attention_of_rows(queries[own], k_context, v_context, {keys.data(), visible},
                                     {values.data(), visible}, {begin, anchors}));
  }
  return at::stack(seen, 2).reshape(q.sizes());  // [heads, N, K, hd]
}

}  // namespace

at::Tensor attention_of_blocks(const at::Tensor& q, const at::Tensor& k_context, const at::Tensor& v_context,
                               const at::Tensor& k, const at::Tensor& v, std::span<const int64_t> anchors,
                               int64_t window) {
  const int64_t blocks = std::ssize(anchors), rows = q.size(1);
  SF_ASSERT(q.dim() == 3 && k.dim() == 3 && v.sizes() == k.sizes() && k_context.dim() == 3);
  SF_ASSERT(k_context.sizes() == v_context.sizes() && k_context.size(0) == k.size(0) && q.size(0) % k.size(0) == 0);
  SF_ASSERT(blocks > 0 && rows % blocks == 0 && k.size(1) == rows && window >= 0);
  for (const int64_t anchor : anchors) SF_ASSERT(anchor >= 0 && anchor <= k_context.size(1));
  if (window > 0) return windowed_blocks(q, k_context, v_context, k, v, anchors, window);
  const at::Tensor ranges = at::zeros({2, 1, rows}, at::kLong);
  for (int64_t r = 0; r < rows; ++r)
    ranges.mutable_data_ptr<int64_t>()[rows + r] = anchors[static_cast<size_t>(r / (rows / blocks))];
  return attend(q.unsqueeze(0), k_context.unsqueeze(0), v_context.unsqueeze(0), std::optional(seen_in_block(k, blocks)),
                std::optional(seen_in_block(v, blocks)), ranges, scale_of(0, q.size(2)))
      .squeeze(0);
}

at::Tensor attend_cached(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                         std::span<const int64_t> positions, int64_t window, double scale) {
  const int64_t rows = q.size(1), dims = q.size(2);
  SF_ASSERT(q.dim() == 3 && k_cache.dim() == 3 && v_cache.sizes() == k_cache.sizes() && k_cache.size(2) == dims);
  SF_ASSERT(q.size(0) % k_cache.size(0) == 0 && positions.size() == static_cast<size_t>(rows));
  SF_ASSERT(k_cache.scalar_type() == v_cache.scalar_type());
  std::vector<int64_t> ranges(2 * positions.size());
  for (size_t r = 0; r < positions.size(); ++r) {
    SF_ASSERT(positions[r] >= 0 && positions[r] < k_cache.size(1));
    ranges[r] = window > 0 ? std::max<int64_t>(0, positions[r] - window + 1) : 0;
    ranges[positions.size() + r] = positions[r] + 1;
  }
  const bool as_is = dims % 16 == 0 && k_cache.stride(2) == 1 && v_cache.stride(2) == 1;
  const at::Tensor wide = prepared(q.detach()), k = as_is ? k_cache : prepared(k_cache),
                   v = as_is ? v_cache : prepared(v_cache);
  const at::Tensor out = at::empty({rows, wide.size(0), wide.size(2)}, at::kFloat);
  kernels::Attention op;
  op.heads = at_dim(wide, 0), op.kv_heads = at_dim(k, 0), op.rows = static_cast<size_t>(rows),
  op.dims = at_dim(wide, 2);
  SF_ASSERT(op.dims <= kernels::kMostDims);
  op.scale = static_cast<float>(scale_of(scale, dims));
  op.kv_type = type_of(k);
  op.q = {wide.const_data_ptr<float>(), 0, step(wide, 0), step(wide, 1)};
  op.k = {k.const_data_ptr(), 0, step(k, 0), step(k, 1)};
  op.v = {v.const_data_ptr(), 0, step(v, 0), step(v, 1)};
  op.low = ranges.data(), op.high = ranges.data() + rows;
  kernels::attention(op, {out.mutable_data_ptr<float>(), 0, step(out, 1), step(out, 0)}, nullptr, parallel());
  return out.narrow(2, 0, dims).reshape({rows, q.size(0) * dims}).to(q.scalar_type());
}

}  // namespace sf::ops
