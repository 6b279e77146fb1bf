// SPDX-License-Identifier: Apache-2.0
#include "run/import_features.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "tensor/convert.h"

namespace sf::run {
namespace {

// Another engine's kernels and BF16 leave about a hundredth; a layer beside the right one is off by far more.
constexpr double kFar = 0.25;

// |a - b| / |b| over all values.
double distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return x.sub(y).norm().item<double>() / y.norm().item<double>();
}

}  // namespace

gen::States imported_states(const tool::OfflineFeatures& features, const tool::CaptureWish& wish,
                            const text::ChatRow& row) {
  const tool::OfflineFeatures::States found = features.states_of(row);
  const at::Tensor all = tensor::share(found.captured);
  const int64_t layers = std::ssize(wish.layers), hidden = all.size(1) / layers;
  gen::States states;
  for (int64_t i = 0; i < layers; ++i) states.captured.push_back(all.narrow(1, i * hidden, hidden));
  if (wish.final_norm) states.final_norm = tensor::share(found.final_norm);
  return states;
}

std::string check_import(const tool::OfflineFeatures& features, gen::Target& target, const tool::CaptureWish& wish,
                         int64_t most) {
  int64_t rows = 0;
  double widest = 0;
  for (const text::ChatRow& row : features.rows()) {
    if (!row.rejected.empty() || rows == most) continue;
    ++rows;
    std::vector<int64_t> all(static_cast<size_t>(target.decoder().layers) + 1);
    std::iota(all.begin(), all.end(), 0);
    gen::Cache cache = target.make_cache(std::ssize(row.encoded.ids));
    gen::States plain = target.prefill(cache, row.encoded.ids, all), found = imported_states(features, wish, row);
    std::vector<at::Tensor> candidates = plain.captured;
    candidates.push_back(plain.final_norm);
    auto name = [&](size_t i) { return i < all.size() ? fmt::format("layer {}", i) : std::string("final_norm"); };
    auto judge = [&](const at::Tensor& states, size_t wanted) {
      std::vector<double> far;
      for (const at::Tensor& candidate : candidates) far.push_back(distance(states, candidate));
      const auto nearest = static_cast<size_t>(std::min_element(far.begin(), far.end()) - far.begin());
      SF_CHECK(
          far[wanted] <= kFar && far[wanted] <= far[nearest] * 1.0001, Exit::kData,
          "{}: the states that should be {} are nearest to {} (off by {:.3g} of its norm, from {} by {:.3g}): they "
          "were captured at other layers, or from another target",
          row.id, name(wanted), name(nearest), far[nearest], name(wanted), far[wanted]);
      widest = std::max(widest, far[wanted]);
    };
    for (size_t i = 0; i < wish.layers.size(); ++i) judge(found.captured[i], static_cast<size_t>(wish.layers[i]));
    if (wish.final_norm) judge(found.final_norm, all.size());
  }
  return fmt::format(
      "import: {} rows compared with plain forwards; each state is nearest to the layer it should be, off by at most "
      "{:.2g} of its norm",
      rows, widest);
}

}  // namespace sf::run
