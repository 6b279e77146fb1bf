// SPDX-License-Identifier: Apache-2.0
#include "run/capture_passes.h"

#include <algorithm>

#include "base/deadline.h"
#include "comm/agree.h"
#include "stream/frame.h"

namespace sf::run {
namespace {

int64_t tokens_of(const text::ChatRow& row) {
  return row.rejected.empty() ? std::ssize(row.encoded.ids) : 0;
}

std::string records_of(std::span<const stream::Sample> samples) {
  std::string bytes;
  for (const stream::Sample& sample : samples) bytes += stream::encode_record(sample);
  return bytes;
}

std::vector<stream::Sample> samples_of(std::span<const std::byte> bytes) {
  std::vector<stream::Sample> samples;
  while (!bytes.empty()) {
    size_t used = 0;
    samples.push_back(stream::decode_record(bytes, used));
    bytes = bytes.subspan(used);
  }
  return samples;
}

}  // namespace

Shares share_out(std::span<const text::ChatRow* const> rows, int world, int64_t most) {
  Shares shares{std::vector<std::vector<size_t>>(static_cast<size_t>(world)), 0};
  std::vector<int64_t> load(static_cast<size_t>(world), 0);
  for (const text::ChatRow* row : rows) {
    const auto least = static_cast<size_t>(std::ranges::min_element(load) - load.begin());
    const int64_t tokens = tokens_of(*row);
    if (load[least] > 0 && load[least] + tokens > most) break;
    load[least] += tokens;
    shares.of[least].push_back(shares.taken++);
  }
  return shares;
}

size_t Passes::run(std::span<const text::ChatRow* const> rows,
                   const std::function<void(size_t, stream::Sample)>& take) {
  const double start = monotonic_s();
  const Shares shares = share_out(rows, group_.world(), most_);
  const std::vector<size_t>& mine = shares.of[static_cast<size_t>(group_.rank())];
  std::vector<const text::ChatRow*> kept;
  for (size_t i : mine)
    if (rows[i]->rejected.empty()) kept.push_back(rows[i]);
  const auto all = rows.first(shares.taken);
  const bool any = std::ranges::any_of(all, [](const text::ChatRow* row) { return row->rejected.empty(); });
  const bool together = capture_.states().shared();  // then its own calls make an error every rank's
  std::vector<Computed> computed;
  if (together && any) computed = capture_.compute(kept);
  comm::agree(group_, call("captured rows"), [&] {
    if (!together && !kept.empty()) computed = capture_.compute(kept);
    size_t next = 0;
    for (size_t i : mine) {
      const bool is_void = !rows[i]->rejected.empty();
      take(i, capture_.sample_of(*rows[i], is_void ? Computed{} : std::move(computed[next++])));
    }
  });
  for (const text::ChatRow* row : all) tokens_ += tokens_of(*row);
  seconds_ += monotonic_s() - start;
  return shares.taken;
}

std::vector<std::vector<stream::Sample>> samples_on_first_rank(comm::Group& group, std::span<const stream::Sample> mine,
                                                               const comm::Call& call) {
  if (group.world() == 1) return {{mine.begin(), mine.end()}};
  const std::string bytes = records_of(mine);
  std::vector<std::span<const std::byte>> to(static_cast<size_t>(group.world()));
  to[0] = std::as_bytes(std::span(bytes));
  std::vector<std::vector<stream::Sample>> all;
  for (const std::vector<std::byte>& from : group.all_to_all(to, call))
    if (group.rank() == 0) all.push_back(samples_of(from));
  return all;
}

std::vector<stream::Sample> samples_from_first_rank(comm::Group& group,
                                                    std::span<const std::vector<stream::Sample>> all,
                                                    const comm::Call& call) {
  if (group.world() == 1) return all[0];
  std::vector<std::string> bytes(static_cast<size_t>(group.world()));
  std::vector<std::span<const std::byte>> to(bytes.size());
  for (size_t r = 0; r < all.size(); ++r) {
    bytes[r] = records_of(all[r]);
    to[r] = std::as_bytes(std::span(bytes[r]));
  }
  return samples_of(group.all_to_all(to, call)[0]);
}

}  // namespace sf::run
