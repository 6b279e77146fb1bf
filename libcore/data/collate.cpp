// SPDX-License-Identifier: Apache-2.0
#include "data/collate.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "tensor/convert.h"

namespace sf::data {
namespace {

struct Field {
  const char* name;
  std::vector<Dtype> types;
  int64_t width;  // 0: one number an index
};

std::vector<Field> fields_of(const Eagle3Shape& shape) {
  std::vector<Dtype> features{Dtype::kF32, Dtype::kBF16, Dtype::kF16};
  return {{"input_ids", {Dtype::kI32}, 0},
          {"loss_mask", {Dtype::kU8}, 0},
          {"target_top1", {Dtype::kI32}, 0},
          {"target_lse", {Dtype::kF32}, 0},
          {"hidden_state", features, 3 * shape.target_hidden},
          {"final_norm", features, shape.target_hidden}};
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

int64_t length_of(const stream::Sample& sample, const Eagle3Shape& shape) {
  const HostTensor& ids = sample.at("input_ids");
  SF_CHECK(ids.shape().size() == 1, Exit::kData, "position {}: input_ids has shape {}, wanted one extent",
           sample.position, to_string(ids.shape()));
  int64_t length = ids.shape()[0];
  SF_CHECK(length >= 1 && (shape.max_length == 0 || length <= shape.max_length), Exit::kData,
           "position {}: a row of {} tokens, the contract allows 1 to {}", sample.position, length, shape.max_length);
  return length;
}

void check_ids(const stream::Sample& sample, const char* name, int64_t vocab) {
  for (int32_t id : sample.at(name).as<int32_t>())
    SF_CHECK(id >= 0 && id < vocab, Exit::kData, "position {}: {} holds id {}, the vocabulary ends at {}",
             sample.position, name, id, vocab);
}

at::ScalarType batch_type(const Field& field, const Eagle3Shape& shape) {
  if (field.width > 0) return tensor::to_scalar(shape.compute);
  return field.types.front() == Dtype::kF32 ? at::kFloat : at::kLong;
}

}  // namespace

Batch collate_eagle3(std::span<const stream::Sample> samples, const Eagle3Shape& shape) {
  Batch batch;
  std::vector<const stream::Sample*> rows;
  std::vector<int64_t> lengths;
  for (const stream::Sample& sample : samples) {
    if (sample.void_reason) {
      ++batch.voids;
      continue;
    }
    rows.push_back(&sample);
    lengths.push_back(length_of(sample, shape));
    batch.tokens += lengths.back();
  }
  batch.rows = std::ssize(rows);
  if (rows.empty()) return batch;
  int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  for (const Field& field : fields_of(shape)) {
    std::vector<int64_t> extents{batch.rows, longest};
    if (field.width > 0) extents.push_back(field.width);
    at::Tensor padded = at::zeros(extents, batch_type(field, shape));
    for (int64_t b = 0; b < batch.rows; ++b)
      padded.select(0, b).narrow(0, 0, lengths[b]).copy_(tensor::share(checked(*rows[b], field, lengths[b])));
    batch.tensors[field.name] = padded;
  }
  for (const stream::Sample* row : rows) {
    check_ids(*row, "input_ids", shape.vocab);
    check_ids(*row, "target_top1", shape.vocab);
  }
  at::Tensor length = at::zeros({batch.rows}, at::kLong);
  std::copy(lengths.begin(), lengths.end(), length.mutable_data_ptr<int64_t>());
  batch.tensors["lengths"] = length;
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
