// SPDX-License-Identifier: Apache-2.0
#include "data/collate.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "stream/features.h"
#include "tensor/convert.h"

namespace sf::data {
namespace {

struct Field {
  const char* name;
  std::vector<Dtype> types;
  int64_t width;     // 0: one number an index
  bool ids = false;  // token ids: checked against the vocabulary
};

// What every kind of batch is made from.
struct Layout {
  std::vector<Field> fields;
  int64_t vocab = 0, max_length = 0;
  Dtype compute = Dtype::kF32;
};

const std::vector<Dtype> kFeatures{Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kU8};  // U8: float8_e4m3fn

Layout layout_of(const Eagle3Shape& shape) {
  return {{{"input_ids", {Dtype::kI32}, 0, true},
           {"loss_mask", {Dtype::kU8}, 0},
           {"target_top1", {Dtype::kI32}, 0, true},
           {"target_lse", {Dtype::kF32}, 0},
           {"hidden_state", kFeatures, 3 * shape.target_hidden},
           {"final_norm", kFeatures, shape.target_hidden}},
          shape.vocab,
          shape.max_length,
          shape.compute};
}

Layout layout_of(const DflashShape& shape) {
  Layout layout{{{"input_ids", {Dtype::kI32}, 0, true},
                 {"loss_mask", {Dtype::kU8}, 0},
                 {"hidden_states", kFeatures, shape.captured}},
                shape.vocab,
                shape.max_length,
                shape.compute};
  if (shape.final_norm) layout.fields.push_back({"final_norm", kFeatures, shape.hidden});
  return layout;
}

const HostTensor& checked(const stream::Sample& sample, const Field& field, int64_t length) {
  const HostTensor& tensor = sample.at(field.name);
  Shape wanted{length};
  if (field.width > 0) wanted.push_back(field.width);
  SF_CHECK(tensor.shape() == wanted, Exit::kData, "position {}: {} has shape {}, wanted {}", sample.position,
           field.name, to_string(tensor.shape()), to_string(wanted));
  SF_CHECK(std::find(field.types.begin(), field.types.end(), tensor.dtype()) != field.types.end(), Exit::kData,
           "position {}: {} is {}, wanted {}", sample.position, field.name, name_of(tensor.dtype()),
           name_of(field.types.front()));
  return tensor;
}

// The values of a field: those of float8 times the scale of their token and layer.
at::Tensor values_of(const stream::Sample& sample, const Field& field, int64_t length) {
  at::Tensor values = tensor::share(checked(sample, field, length));
  if (field.width == 0 || values.scalar_type() != at::kByte) return values;
  const std::string name = field.name + std::string(stream::kScaleSuffix);
  const HostTensor& scale = sample.at(name);
  const bool fits = scale.dtype() == Dtype::kF32 && scale.shape().size() == 2 && scale.shape()[0] == length &&
                    scale.shape()[1] > 0 && field.width % scale.shape()[1] == 0;
  SF_CHECK(fits, Exit::kData,
           "position {}: {} is {} {}, wanted F32 with {} tokens and a layer's scale for each part of {}",
           sample.position, name, name_of(scale.dtype()), to_string(scale.shape()), length, field.width);
  const int64_t layers = scale.shape()[1];
  at::Tensor wide = values.view(at::kFloat8_e4m3fn).to(at::kFloat).view({length, layers, field.width / layers});
  return wide.mul_(tensor::share(scale).unsqueeze(2)).view({length, field.width});
}

int64_t length_of(const stream::Sample& sample, const Layout& layout) {
  const HostTensor& ids = sample.at("input_ids");
  SF_CHECK(ids.shape().size() == 1, Exit::kData, "position {}: input_ids has shape {}, wanted one extent",
           sample.position, to_string(ids.shape()));
  int64_t length = ids.shape()[0];
  SF_CHECK(length >= 1 && (layout.max_length == 0 || length <= layout.max_length), Exit::kData,
           "position {}: a row of {} tokens, the contract allows 1 to {}", sample.position, length, layout.max_length);
  return length;
}

void check_ids(const stream::Sample& sample, const char* name, int64_t vocab) {
  for (int32_t id : sample.at(name).as<int32_t>())
    SF_CHECK(id >= 0 && id < vocab, Exit::kData, "position {}: {} holds id {}, the vocabulary ends at {}",
             sample.position, name, id, vocab);
}

at::ScalarType batch_type(const Field& field, const Layout& layout) {
  if (field.width > 0) return tensor::to_scalar(layout.compute);
  return field.types.front() == Dtype::kF32 ? at::kFloat : at::kLong;
}

Batch collate(std::span<const stream::Sample> samples, const Layout& layout) {
  Batch batch;
  std::vector<const stream::Sample*> rows;
  std::vector<int64_t> lengths;
  for (const stream::Sample& sample : samples) {
    if (sample.void_reason) {
      ++batch.voids;
      continue;
    }
    rows.push_back(&sample);
    lengths.push_back(length_of(sample, layout));
    batch.tokens += lengths.back();
  }
  batch.rows = std::ssize(rows);
  if (rows.empty()) return batch;
  int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  for (const Field& field : layout.fields) {
    std::vector<int64_t> extents{batch.rows, longest};
    if (field.width > 0) extents.push_back(field.width);
    at::Tensor padded = at::zeros(extents, batch_type(field, layout));
    for (int64_t b = 0; b < batch.rows; ++b)
      padded.select(0, b).narrow(0, 0, lengths[b]).copy_(values_of(*rows[b], field, lengths[b]));
    batch.tensors[field.name] = padded;
    for (const stream::Sample* row : rows)
      if (field.ids) check_ids(*row, field.name, layout.vocab);
  }
  at::Tensor length = at::zeros({batch.rows}, at::kLong);
  std::copy(lengths.begin(), lengths.end(), length.mutable_data_ptr<int64_t>());
  batch.tensors["lengths"] = length;
  return batch;
}

}  // namespace

Batch collate_eagle3(std::span<const stream::Sample> samples, const Eagle3Shape& shape) {
  return collate(samples, layout_of(shape));
}

Batch collate_dflash(std::span<const stream::Sample> samples, const DflashShape& shape) {
  Batch batch = collate(samples, layout_of(shape));
  if (batch.empty()) return batch;
  std::vector<std::vector<int64_t>> drawn;
  size_t most = 0;
  for (const stream::Sample& sample : samples) {
    if (sample.void_reason) continue;
    drawn.push_back(draw_anchors(sample.at("loss_mask").as<uint8_t>(), shape.anchors, shape.seed, sample.position));
    most = std::max(most, drawn.back().size());
  }
  at::Tensor anchors = at::full({batch.rows, static_cast<int64_t>(most)}, -1, at::kLong);
  for (size_t b = 0; b < drawn.size(); ++b)
    std::copy(drawn[b].begin(), drawn[b].end(), anchors.mutable_data_ptr<int64_t>() + b * most);
  batch.tensors["anchors"] = anchors;
  return batch;
}

Batch collate_peagle(std::span<const stream::Sample> samples, const Eagle3Shape& shape, const DepthRule& rule) {
  Batch batch = collate(samples, layout_of(shape));
  if (batch.empty()) return batch;
  std::vector<DepthRows> drawn;
  size_t most = 0;
  for (const stream::Sample& sample : samples) {
    if (sample.void_reason) continue;
    drawn.push_back(draw_depths(sample.at("loss_mask").as<uint8_t>(), rule, sample.position));
    most = std::max(most, drawn.back().anchors.size());
  }
  for (auto [name, list] :
       {std::pair("cod_anchors", &DepthRows::anchors), std::pair("cod_depths", &DepthRows::depths)}) {
    at::Tensor filled = at::full({batch.rows, static_cast<int64_t>(most)}, -1, at::kLong);
    for (size_t b = 0; b < drawn.size(); ++b)
      std::copy((drawn[b].*list).begin(), (drawn[b].*list).end(), filled.mutable_data_ptr<int64_t>() + b * most);
    batch.tensors[name] = filled;
  }
  return batch;
}

Batch collate_sft(std::span<const stream::Sample> samples, int64_t vocab, int64_t max_length) {
  Batch batch;
  std::vector<const stream::Sample*> rows;
  int64_t longest = 0;
  for (const stream::Sample& sample : samples) {
    if (sample.void_reason) {
      ++batch.voids;
      continue;
    }
    rows.push_back(&sample);
    const int64_t length = length_of(sample, {.vocab = vocab, .max_length = max_length});
    longest = std::max(longest, length);
    batch.tokens += length;
  }
  batch.rows = std::ssize(rows);
  if (rows.empty()) return batch;
  at::Tensor ids = at::zeros({batch.rows, longest}, at::kLong), labels = at::full({batch.rows, longest}, -1, at::kLong);
  for (int64_t b = 0; b < batch.rows; ++b) {
    const int64_t length = length_of(*rows[b], {.vocab = vocab, .max_length = max_length});
    std::span<const int32_t> id = checked(*rows[b], {"input_ids", {Dtype::kI32}, 0}, length).as<int32_t>();
    std::span<const uint8_t> mask = checked(*rows[b], {"loss_mask", {Dtype::kU8}, 0}, length).as<uint8_t>();
    check_ids(*rows[b], "input_ids", vocab);
    int64_t* to = ids.mutable_data_ptr<int64_t>() + b * longest;
    int64_t* label = labels.mutable_data_ptr<int64_t>() + b * longest;
    std::copy(id.begin(), id.end(), to);
    for (size_t j = 0; j + 1 < id.size(); ++j)
      if (mask[j + 1]) label[j] = id[j + 1];
  }
  batch.tensors = {{"ids", ids}, {"labels", labels}};
  batch.tensors["positions"] = at::arange(longest, at::kLong).expand({batch.rows, longest}).contiguous();
  return batch;
}

}  // namespace sf::data
