// SPDX-License-Identifier: Apache-2.0
#include "tool/shard_inspect.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/present.h"
#include "stream/feature_dir.h"
#include "tool/tensor_set.h"

namespace sf::tool {
namespace {

Json shape_json(const Shape& shape) {
  Json out = Json::array();
  for (int64_t extent : shape) out.push(extent);
  return out;
}

// As config.json says it: an architecture that we do not know can be inspected all the same.
std::string architecture_of(const Json& config) {
  const Json* list = config.find("architectures");
  if (list && list->is_array() && !list->as_array().empty() && list->as_array()[0].is_string())
    return list->as_array()[0].as_string();
  const Json* type = config.find("model_type");
  return type && type->is_string() ? type->as_string() : "unknown";
}

Json tensors_json(const TensorSet& set, bool digests) {
  Json out = Json::object();
  for (const StoredTensor& tensor : set.tensors) {
    Json row = Json::object().set("dtype", tensor.type).set("shape", shape_json(tensor.shape));
    row.set("bytes", tensor.bytes).set("file", tensor.file);
    auto known = set.digests.find(tensor.name);
    if (digests)
      row.set("digest", digest_of(tensor));
    else if (known != set.digests.end())
      row.set("digest", known->second);
    if (set.checkpoint)
      if (const auto& homes = set.checkpoint->manifest().residency; homes.contains(tensor.name))
        row.set("residency", homes.at(tensor.name));
    out.set(tensor.name, std::move(row));
  }
  return out;
}

void add_checkpoint(const ckpt::Checkpoint& open, Json& out) {
  const ckpt::Manifest& manifest = open.manifest();
  Json buffers = Json::object();
  for (const auto& [name, record] : manifest.buffers) {
    Json row = Json::object().set("dtype", name_of(record.dtype)).set("shape", shape_json(record.shape));
    row.set("restored", record.stored ? "stored" : "recomputed");
    buffers.set(name, record.digest.empty() ? row : row.set("digest", record.digest));
  }
  out.set("architecture", architecture_of(open.config())).set("manifest", open.has_manifest());
  out.set("kind", manifest.kind).set("identity", manifest.identity);
  out.set("step", manifest.step).set("cursor", manifest.cursor).set("buffers", buffers);
  if (const Json* target = manifest.extra.find("target")) out.set("target", *target);
  if (const Json* source = manifest.extra.find("source")) out.set("source", *source);
}

Json json_of(const TensorSet& set, bool digests) {
  Json out = Json::object(), aliases = Json::object();
  uint64_t elements = 0, bytes = 0;
  for (const StoredTensor& tensor : set.tensors) {
    elements += static_cast<uint64_t>(numel(tensor.shape));
    bytes += tensor.bytes;
  }
  for (const auto& [name, of] : set.aliases) aliases.set(name, of);
  out.set("path", set.path.string()).set("what", set.kind);
  if (set.checkpoint) add_checkpoint(*set.checkpoint, out);
  if (set.metadata.is_object()) out.set("metadata", set.metadata);
  out.set("tensor_count", static_cast<int64_t>(set.tensors.size())).set("elements", elements).set("bytes", bytes);
  return out.set("aliases", aliases).set("tensors", tensors_json(set, digests));
}

std::string shown(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

std::string summary(const Json& json) {
  std::string text = fmt::format("{}\n", json.at("path").as_string());
  auto say = [&](std::string_view what, std::string_view value) { text += fmt::format("  {:<13} {}\n", what, value); };
  std::string what = json.at("what").as_string();
  say("what", what == "huggingface" ? "Hugging Face directory, without manifest" : what);
  if (json.contains("architecture")) say("architecture", json.at("architecture").as_string());
  if (what == "checkpoint") {
    say("kind", json.at("kind").as_string());
    say("identity", json.at("identity").as_string());
    say("step", fmt::format("{}, next position {}", json.at("step").as_int(), json.at("cursor").as_int()));
  }
  say("tensors", fmt::format("{}, {} elements, {} bytes", json.at("tensor_count").as_int(),
                             json.at("elements").as_int(), json.at("bytes").as_int()));
  for (const auto& [name, of] : json.at("aliases").as_object())
    say("alias", fmt::format("{} = {}", name, of.as_string()));
  if (const Json* buffers = json.find("buffers"))
    for (const auto& [name, row] : buffers->as_object())
      say("buffer", fmt::format("{} {} {}, {}", name, row.at("dtype").as_string(), row.at("shape").dump(),
                                row.at("restored").as_string() == "stored" ? "stored" : "recomputed at every start"));
  if (const Json* target = json.find("target")) say("draft of", target->get_string("identity", "unknown"));
  if (const Json* metadata = json.find("metadata"))
    for (const auto& [key, value] : metadata->as_object()) say("metadata", fmt::format("{} = {}", key, shown(value)));
  return text;
}

std::string rows(const Json& tensors) {
  size_t wide_name = 6, wide_type = 5, wide_shape = 5;
  for (const auto& [name, row] : tensors.as_object()) {
    wide_name = std::max(wide_name, name.size());
    wide_type = std::max(wide_type, row.at("dtype").as_string().size());
    wide_shape = std::max(wide_shape, row.at("shape").dump().size());
  }
  std::string text = fmt::format("\n{:<{}}  {:<{}}  {:<{}}  {:>12}\n", "tensor", wide_name, "dtype", wide_type, "shape",
                                 wide_shape, "bytes");
  for (const auto& [name, row] : tensors.as_object()) {
    Shape shape;
    for (const Json& extent : row.at("shape").as_array()) shape.push_back(extent.as_int());
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>12}", name, wide_name, row.at("dtype").as_string(), wide_type,
                        to_string(shape), wide_shape, row.at("bytes").as_int());
    for (const char* key : {"digest", "residency"})
      if (const Json* value = row.find(key)) text += "  " + value->as_string();
    text += "\n";
  }
  return text;
}

Inspection inspect_rows(const std::filesystem::path& dir, const stream::Contract& contract) {
  stream::FeatureCounts counts = stream::inspect_features(dir);
  Inspection result;
  result.json.set("path", dir.string()).set("what", "features").set("contract", contract.to_json());
  result.json.set("rows", counts.rows).set("voids", counts.voids).set("bytes", counts.bytes);
  result.table = fmt::format("{}\n  {:<13} {}\n", dir.string(), "what", "features");
  const Json promised = contract.to_json();
  for (const auto& [key, value] : promised.as_object()) result.table += fmt::format("  {:<13} {}\n", key, shown(value));
  result.table +=
      fmt::format("{} rows, {} of them void, {} bytes; every hash is right\n", counts.rows, counts.voids, counts.bytes);
  return result;
}

}  // namespace

Inspection inspect(const std::filesystem::path& path, bool digests) {
  std::error_code ignored;
  if (is_present(path / "contract.json"))
    if (std::optional<stream::Contract> contract = stream::published_contract(path))
      return inspect_rows(path, *contract);
  TensorSet set = open_tensors(path);
  Inspection result;
  result.json = json_of(set, digests);
  result.table = summary(result.json) + rows(result.json.at("tensors"));
  return result;
}

}  // namespace sf::tool
