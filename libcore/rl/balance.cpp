// SPDX-License-Identifier: Apache-2.0
#include "rl/balance.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "base/fault.h"

namespace sf::rl {
namespace {

using Item = std::pair<int64_t, int64_t>;  // index, value

struct Set {
  int64_t sum = 0;
  std::vector<Item> items;

  void add(const Set& other) {
    sum += other.sum;
    items.insert(items.end(), other.items.begin(), other.items.end());
  }
  friend bool operator<(const Set& a, const Set& b) {
    return std::forward_as_tuple(a.sum, a.items.size(), a.items) <
           std::forward_as_tuple(b.sum, b.items.size(), b.items);
  }
};

void sort_descending(std::vector<Set>& sets) {
  std::ranges::stable_sort(sets, [](const Set& a, const Set& b) { return b < a; });
}

// k sets in descending order.
struct State {
  std::vector<Set> sets;
  int64_t spread() const { return sets.front().sum - sets.back().sum; }
};

// On top of the queue: the widest spread, then the larger first set.
struct Later {
  bool operator()(const State& a, const State& b) const {
    if (a.spread() != b.spread()) return a.spread() < b.spread();
    return a.sets.front() < b.sets.front();
  }
};

State merged(State into, const State& from) {
  const size_t k = into.sets.size();
  for (size_t i = 0; i < k; ++i) into.sets[i].add(from.sets[k - 1 - i]);
  sort_descending(into.sets);
  return into;
}

std::priority_queue<State, std::vector<State>, Later> states_of(std::span<const int64_t> values, int64_t k,
                                                                bool equal_sizes) {
  std::vector<Item> items;
  for (size_t i = 0; i < values.size(); ++i) items.emplace_back(static_cast<int64_t>(i), values[i]);
  std::ranges::sort(items, {}, [](const Item& item) { return std::pair(item.second, item.first); });
  const size_t of_each = equal_sizes ? static_cast<size_t>(k) : 1;
  std::priority_queue<State, std::vector<State>, Later> states;
  for (size_t first = 0; first < items.size(); first += of_each) {
    State state{std::vector<Set>(static_cast<size_t>(k))};
    for (size_t i = 0; i < of_each; ++i) state.sets[i] = {items[first + i].second, {items[first + i]}};
    sort_descending(state.sets);
    states.push(std::move(state));
  }
  return states;
}

// Least work first and last, most in the middle.
void order_inwards(std::span<const int64_t> lengths, std::vector<Part>& parts) {
  auto work = [&](const Part& part) {
    int64_t sum = 0;
    for (int64_t index : part) sum += workload(lengths[static_cast<size_t>(index)]);
    return std::pair(sum, part.empty() ? 0 : part.front());
  };
  std::ranges::sort(parts, std::greater(), work);
  std::vector<Part> even, odd;
  for (size_t i = 0; i < parts.size(); ++i) (i % 2 ? odd : even).push_back(std::move(parts[i]));
  std::ranges::reverse(even);
  even.insert(even.end(), std::make_move_iterator(odd.begin()), std::make_move_iterator(odd.end()));
  parts = std::move(even);
}

}  // namespace

int64_t workload(int64_t length) {
  return 24576 * length + length * length;
}

std::vector<Part> balanced_parts(std::span<const int64_t> values, int64_t k, bool equal_sizes) {
  const int64_t count = std::ssize(values);
  SF_CHECK(k >= 1 && k <= count, Exit::kConfig, "{} sequences make no {} parts", count, k);
  SF_CHECK(!equal_sizes || count % k == 0, Exit::kConfig, "{} sequences make no {} parts of equal size", count, k);
  auto states = states_of(values, k, equal_sizes);
  while (states.size() > 1) {
    State first = states.top();
    states.pop();
    State second = states.top();
    states.pop();
    states.push(merged(std::move(first), second));
  }
  std::vector<Part> parts;
  for (const Set& set : states.top().sets) {
    SF_CHECK(!set.items.empty(), Exit::kSoftware, "one of {} parts of {} sequences is empty", k, count);
    Part& part = parts.emplace_back();
    for (const Item& item : set.items) part.push_back(item.first);
    std::ranges::sort(part);
  }
  return parts;
}

int64_t cost_of(std::span<const int64_t> lengths, const Part& part, bool padded) {
  int64_t sum = 0, longest = 0;
  for (int64_t index : part) {
    sum += lengths[static_cast<size_t>(index)];
    longest = std::max(longest, lengths[static_cast<size_t>(index)]);
  }
  return padded ? longest * std::ssize(part) : sum;
}

std::vector<Part> micro_batches(std::span<const int64_t> lengths, const Budget& budget) {
  if (lengths.empty()) return {};
  const auto longest = std::ranges::max_element(lengths);
  SF_CHECK(*longest <= budget.tokens, Exit::kConfig,
           "a micro-batch may hold {} tokens, but sequence {} has {}; raise the budget or shorten what is generated",
           budget.tokens, longest - lengths.begin(), *longest);
  const int64_t count = std::ssize(lengths), tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  std::vector<int64_t> work;
  for (int64_t length : lengths) work.push_back(workload(length));
  const int64_t fewest = std::max((tokens + budget.tokens - 1) / budget.tokens, budget.at_least);
  for (int64_t k = std::clamp<int64_t>(fewest, 1, count);; ++k) {
    std::vector<Part> parts = balanced_parts(work, k, false);
    const bool fits = std::ranges::all_of(
        parts, [&](const Part& part) { return cost_of(lengths, part, budget.padded) <= budget.tokens; });
    if (!fits && k < count && !fault("rl.count_without_budget")) continue;
    if (budget.large_inside) order_inwards(lengths, parts);
    return parts;
  }
}

}  // namespace sf::rl
