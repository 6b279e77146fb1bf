// SPDX-License-Identifier: Apache-2.0
// Frozen tables where they live (sharding_engine 4.9): whole for a window, in rows, in chunks, or one copy for a host.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "comm/group.h"
#include "engine/exchange.h"
#include "engine/host_tables.h"
#include "model/segment.h"
#include "plan/schedule.h"

namespace sf::engine {

struct TableOptions {
  double call_deadline_s = 120;
  const HostTables* hosts = nullptr;  // of the same plan
  double* communication_s = nullptr;  // where waiting for others is added
  at::Device device = at::kCPU;       // where rows are wanted
};

// What stands in for the segments that call a table (model::TableCall) which is not whole on every rank; by segment.
// Every rank calls it. All but the options outlives the result. Values are exact copies of the table's rows, and a head
// is cut into the same chunks everywhere: equal bits for every residency and world.
std::map<std::string, std::shared_ptr<Exchange>> table_exchanges(const plan::Schedule& plan,
                                                                 const std::vector<model::Segment>& segments,
                                                                 const arch::ModelSpec& spec, comm::Group& group,
                                                                 const TableOptions& options);

}  // namespace sf::engine
