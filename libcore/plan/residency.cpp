// SPDX-License-Identifier: Apache-2.0
#include "plan/residency.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "plan/interval.h"

namespace sf::plan {
namespace {

struct Name {
  Residency residency;
  std::string_view name;
};
constexpr Name kNames[] = {{Residency::kReplicate, "replicate"},
                           {Residency::kShard, "shard"},
                           {Residency::kRows, "rows"},
                           {Residency::kStream, "stream"},
                           {Residency::kRowsStream, "rows+stream"},
                           {Residency::kHost, "host"}};

constexpr uint64_t kIdBytes = sizeof(int32_t);

}  // namespace

std::string_view name_of(Residency residency) {
  for (const Name& one : kNames)
    if (one.residency == residency) return one.name;
  return "unknown";
}

std::optional<Residency> residency_from_name(std::string_view name) {
  for (const Name& one : kNames)
    if (one.name == name) return one.residency;
  return std::nullopt;
}

std::string misfit(const arch::Table& table, Residency residency) {
  bool both = table.looked_up && table.multiplied;
  if (table.in_group && residency != Residency::kReplicate && residency != Residency::kShard &&
      residency != Residency::kHost)
    return "a segment uses it among other things, and is given the whole: replicate, shard or host";
  switch (residency) {
    case Residency::kRows:
      if (both) return "a tied table is a head too: rows+stream";
      return table.multiplied ? "a head is multiplied whole, not looked up" : "";
    case Residency::kStream:
      if (both) return "a tied table is looked up too: rows+stream";
      return table.looked_up ? "it is looked up, not multiplied" : "";
    case Residency::kRowsStream:
      return both ? "" : "only a tied table is used both ways";
    default:
      return "";
  }
}

namespace {

Residency residency_of_word(std::string_view word) {
  std::optional<Residency> residency = residency_from_name(word);
  SF_CHECK(residency, Exit::kConfig,
           "shard.frozen_tables: \"{}\" is no residency; known: replicate, shard, rows, stream, rows+stream, host",
           word);
  return *residency;
}

// By its name, or by a further one that the model ties to it.
const arch::Table& table_of_word(const arch::ModelSpec& spec, std::string_view word) {
  std::string known, full = std::string(word) + (word.ends_with(".weight") ? "" : ".weight");
  std::string_view storage = spec.storage_of(full);
  for (const arch::Table& table : spec.tables) {
    std::string_view plain(table.parameter);
    if (plain.ends_with(".weight")) plain.remove_suffix(std::string_view(".weight").size());
    if (storage == table.parameter) return table;
    known += (known.empty() ? "" : ", ") + std::string(plain);
  }
  fail(Exit::kConfig, "shard.frozen_tables: \"{}\" is no frozen table of this model; it has: {}", word,
       known.empty() ? "none" : known);
}

// What is said of one table so far, and by which words.
struct Said {
  Residency residency = Residency::kReplicate;
  std::string word;  // empty: nothing
  bool named = false;
};

// Each of a tied table's two names may ask for what its own use needs.
bool are_halves(const arch::Table& table, Residency a, Residency b) {
  bool halves =
      (a == Residency::kRows && b == Residency::kStream) || (a == Residency::kStream && b == Residency::kRows);
  return halves && table.looked_up && table.multiplied;
}

void name(const arch::Table& table, Residency wanted, std::string_view word, Said& said) {
  if (!said.named) {
    said = {wanted, std::string(word), true};
    return;
  }
  const bool halves = are_halves(table, said.residency, wanted);
  const bool same_name = said.word.starts_with(word.substr(0, word.find('=') + 1));
  SF_CHECK(!same_name && (halves || said.residency == wanted), Exit::kConfig,
           "shard.frozen_tables: \"{}\" and \"{}\" both say where {} lives; give one", said.word, word,
           table.parameter);
  if (halves) said.residency = Residency::kRowsStream;
  said.word = fmt::format("{},{}", said.word, word);
}

// A word for all stands first and once; what is named after it is an exception.
std::map<std::string, Said> parse(const arch::ModelSpec& spec, std::string_view words) {
  std::map<std::string, Said> all;
  for (const arch::Table& table : spec.tables) all[table.parameter] = {};
  for (bool first = true; !words.empty(); first = false) {
    std::string_view word = words.substr(0, words.find(','));
    words.remove_prefix(std::min(words.size(), word.size() + 1));
    size_t equals = word.find('=');
    if (equals != std::string_view::npos) {
      const arch::Table& table = table_of_word(spec, word.substr(0, equals));
      name(table, residency_of_word(word.substr(equals + 1)), word, all[table.parameter]);
      continue;
    }
    const Said of_all{residency_of_word(word), std::string(word)};
    SF_CHECK(first, Exit::kConfig,
             "shard.frozen_tables: \"{}\" is for all tables, and others are said before it; give it alone or first",
             word);
    for (auto& [parameter, said] : all) said = of_all;
  }
  return all;
}

}  // namespace

std::map<std::string, Residency> residencies_of(const arch::ModelSpec& spec, std::string_view words) {
  std::map<std::string, Residency> chosen;
  for (const auto& [parameter, said] : parse(spec, words)) chosen[parameter] = said.residency;
  return chosen;
}

std::map<std::string, std::string> words_of_tables(const arch::ModelSpec& spec, std::string_view words) {
  std::map<std::string, std::string> found;
  for (const auto& [parameter, said] : parse(spec, words))
    if (!said.word.empty()) found[parameter] = said.word;
  return found;
}

std::vector<std::string> host_resident(const arch::ModelSpec& spec, std::string_view words) {
  std::vector<std::string> names;
  auto means = [](std::string_view word, std::string_view name) {
    if (!word.ends_with(".weight") && name.ends_with(".weight")) name.remove_suffix(std::string_view(".weight").size());
    return name == word || (name.ends_with(word) && name[name.size() - word.size() - 1] == '.');
  };
  while (!words.empty()) {
    std::string_view word = words.substr(0, words.find(','));
    words.remove_prefix(std::min(words.size(), word.size() + 1));
    std::vector<std::string> found, trained;
    auto add = [&](const arch::Parameter& parameter) {
      (parameter.trainable ? trained : found).push_back(parameter.name);
    };
    for (const arch::Parameter& parameter : spec.parameters)
      if (means(word, parameter.name)) add(parameter);
    for (const arch::Alias& alias : spec.aliases)
      if (const arch::Parameter* of = spec.find(alias.of); of && means(word, alias.name)) add(*of);
    SF_CHECK(!word.empty() && (!found.empty() || !trained.empty()), Exit::kConfig,
             "host-resident \"{}\" matches no parameter of this model", word);
    SF_CHECK(trained.empty(), Exit::kConfig,
             "host-resident \"{}\" means {}, and what lives on the host is read-only: it cannot train", word,
             fmt::join(trained, ", "));
    names.insert(names.end(), found.begin(), found.end());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

TableCost cost_of(const TableUse& use, Residency residency, int rank, int world) {
  SF_CHECK(use.rows >= 0 && use.width >= 0 && use.lookups >= 0 && use.rounds >= 0, Exit::kSoftware,
           "a table of {} x {}, looked up {} times", use.rows, use.width, use.lookups);
  uint64_t element = size_of(use.type);
  auto row = static_cast<uint64_t>(use.width) * element;
  uint64_t whole = static_cast<uint64_t>(use.rows) * row;
  auto bytes_of = [&](int of) {
    return static_cast<uint64_t>(dim0_interval({use.rows, use.width}, of, world).size()) * element;
  };
  uint64_t mine = bytes_of(rank), others = whole - mine;
  auto lookups = static_cast<uint64_t>(use.lookups), rounds = static_cast<uint64_t>(use.rounds);
  // Ids go out, rows come back; those of the own interval stay.
  uint64_t exchanged = world > 1 ? lookups * (row + kIdBytes) * static_cast<uint64_t>(world - 1) / world : 0;
  uint64_t streamed = world > 1 ? static_cast<uint64_t>(std::min(use.chunk, use.rows)) * row : 0;
  switch (residency) {
    case Residency::kReplicate:
      return {whole, whole, 0, 0};
    case Residency::kShard:
      return {mine, world > 1 ? mine + whole : mine, others, 0};
    case Residency::kRows:
      return {mine, mine + lookups * row, rounds * exchanged, 0};
    case Residency::kStream:
      return {mine, mine + streamed, rounds * others, 0};
    case Residency::kRowsStream:
      return {mine, mine + lookups * row + streamed, rounds * (exchanged + others), 0};
    case Residency::kHost:
      return {0, 0, 0, whole};
  }
  fail(Exit::kSoftware, "unknown residency");
}

}  // namespace sf::plan
