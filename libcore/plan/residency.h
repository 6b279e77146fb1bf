// SPDX-License-Identifier: Apache-2.0
// How a frozen table lives, and what each way costs one rank (sharding_engine 4.9). Pure arithmetic.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/model_spec.h"
#include "base/dtype.h"

namespace sf::plan {

// replicate: every rank holds the whole. shard: intervals, gathered once a window with the other parameters (the
// reference's shard_frozen_tables). rows: intervals, only the rows looked up are exchanged. stream: intervals, a head
// passes in chunks under the loss, once. host: one read-only mapping for all ranks of a host.
enum class Residency { kReplicate, kShard, kRows, kStream, kRowsStream, kHost };
inline constexpr Residency kResidencies[] = {Residency::kReplicate, Residency::kShard,      Residency::kRows,
                                             Residency::kStream,    Residency::kRowsStream, Residency::kHost};

std::string_view name_of(Residency residency);
std::optional<Residency> residency_from_name(std::string_view name);
// Why the residency does not fit a table of these uses; empty if it does.
std::string misfit(const arch::Table& table, Residency residency);

// What `words` (shard.frozen_tables) say of a model's tables: RESIDENCY is for all, TABLE=RESIDENCY,... for those named
// (a parameter's name, with or without ".weight"), exceptions from a word for all before them; the others are
// replicated. kConfig naming the word, and what is known; or both words, where two say it of one table.
std::map<std::string, Residency> residencies_of(const arch::ModelSpec& spec, std::string_view words);
// Which of the words said it, for each table of which one did.
std::map<std::string, std::string> words_of_tables(const arch::ModelSpec& spec, std::string_view words);

// The frozen parameters that `words` (shard.host_resident) mean: each is a name or the end of one behind a dot, with or
// without ".weight", separated by commas. kConfig naming a word that matches nothing, or only what cannot be frozen.
std::vector<std::string> host_resident(const arch::ModelSpec& spec, std::string_view words);

struct TableUse {
  int64_t rows = 0, width = 0;  // of the table
  Dtype type = Dtype::kF32;     // as held
  int64_t lookups = 0;          // rows that one micro-batch takes by id, with repetition
  int64_t rounds = 1;           // micro-batches of one rank in a window
  int64_t chunk = 8192;         // rows of a head that are multiplied at once (ops::kHeadChunk)
};

// Bytes of one rank (`host`: of all ranks of a host together).
struct TableCost {
  uint64_t at_rest = 0;
  uint64_t peak = 0;  // at rest, and the most that is gathered of it at one time
  uint64_t wire = 0;  // received from other ranks in one step
  uint64_t host = 0;
};
TableCost cost_of(const TableUse& use, Residency residency, int rank, int world);

}  // namespace sf::plan
