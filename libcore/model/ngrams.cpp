// SPDX-License-Identifier: Apache-2.0
#include "model/ngrams.h"

#include <ATen/ops/clamp_min.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sqrt.h>

#include <cmath>
#include <string>

#include "base/error.h"
#include "ops/delta_rule.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

constexpr double kLeastScore = 1e-6;

int64_t modulo(int64_t value, int64_t by) {
  const int64_t rest = value % by;
  return rest < 0 ? rest + by : rest;
}

// Products and sums of the hash wrap around.
int64_t times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// Rows of one token; own[j]: the token j places before it, within its segment.
void find(const arch::Ngrams& g, const arch::NgramHash& hash, std::span<const int64_t> own, int64_t* rows) {
  int64_t mixed = times(own[0], hash.multipliers[0]);
  size_t head = 0;
  for (size_t j = 1; j < own.size(); ++j) {
    mixed ^= times(own[j], hash.multipliers[j]);
    for (int64_t h = 0; h < g.heads; ++h, ++head) rows[head] = modulo(mixed, hash.sizes[head]) + hash.offsets[head];
  }
}

at::Tensor rows_of_batch(const arch::Ngrams& g, const arch::NgramHash& hash, const at::Tensor& ids,
                         const at::Tensor* mask) {
  at::Tensor tokens = tensor::on_host(ids).to(at::kLong).contiguous();
  if (mask) tokens = tokens.masked_fill(tensor::on_host(*mask).eq(0), g.end);
  at::Tensor out = at::empty({tokens.numel() * g.all_heads()}, at::kLong);
  const auto length = static_cast<size_t>(tokens.size(1));
  for (int64_t b = 0; b < tokens.size(0); ++b) {
    const std::vector<int64_t> rows =
        ngram_rows(g, hash, {}, {tokens.const_data_ptr<int64_t>() + b * tokens.size(1), length});
    std::copy(rows.begin(), rows.end(), out.mutable_data_ptr<int64_t>() + b * std::ssize(rows));
  }
  return out;
}

class NgramPart {
 public:
  NgramPart(const arch::Decoder& decoder, int64_t layer) : d_(decoder), rows_("ngram_rows." + std::to_string(layer)) {}

  at::Tensor operator()(const Given& given, const at::Tensor& residual) const {
    const at::Tensor found =
        given.boundary(rows_).reshape({residual.size(0), residual.size(1), d_.ngrams.width}).to(residual.scalar_type());
    const at::Tensor key = streams(given, given.project(found, "ple.key_proj"), "ple.norm_key");
    const at::Tensor query = streams(given, residual, "ple.norm_query");
    const at::Tensor score = key.mul(query).sum(-1, true).div(std::sqrt(static_cast<double>(d_.hidden)));
    const at::Tensor root = at::sqrt(at::clamp_min(score.abs(), kLeastScore)).mul(at::sign(score));
    const at::Tensor value = given.project(found, "ple.value_proj").unsqueeze(-2);
    const at::Tensor gated = at::sigmoid(root).mul(value).flatten(-2);
    const at::Tensor normed = norm(d_, gated, given.weight("ple.norm_conv"), d_.wide.streams);
    const at::Tensor taps = given.weight("ple.conv1d").squeeze(1);
    return gated.add(ops::conv_silu(given.without_padding(normed), taps, d_.ngrams.longest));
  }

 private:
  // Normed, [B, S, streams, H].
  at::Tensor streams(const Given& given, const at::Tensor& x, std::string_view module) const {
    return norm(d_, x, given.weight(module), d_.wide.streams).unflatten(-1, {d_.wide.streams, d_.hidden});
  }

  arch::Decoder d_;
  std::string rows_;
};

}  // namespace

std::vector<int64_t> ngram_rows(const arch::Ngrams& g, const arch::NgramHash& hash, std::span<const int64_t> before,
                                std::span<const int64_t> ids) {
  const auto longest = static_cast<size_t>(g.longest), heads = static_cast<size_t>(g.all_heads());
  SF_ASSERT(hash.multipliers.size() == longest && hash.sizes.size() == heads && hash.offsets.size() == heads);
  std::vector<int64_t> all(before.begin(), before.end()), rows(ids.size() * heads), own(longest);
  all.insert(all.end(), ids.begin(), ids.end());
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t place = before.size() + i;
    bool inside = true;
    own[0] = all[place];
    for (size_t j = 1; j < longest; ++j) {
      inside = inside && j <= place && all[place - j] != g.end;
      own[j] = inside ? all[place - j] : g.end;
    }
    find(g, hash, own, rows.data() + i * heads);
  }
  return rows;
}

Segment ngrams_segment(const arch::Decoder& decoder, const arch::Segment& described) {
  Segment segment{described.name, described.parameters, described.reads, described.writes, {}};
  segment.forward = [g = decoder.ngrams, names = described.writes](const Tensors&, const Tensors& in) {
    auto mask = in.find("attention_mask");
    Tensors out;
    for (size_t i = 0; i < names.size(); ++i)
      out[names[i]] = rows_of_batch(g, g.hashes[i], need(in, "ids"), mask == in.end() ? nullptr : &mask->second);
    return out;
  };
  return segment;
}

Segment ngram_table_segment(const arch::Segment& described) {
  Segment segment{described.name, described.parameters, described.reads, described.writes, {}};
  segment.table = TableCall{TableCall::Kind::kLookUp};
  segment.forward = [described](const Tensors& parameters, const Tensors& in) -> Tensors {
    const at::Tensor& table = need(parameters, described.parameters.front());
    return {{described.writes.front(), at::embedding(table, need(in, described.reads.front()))}};
  };
  return segment;
}

Part ngram_part(const arch::Decoder& decoder, int64_t layer) {
  return NgramPart(decoder, layer);
}

}  // namespace sf::model
