// SPDX-License-Identifier: Apache-2.0
// Kinds vocab_mapping (tokens in order) and vocab_mapping_files (feature files in order): the reference's tie rule.
#include <fmt/core.h>

#include <algorithm>

#include "arch/vocab_map.h"
#include "golden.h"

namespace sf::golden {
namespace {

std::vector<int64_t> ints(const Json& list) {
  std::vector<int64_t> out;
  for (const Json& item : list.as_array()) out.push_back(item.as_int());
  return out;
}

// Tokens beyond max_length do not count.
void add_file(const Json& file, int64_t max_length, arch::TokenCounts& counts) {
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;
  for (int64_t id : ints(file.at("input_ids"))) ids.push_back(static_cast<int32_t>(id));
  for (int64_t bit : ints(file.at("loss_mask"))) mask.push_back(static_cast<uint8_t>(bit));
  size_t kept = std::min(ids.size(), static_cast<size_t>(max_length));
  counts.add_row(std::span(ids).first(kept), std::span(mask).first(kept));
}

Outcome check(const Case& c) {
  size_t number = 0;
  for (const Json& row : c.json.at("rows").as_array()) {
    arch::TokenCounts counts(row.at("V").as_int());
    if (const Json* files = row.find("files_in_order"))
      for (const Json& file : files->as_array()) add_file(file, row.at("max_length").as_int(), counts);
    else
      for (int64_t id : ints(row.at("supervised_tokens_in_order"))) counts.add(id);
    arch::VocabMap map = arch::make_vocab_map(counts, row.at("Vd").as_int(), arch::TieRule::kFirstSeen);
    if (map.used != ints(row.at("used"))) return Outcome::failed(fmt::format("row {}: other tokens are used", number));
    if (map.d2t != ints(row.at("d2t"))) return Outcome::failed(fmt::format("row {}: d2t differs", number));
    ++number;
  }
  return number > 0 ? Outcome::passed() : Outcome::failed("the case has no rows");
}

const bool registered = add("vocab_mapping", check) && add("vocab_mapping_files", check);

}  // namespace
}  // namespace sf::golden
