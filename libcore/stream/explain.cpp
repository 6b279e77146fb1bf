// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stream/client.h"

namespace sf::stream {
namespace {

constexpr double kHardlyWaits =
    0.01;  // of the time: below, and with producers that said nothing of their own, the trainer limits

std::string who_limits(const StreamCounts& counts, double waits, double demand) {
  if (counts.tally.trained + counts.tally.voids == 0) return "nothing is trained yet";
  bool enough = counts.supply_per_s > 0 ? counts.supply_per_s >= demand : waits < kHardlyWaits;
  if (enough) return fmt::format("the trainer limits the producers (waits {:.1f} % of the time)", 100 * waits);
  return fmt::format("the producers limit the trainer (waits {:.1f} % of the time)", 100 * waits);
}

}  // namespace

std::string explain(const StreamCounts& counts, int ranks, int world) {
  const Tally& tally = counts.tally;
  std::string text = fmt::format("pipe{}: asked {} = trained {} + void {} + in flight {} + not yet answered {}",
                                 ranks < world ? fmt::format(" of {} of {} ranks", ranks, world) : "", tally.asked,
                                 tally.trained, tally.voids, tally.in_flight, tally.unanswered);
  text += fmt::format("; asked again {}, late {}, twice {} chunks, damaged {}", tally.again, tally.late,
                      counts.repeated, counts.corrupt);
  for (const Served& served : counts.producers) {
    const ProducerTally& its = served.tally;
    text += fmt::format("; {}: asked {}, answered {}", served.who, its.asked, its.answered);
    if (its.again > 0) text += fmt::format(", asked again {}", its.again);
    if (its.lost > 0) text += fmt::format(", lost {}", its.lost);
    if (its.overtaken > 0) text += fmt::format(", overtaken {}", its.overtaken);
  }
  // What the ranks would take if they never waited; counts of several ranks carry the sums of their times.
  double waits = counts.elapsed_s > 0 ? counts.waited_s / counts.elapsed_s : 0;
  double busy = counts.elapsed_s - counts.waited_s;
  double demand = busy > 0 ? static_cast<double>(tally.trained + tally.voids) / busy * world : 0;
  text += fmt::format("; supply {:.1f}/s, demand {:.1f}/s: {}", counts.supply_per_s, demand,
                      who_limits(counts, waits, demand));
  return text;
}

}  // namespace sf::stream
