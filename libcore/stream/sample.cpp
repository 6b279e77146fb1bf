// SPDX-License-Identifier: Apache-2.0
#include "stream/sample.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/rng.h"
#include "stream/features.h"
#include "stream/fields.h"

namespace sf::stream {
namespace {

constexpr size_t kMaxFieldBytes = 4096;
constexpr size_t kMaxLayers = 256;

bool unknown(const Json& value) {
  if (value.is_string()) return value.as_string().empty();
  if (value.is_int()) return value.as_int() == 0;
  return value.is_array() && value.as_array().empty();
}

// The digest of the data is named last: it differs too where the mask rule does, which is the cause.
std::optional<std::string> first_difference(const Contract& wanted, const Contract& found, bool known_only) {
  constexpr std::string_view kData = "data";
  const Json ours = wanted.to_json(), theirs = found.to_json();
  std::optional<std::string> of_data;
  for (const auto& [key, value] : ours.as_object()) {
    if (known_only && (unknown(value) || key == "order_seed")) continue;
    const Json& other = theirs.at(key);
    if (value == other) continue;
    std::string difference = fmt::format("{}: wanted {}, found {}", key, value.dump(), other.dump());
    if (key != kData) return difference;
    of_data = std::move(difference);
  }
  return of_data;
}

Permutation order_of(uint64_t epoch, uint64_t rows, uint64_t order_seed) {
  return {order_seed, fmt::format("order of epoch {}", epoch), rows};
}

}  // namespace

std::string feature_type(std::string_view configured) {
  if (configured == "fp8") return std::string(kFloat8);
  return std::string(name_of(*dtype_from_config(configured)));
}

Dtype feature_element(std::string_view feature_dtype) {
  if (feature_dtype == kFloat8) return Dtype::kU8;
  std::optional<Dtype> type = dtype_from_name(feature_dtype);
  SF_CHECK(type == Dtype::kF32 || type == Dtype::kBF16 || type == Dtype::kF16, Exit::kData,
           "features are carried in {}, wanted F32, BF16 or {}", feature_dtype, kFloat8);
  return *type;
}

const HostTensor& Sample::at(std::string_view name) const {
  for (const NamedTensor& item : tensors) {
    if (item.name == name) return item.tensor;
  }
  std::string present;
  for (const NamedTensor& item : tensors) present += (present.empty() ? "" : ", ") + item.name;
  fail(Exit::kData, "sample at position {} (row {}) has no tensor {}; it has: {}", position, row, name,
       present.empty() ? "none" : present);
}

size_t Sample::bytes() const {
  size_t total = 0;
  for (const NamedTensor& item : tensors) total += item.tensor.bytes();
  return total;
}

uint64_t digest_of(const Sample& sample) {
  Xxh3 hash;
  auto text = [&](std::string_view part) { hash.update(std::as_bytes(std::span(part.data(), part.size()))); };
  text(fmt::format("row {} {}\n", sample.row, sample.void_reason ? "void " + *sample.void_reason : "kept"));
  for (const auto& [name, tensor] : sample.tensors) {
    text(fmt::format("{} {} {}\n", name, name_of(tensor.dtype()), to_string(tensor.shape())));
    hash.update({tensor.data(), tensor.bytes()});
  }
  return hash.digest();
}

std::string describe(const Sample& sample) {
  std::string line = fmt::format("position {} row {}", sample.position, sample.row);
  if (sample.void_reason) line += "  void: " + *sample.void_reason;
  for (const auto& [name, tensor] : sample.tensors) {
    line += fmt::format("  {} {} {} {}", name, name_of(tensor.dtype()), to_string(tensor.shape()),
                        hex64(xxh3_64(std::span(tensor.data(), tensor.bytes()))));
  }
  return line;
}

Json summary_of(const Sample& sample) {
  Json json = Json::object().set("position", sample.position).set("row", sample.row);
  if (sample.void_reason) return json.set("void", *sample.void_reason);
  Json tensors = Json::array();
  for (const auto& [name, tensor] : sample.tensors) {
    Json shape = Json::array();
    for (int64_t extent : tensor.shape()) shape.push(extent);
    Json one = Json::object().set("name", name).set("dtype", name_of(tensor.dtype())).set("shape", std::move(shape));
    tensors.push(one.set("xxh3", hex64(xxh3_64(std::span(tensor.data(), tensor.bytes())))));
  }
  return json.set("tensors", std::move(tensors));
}

Json Contract::to_json() const {
  SF_CHECK(order_seed <= static_cast<uint64_t>(INT64_MAX) && rows <= static_cast<uint64_t>(INT64_MAX), Exit::kConfig,
           "order_seed {} and rows {} must be below 2^63", order_seed, rows);
  Json names = Json::array();
  for (const std::string& layer : layers) names.push(layer);
  Json json = Json::object();
  json.set("version", version).set("algorithm", algorithm).set("target", target).set("tokenizer", tokenizer);
  json.set("chat_template", chat_template).set("layers", names).set("feature_dtype", feature_dtype);
  json.set("compute_dtype", compute_dtype).set("vocab", vocab).set("hidden", hidden).set("max_length", max_length);
  json.set("rows", rows).set("data", data).set("order_seed", order_seed).set("mask_rule", mask_rule);
  return json;
}

Contract Contract::from_json(const Json& json) {
  Contract contract;
  int64_t version = natural_field(json, "version");
  SF_CHECK(version <= 1000, Exit::kData, "field version: {} is not one", version);
  contract.version = static_cast<int>(version);
  contract.algorithm = text_field(json, "algorithm", kMaxFieldBytes);
  contract.target = text_field(json, "target", kMaxFieldBytes);
  contract.tokenizer = text_field(json, "tokenizer", kMaxFieldBytes);
  contract.chat_template = text_field(json, "chat_template", kMaxFieldBytes);
  for (const Json& layer : list_field(json, "layers", kMaxLayers)) {
    SF_CHECK(layer.is_string() && layer.as_string().size() <= 64, Exit::kData,
             "field layers: wanted names of at most 64 bytes, found {}", layer.type_name());
    contract.layers.push_back(layer.as_string());
  }
  contract.feature_dtype = text_field(json, "feature_dtype", kMaxFieldBytes);
  contract.compute_dtype = text_field(json, "compute_dtype", kMaxFieldBytes);
  contract.vocab = natural_field(json, "vocab");
  contract.hidden = natural_field(json, "hidden");
  contract.max_length = natural_field(json, "max_length");
  contract.rows = static_cast<uint64_t>(natural_field(json, "rows"));
  contract.data = text_field(json, "data", kMaxFieldBytes);
  contract.order_seed = static_cast<uint64_t>(natural_field(json, "order_seed"));
  contract.mask_rule = text_field(json, "mask_rule", kMaxFieldBytes);
  return contract;
}

std::string Contract::digest() const {
  return sha256_hex(to_json().dump());
}

std::optional<std::string> Contract::difference(const Contract& found) const {
  return first_difference(*this, found, false);
}

std::optional<std::string> Contract::unmet_by(const Contract& found) const {
  return first_difference(*this, found, true);
}

uint64_t largest_sample(const Contract& contract) {
  constexpr uint64_t kBesides = 64;  // bytes of a token that are no states: ids, mask, best id and log-sum-exp, scales
  auto type = dtype_from_name(contract.feature_dtype);
  uint64_t states = contract.layers.size() * static_cast<uint64_t>(contract.hidden) * (type ? size_of(*type) : 4);
  return std::max<uint64_t>(1, static_cast<uint64_t>(contract.max_length) * (states + kBesides));
}

Place place_of(uint64_t position, uint64_t rows, uint64_t order_seed) {
  SF_CHECK(rows > 0, Exit::kData, "the data set has no rows, so there is no position {}", position);
  const uint64_t epoch = position / rows;
  return {epoch, order_of(epoch, rows, order_seed)(position % rows)};
}

std::vector<uint64_t> first_positions(uint64_t rows, uint64_t order_seed) {
  std::vector<uint64_t> positions(rows);
  const Permutation order = order_of(0, rows, order_seed);
  for (uint64_t position = 0; position < rows; ++position) positions[order(position)] = position;
  return positions;
}

}  // namespace sf::stream
