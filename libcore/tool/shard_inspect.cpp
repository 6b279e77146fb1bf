// SPDX-License-Identifier: Apache-2.0
#include "tool/shard_inspect.h"

#include <fmt/format.h>

#include <algorithm>

#include "ckpt/checkpoint.h"

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

struct Row {
  std::string name, dtype, shape, remark;
  uint64_t bytes = 0;
};

std::vector<Row> rows_of(const ckpt::Checkpoint& open) {
  std::vector<Row> rows;
  const ckpt::Manifest& manifest = open.manifest();
  for (const std::string& name : open.names()) {
    TensorView view = open.stored(name);
    auto home = manifest.residency.find(name);
    rows.push_back({name, std::string(name_of(view.dtype)), to_string(view.shape),
                    home == manifest.residency.end() ? "" : home->second, view.bytes()});
  }
  return rows;
}

Json json_of(const ckpt::Checkpoint& open) {
  const ckpt::Manifest& manifest = open.manifest();
  Json out = Json::object(), tensors = Json::object(), aliases = Json::object(), recompute = Json::array();
  uint64_t elements = 0, bytes = 0;
  for (const std::string& name : open.names()) {
    TensorView view = open.stored(name);
    elements += static_cast<uint64_t>(numel(view.shape));
    bytes += view.bytes();
    tensors.set(name, Json::object()
                          .set("dtype", name_of(view.dtype))
                          .set("shape", shape_json(view.shape))
                          .set("bytes", static_cast<uint64_t>(view.bytes())));
  }
  for (const arch::Alias& alias : open.aliases()) aliases.set(alias.name, alias.of);
  for (const std::string& name : manifest.recompute) recompute.push(name);
  out.set("directory", open.dir().string()).set("architecture", architecture_of(open.config()));
  out.set("manifest", open.has_manifest()).set("kind", manifest.kind).set("identity", manifest.identity);
  out.set("step", manifest.step).set("cursor", manifest.cursor);
  out.set("tensor_count", static_cast<int64_t>(open.names().size())).set("elements", elements).set("bytes", bytes);
  out.set("aliases", aliases).set("recompute", recompute);
  if (const Json* target = manifest.extra.find("target")) out.set("target", *target);
  if (const Json* source = manifest.extra.find("source")) out.set("source", *source);
  return out.set("tensors", tensors);
}

std::string summary(const Json& json) {
  std::string text =
      fmt::format("{}\n  architecture  {}\n", json.at("directory").as_string(), json.at("architecture").as_string());
  if (json.at("manifest").as_bool())
    text += fmt::format("  kind          {}\n  identity      {}\n  step          {}, next position {}\n",
                        json.at("kind").as_string(), json.at("identity").as_string(), json.at("step").as_int(),
                        json.at("cursor").as_int());
  else
    text += "  manifest      none (a plain Hugging Face directory)\n";
  text += fmt::format("  tensors       {}, {} elements, {} bytes\n", json.at("tensor_count").as_int(),
                      json.at("elements").as_int(), json.at("bytes").as_int());
  for (const auto& [name, of] : json.at("aliases").as_object())
    text += fmt::format("  alias         {} = {}\n", name, of.as_string());
  for (const Json& name : json.at("recompute").as_array())
    text += fmt::format("  recomputed    {}\n", name.as_string());
  if (const Json* target = json.find("target"))
    text += fmt::format("  draft of      {}\n", target->get_string("identity", "unknown"));
  return text;
}

}  // namespace

Inspection inspect(const std::filesystem::path& dir) {
  ckpt::Checkpoint open = ckpt::Checkpoint::open(dir);
  Inspection result;
  result.json = json_of(open);
  result.table = summary(result.json);
  std::vector<Row> rows = rows_of(open);
  size_t wide_name = 6, wide_shape = 5;
  for (const Row& row : rows) {
    wide_name = std::max(wide_name, row.name.size());
    wide_shape = std::max(wide_shape, row.shape.size());
  }
  result.table +=
      fmt::format("\n{:<{}}  {:<5}  {:<{}}  {:>12}\n", "tensor", wide_name, "dtype", "shape", wide_shape, "bytes");
  for (const Row& row : rows)
    result.table += fmt::format("{:<{}}  {:<5}  {:<{}}  {:>12}{}{}\n", row.name, wide_name, row.dtype, row.shape,
                                wide_shape, row.bytes, row.remark.empty() ? "" : "  ", row.remark);
  return result;
}

}  // namespace sf::tool
