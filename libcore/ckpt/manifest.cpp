// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "ckpt/checkpoint.h"

namespace sf::ckpt {
namespace {

constexpr int64_t kFormat = 1;

Json text_map(const std::map<std::string, std::string>& map) {
  Json::Object out;
  for (const auto& [key, value] : map) out.emplace_back(key, value);
  return Json(std::move(out));
}

std::map<std::string, std::string> read_text_map(const Json& json) {
  std::map<std::string, std::string> map;
  for (const auto& [key, value] : json.as_object()) map[key] = value.as_string();
  return map;
}

Json buffer_to_json(const BufferRecord& record) {
  Json shape = Json::array();
  for (int64_t extent : record.shape) shape.push(extent);
  Json out = Json::object().set("dtype", name_of(record.dtype)).set("shape", std::move(shape));
  out.set("restored", record.stored ? "stored" : "recomputed");
  return record.digest.empty() ? out : out.set("digest", record.digest);
}

BufferRecord read_buffer(const Json& json) {
  std::optional<Dtype> dtype = dtype_from_name(json.at("dtype").as_string());
  SF_CHECK(dtype, Exit::kData, "unknown type \"{}\"", json.at("dtype").as_string());
  BufferRecord record{*dtype, {}, json.at("restored").as_string() == "stored", json.get_string("digest", "")};
  for (const Json& extent : json.at("shape").as_array()) record.shape.push_back(extent.as_int());
  return record;
}

void read_member(Manifest& m, const std::string& key, const Json& value) {
  if (key == "format") {
    SF_CHECK(value.as_int() == kFormat, Exit::kProtocol, "manifest format {} found, this version reads {}",
             value.as_int(), kFormat);
  } else if (key == "kind") {
    m.kind = value.as_string();
  } else if (key == "aliases") {
    for (const auto& [name, of] : value.as_object()) m.aliases.push_back({name, of.as_string()});
  } else if (key == "recompute") {  // as releases before this one listed those that are in no file
    for (const Json& name : value.as_array()) m.buffers.emplace(name.as_string(), BufferRecord{});
  } else if (key == "buffers") {
    for (const auto& [name, record] : value.as_object()) m.buffers[name] = read_buffer(record);
  } else if (key == "residency") {
    m.residency = read_text_map(value);
  } else if (key == "digests") {
    m.digests = read_text_map(value);
  } else if (key == "contract") {
    m.contract = value;
  } else if (key == "config") {
    m.config = value;
  } else if (key == "numerics") {
    m.numerics = value;
  } else if (key == "step") {
    m.step = value.as_int();
  } else if (key == "cursor") {
    m.cursor = value.as_int();
  } else if (key == "seed") {
    m.seed = static_cast<uint64_t>(value.as_int());
  } else if (key == "identity") {
    m.identity = value.as_string();
  } else {
    m.extra.set(key, value);
  }
}

}  // namespace

Json manifest_to_json(const Manifest& m) {
  Json::Object aliases;
  for (const arch::Alias& alias : m.aliases) aliases.emplace_back(alias.name, alias.of);
  Json buffers = Json::object();
  for (const auto& [name, record] : m.buffers) buffers.set(name, buffer_to_json(record));
  Json out = Json::object();
  out.set("format", kFormat).set("kind", m.kind).set("identity", m.identity);
  out.set("step", m.step).set("cursor", m.cursor).set("seed", m.seed);
  out.set("aliases", Json(std::move(aliases))).set("buffers", std::move(buffers));
  out.set("residency", text_map(m.residency));
  out.set("contract", m.contract).set("config", m.config).set("numerics", m.numerics);
  if (m.extra.is_object())
    for (const auto& [key, value] : m.extra.as_object()) out.set(key, value);
  out.set("digests", text_map(m.digests));
  return out;
}

Manifest manifest_from_json(const Json& json) {
  Manifest m;
  SF_CHECK(json.is_object(), Exit::kData, "wanted a JSON object, found {}", json.type_name());
  for (const char* key : {"format", "kind", "identity", "digests"})
    SF_CHECK(json.contains(key), Exit::kData, "key \"{}\" is missing: this is no manifest of a checkpoint", key);
  for (const auto& [key, value] : json.as_object()) {
    try {
      read_member(m, key, value);
    } catch (Error& error) {
      error.add_context(fmt::format("key \"{}\"", key));
      throw;
    }
  }
  return m;
}

}  // namespace sf::ckpt
