// SPDX-License-Identifier: Apache-2.0
#include "model/labelled.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/block_parts.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

// Places of [B * S] that have a label, ascending.
at::Tensor places_of(const at::Tensor& labels) {
  const int64_t* label = labels.const_data_ptr<int64_t>();
  std::vector<int64_t> places;
  for (int64_t i = 0; i < labels.numel(); ++i)
    if (label[i] >= 0) places.push_back(i);
  SF_CHECK(!places.empty(), Exit::kSoftware, "a micro-batch without a label reached the head");
  at::Tensor index = at::empty({std::ssize(places)}, at::kLong);
  std::copy(places.begin(), places.end(), index.mutable_data_ptr<int64_t>());
  return index;
}

}  // namespace

Labelled labelled_states(const arch::Decoder& decoder, const Tensors& parameters, const Tensors& in) {
  at::Tensor labels = in.at("labels").to(at::kLong).contiguous();
  at::Tensor places = places_of(labels);
  const at::Tensor& hidden = in.at("hidden." + std::to_string(decoder.layers));
  at::Tensor flat = hidden.view({-1, hidden.size(-1)});
  if (places.size(0) != flat.size(0)) flat = tensor::select(flat, 0, places);
  return {final_state(decoder, parameters, flat), labels.view({-1}).index_select(0, places), places};
}

}  // namespace sf::model
