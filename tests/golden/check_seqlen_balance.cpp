// SPDX-License-Identifier: Apache-2.0
// Partitions and micro-batches, exactly.
#include "golden.h"
#include "rl/balance.h"

namespace sf::golden {
namespace {

std::vector<int64_t> ints(const Json& json) {
  std::vector<int64_t> result;
  for (const Json& each : json.as_array()) result.push_back(each.as_int());
  return result;
}

std::vector<rl::Part> parts(const Json& json) {
  std::vector<rl::Part> result;
  for (const Json& each : json.as_array()) result.push_back(ints(each));
  return result;
}

Outcome check_row(const Json& row, const std::string& name) {
  const std::vector<int64_t> lengths = ints(row.at("seqlens")), work = ints(row.at("workload"));
  for (size_t i = 0; i < lengths.size(); ++i)
    if (rl::workload(lengths[i]) != work[i]) return Outcome::failed(name + ": another workload");
  const int64_t k = row.at("k").as_int();
  const bool equal = row.at("equal_size").as_bool();
  if (rl::balanced_parts(lengths, k, equal) != parts(row.at("partitions")))
    return Outcome::failed(name + ": other parts of the lengths");
  if (rl::balanced_parts(work, k, equal) != parts(row.at("partitions_by_workload")))
    return Outcome::failed(name + ": other parts of the workloads");
  return Outcome::passed();
}

Outcome check(const Case& c) {
  const auto& rows = c.json.at("rows").as_array();
  if (rows.empty()) return Outcome::failed("no rows");
  for (size_t i = 0; i < rows.size(); ++i)
    if (Outcome row = check_row(rows[i], "row " + std::to_string(i)); row.verdict != Outcome::kPassed) return row;
  const auto& batches = c.json.at("rearrange_micro_batches").as_array();
  for (size_t i = 0; i < batches.size(); ++i) {
    const rl::Budget budget{.tokens = batches[i].at("max_token_len").as_int(),
                            .large_inside = batches[i].at("use_dynamic_bsz_balance").as_bool()};
    if (rl::micro_batches(ints(batches[i].at("seqlens")), budget) != parts(batches[i].at("micro_batches")))
      return Outcome::failed("micro-batches " + std::to_string(i) + " differ");
  }
  return Outcome::passed();
}

const bool registered = add("seqlen_balance", check);

}  // namespace
}  // namespace sf::golden
