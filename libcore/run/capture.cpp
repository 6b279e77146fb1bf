// SPDX-License-Identifier: Apache-2.0
#include "run/capture.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/fault.h"
#include "ops/float8.h"
#include "stream/features.h"
#include "tensor/convert.h"

namespace sf::run {
namespace {

// One state that is not finite would spoil every step that sees it; one of zeros teaches nothing, and nobody sees it.
Carried checked(const at::Tensor& states, std::string_view feature, bool may_be_zero, const text::ChatRow& chat) {
  SF_CHECK(at::isfinite(states).all().item<bool>(), Exit::kData,
           "row {} (id {}): the target's states are not finite: its weights are broken", chat.row, chat.id);
  Carried carried = carry(states, feature);
  SF_CHECK(at::isfinite(carried.values).all().item<bool>(), Exit::kData,
           "row {} (id {}): the target's states are not finite in {}, which is too narrow", chat.row, chat.id, feature);
  SF_CHECK(may_be_zero || states.ne(0).any(1).all().item<bool>(), Exit::kData,
           "row {} (id {}): the state of a token is zero throughout: the target's weights are broken", chat.row,
           chat.id);
  return carried;
}

}  // namespace

at::Tensor values_of(const at::Tensor& stored, const at::Tensor& scale) {
  if (!scale.defined()) return stored;
  return stored.contiguous().view(at::kFloat8_e4m3fn).to(at::kFloat).mul_(scale.unsqueeze(1));
}

Carried carry(const at::Tensor& states, std::string_view feature) {
  if (feature != stream::kFloat8) {
    at::Tensor rounded = states.to(tensor::to_scalar(*dtype_from_name(feature)));
    return {rounded, {}, rounded};
  }
  const at::Tensor wide = states.to(at::kFloat).contiguous();
  Carried carried{at::empty(wide.sizes(), at::kByte), at::empty({wide.size(0)}, at::kFloat), {}};
  const auto width = static_cast<size_t>(wide.size(1));
  for (int64_t t = 0; t < wide.size(0); ++t) {
    const size_t begin = static_cast<size_t>(t) * width;
    carried.scale.mutable_data_ptr<float>()[t] = ops::to_e4m3(
        {wide.const_data_ptr<float>() + begin, width}, {carried.stored.mutable_data_ptr<uint8_t>() + begin, width});
  }
  carried.values = values_of(carried.stored, carried.scale);
  return carried;
}

gen::Seen seen_by_teacher(const tool::CaptureWish& wish, const std::string& feature, Dtype compute) {
  if (!wish.teacher) return {};
  return [feature, compute](const at::Tensor& final_norm) {
    SF_CHECK(at::isfinite(final_norm).all().item<bool>(), Exit::kData,
             "the target's states are not finite: its weights are broken");
    return carry(final_norm, feature).values.to(tensor::to_scalar(compute));
  };
}

// Where a switch asks for it, a fault that captures have had: check_capture must find each.
std::vector<Computed> Capture::compute(std::span<const text::ChatRow* const> rows) {
  std::vector<int64_t> layers = wish_.layers;
  if (fault("run.layer_before"))
    for (int64_t& layer : layers) layer = std::max<int64_t>(layer - 1, 0);
  const bool bare = fault("run.no_final_norm"), cached = fault("run.cached_prefix");
  if (bare) layers.push_back(states_.decoder().layers);
  std::vector<text::ChatRow> cut;  // of the fault: the first token is not computed
  std::vector<const text::ChatRow*> asked(rows.begin(), rows.end());
  if (cached) {
    for (const text::ChatRow* row : rows) cut.push_back(*row);
    for (size_t i = 0; i < cut.size(); ++i) {
      std::vector<int32_t>& ids = cut[i].encoded.ids;
      if (ids.size() > 1) ids.erase(ids.begin());
      asked[i] = &cut[i];
    }
  }
  std::vector<Computed> all = states_.of(asked, layers);
  for (Computed& one : all) {
    gen::States& states = one.states;
    if (bare) states.final_norm = states.captured.back(), states.captured.pop_back();
    auto each = [&](auto&& change) {
      change(states.final_norm);
      for (at::Tensor& state : states.captured) change(state);
    };
    if (cached) each([](at::Tensor& state) { state = at::cat({state.narrow(0, 0, 1), state}, 0); });
    if (fault("run.shifted")) each([](at::Tensor& state) { state = state.roll(1, 0); });
    if (fault("run.zero_states")) each([](at::Tensor& state) { state.zero_(); });
    if (fault("run.other_rows")) {
      std::swap(states, before_);
      if (!states.final_norm.defined()) states = before_;
    }
  }
  return all;
}

stream::Sample Capture::sample_of(const text::ChatRow& chat, const Computed& computed) const {
  stream::Sample sample{.row = chat.row};
  if (!chat.rejected.empty()) {
    sample.void_reason = chat.rejected;
    return sample;
  }
  const auto length = std::ssize(chat.encoded.ids);
  const gen::States& states = computed.states;
  auto add = [&](std::string name, HostTensor tensor) {
    sample.tensors.push_back({std::move(name), std::move(tensor)});
  };
  HostTensor ids(Dtype::kI32, {length}), mask(Dtype::kU8, {length});
  std::copy(chat.encoded.ids.begin(), chat.encoded.ids.end(), ids.as<int32_t>().begin());
  std::copy(chat.encoded.loss_mask.begin(), chat.encoded.loss_mask.end(), mask.as<uint8_t>().begin());
  add("input_ids", std::move(ids));
  add("loss_mask", std::move(mask));
  auto add_states = [&](const std::string& name, const std::vector<Carried>& parts) {
    std::vector<at::Tensor> stored, scales;
    for (const Carried& part : parts) stored.push_back(part.stored), scales.push_back(part.scale);
    add(name, tensor::to_host(at::cat(stored, 1)));
    if (scales[0].defined()) add(name + std::string(stream::kScaleSuffix), tensor::to_host(at::stack(scales, 1)));
  };
  std::vector<Carried> layers;
  for (size_t i = 0; i < states.captured.size(); ++i)
    layers.push_back(checked(states.captured[i], feature_, wish_.layers[i] == 0, chat));
  add_states(wish_.teacher ? "hidden_state" : "hidden_states", layers);
  if (wish_.final_norm) add_states("final_norm", {checked(states.final_norm, feature_, false, chat)});
  if (wish_.teacher) {
    add("target_top1", tensor::to_host(computed.teacher.top1));
    add("target_lse", tensor::to_host(computed.teacher.lse));
  }
  return sample;
}

}  // namespace sf::run
