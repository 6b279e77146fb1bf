// SPDX-License-Identifier: Apache-2.0
#include "arch/config_check.h"

#include "base/error.h"

namespace sf::arch {

int64_t size_of_config(const Json& config, std::string_view key, int64_t most) {
  const Json* value = config.find(key);
  SF_CHECK(value && value->is_int(), Exit::kData, "config.json: {} is {}, wanted a whole number from 1 to {}", key,
           value ? value->type_name() : "missing", most);
  return positive(config, key, 0, most);
}

int64_t positive(const Json& config, std::string_view key, int64_t otherwise, int64_t most) {
  int64_t value = config.get_int(key, otherwise);
  SF_CHECK(value >= 1 && value <= most, Exit::kConfig, "config.json: {} = {} is out of range, wanted 1 to {}", key,
           value, most);
  return value;
}

double in_range(double value, std::string_view key, double lo, double hi) {
  SF_CHECK(value > lo && value <= hi, Exit::kConfig,
           "config.json: {} = {} is out of range, wanted above {}, at most {}", key, value, lo, hi);
  return value;
}

Dtype dtype_of_config(const Json& config) {
  std::string name = config.get_string("dtype", config.get_string("torch_dtype", "float32"));
  std::optional<Dtype> type = dtype_from_config(name);
  SF_CHECK(type, Exit::kConfig, "config.json: dtype \"{}\" is unknown; known: float32, float16, bfloat16", name);
  return *type;
}

void dtype_to_config(Dtype type, Json& config) {
  std::string_view name = type == Dtype::kBF16 ? "bfloat16" : type == Dtype::kF16 ? "float16" : "float32";
  config.set("dtype", name).set("torch_dtype", name);
}

namespace {

int64_t id_within(const Json& id, std::string_view key, int64_t vocab) {
  SF_CHECK(id.is_int(), Exit::kData, "config.json: {} is {}, wanted a token id", key, id.type_name());
  SF_CHECK(id.as_int() >= 0 && id.as_int() < vocab, Exit::kConfig,
           "config.json: {} = {} is out of range, wanted an id from 0 to {}, or null for none", key, id.as_int(),
           vocab - 1);
  return id.as_int();
}

}  // namespace

int64_t bos_of_config(const Json& config, int64_t otherwise, int64_t vocab) {
  const Json* bos = config.find("bos_token_id");
  if (!bos) return otherwise;
  return bos->is_null() || bos->is_array() ? -1 : id_within(*bos, "bos_token_id", vocab);
}

std::vector<int64_t> eos_of_config(const Json& config, int64_t otherwise, int64_t vocab) {
  const Json* eos = config.find("eos_token_id");
  if (!eos) return otherwise < 0 ? std::vector<int64_t>{} : std::vector<int64_t>{otherwise};
  if (eos->is_null()) return {};
  if (!eos->is_array()) return {id_within(*eos, "eos_token_id", vocab)};
  std::vector<int64_t> ids;
  for (const Json& id : eos->as_array()) ids.push_back(id_within(id, "eos_token_id", vocab));
  return ids;
}

void tokens_to_config(int64_t bos, const std::vector<int64_t>& eos, Json& config) {
  config.set("bos_token_id", bos >= 0 ? Json(bos) : Json());
  Json list;
  if (eos.size() == 1) list = Json(eos[0]);
  for (size_t i = 0; eos.size() > 1 && i < eos.size(); ++i) list.push(eos[i]);
  config.set("eos_token_id", std::move(list));
}

}  // namespace sf::arch
