// SPDX-License-Identifier: Apache-2.0
// The layers that a DFlash draft reads of its target where nobody names them, as config.json counts them; exact.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "arch/dflash.h"
#include "golden.h"

namespace sf::golden {
namespace {

Outcome check(const Case& c) {
  const auto& rows = c.json.at("rows").as_array();
  if (rows.empty()) return Outcome::failed("no rows");
  for (const Json& row : rows) {
    std::vector<int64_t> found = arch::dflash_capture_layers(row.at("L").as_int(), row.at("n").as_int()), wanted;
    for (int64_t& layer : found) --layer;  // ours counts blocks that ran
    for (const Json& id : row.at("ids").as_array()) wanted.push_back(id.as_int());
    if (found != wanted)
      return Outcome::failed(fmt::format("{} draft layers of {}: found {}, wanted {}", row.at("n").as_int(),
                                         row.at("L").as_int(), fmt::join(found, ","), fmt::join(wanted, ",")));
  }
  return Outcome::passed();
}

const bool registered = add("layer_ids", check);

}  // namespace
}  // namespace sf::golden
