// SPDX-License-Identifier: Apache-2.0
// From the gradients of one segment to the window's: packed rank-major, folded in global order.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "engine/state.h"
#include "ops/optimizer_kernels.h"

namespace sf::engine {
namespace {

constexpr size_t kPiece = size_t{1} << 14;  // elements

}  // namespace

void Engine::State::fold(size_t g, std::optional<std::vector<at::Tensor>> gradients) {
  bool present = gradients.has_value();
  wait(folds_[0]);
  slots.packed(g);
  if (present) pack(g, std::move(*gradients));
  has_sums_ |= present;
  if (!plan.folds_each_round()) return;
  folds_[0] = folds_[1];
  folds_[1] =
      post("fold " + plan.groups[g].name, [this, g, present](const comm::Call& call) { reduce(g, present, call); });
}

void Engine::State::reduce(size_t g, bool present, const comm::Call& call) {
  std::span<float> packed = store.pack(g);
  group.reduce_fold(present ? packed : packed.first(0), present, plan.groups[g].fold_offsets, store.accumulators(g),
                    call);
}

// Rank-major: what each rank owns lies together. A gradient is freed as soon as it is packed.
void Engine::State::pack(size_t g, std::vector<at::Tensor> gradients) {
  const std::vector<size_t>& parameters = store.trainable_members(g);
  std::span<float> packed = store.pack(g);
  std::vector<size_t> at(plan.groups[g].fold_offsets.begin(), plan.groups[g].fold_offsets.end() - 1);
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor gradient = gradients[i].defined() ? gradients[i].contiguous() : at::Tensor{};
    gradients[i].reset();
    if (gradient.defined()) ++uses_[parameters[i]];
    const auto& owned = plan.parameters[parameters[i]].owned;
    for (size_t r = 0; r < owned.size(); ++r) {
      auto size = static_cast<size_t>(owned[r].size());
      pack_part(parameters[i], gradient, owned[r].lo, packed.subspan(at[r], size));
      at[r] += size;
    }
  }
}

// In pieces that stay in the cache between being read and being checked. Sums (of the window, where nothing is folded
// each round) are added to, other packed gradients are written.
void Engine::State::pack_part(size_t parameter, const at::Tensor& gradient, int64_t from, std::span<float> to) {
  bool adds = !plan.folds_each_round();
  if (!gradient.defined()) {
    if (!adds && !to.empty()) std::memset(to.data(), 0, to.size_bytes());
    return;
  }
  bool finite = true;
  for (size_t at = 0; at < to.size(); at += kPiece) {
    std::span<float> piece = to.subspan(at, std::min(kPiece, to.size() - at));
    auto begin = static_cast<size_t>(from) + at;
    if (gradient.scalar_type() == at::kBFloat16) {
      std::span source(static_cast<const uint16_t*>(gradient.const_data_ptr()) + begin, piece.size());
      adds ? ops::fold_add_bf16(piece, source) : ops::from_bf16(source, piece);
      finite = finite && !ops::first_non_finite(piece);
      continue;
    }
    std::span source(gradient.const_data_ptr<float>() + begin, piece.size());
    adds ? ops::fold_add(piece, source) : void(std::memcpy(piece.data(), source.data(), source.size_bytes()));
    finite = finite && !ops::first_non_finite(source);
  }
  if (!finite) note_non_finite(parameter);
}

void Engine::State::note_non_finite(size_t parameter) {
  Culprit now{round_ * group.world() + group.rank(), static_cast<int64_t>(parameter), group.rank()};
  culprit_ = std::min(culprit_, now);
}

}  // namespace sf::engine
