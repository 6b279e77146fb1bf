// SPDX-License-Identifier: Apache-2.0
#include "tool/eval_series.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/fault.h"
#include "base/utf8.h"
#include "tool/eval_text.h"

namespace sf::tool {
namespace {

using score::Outcome;

constexpr uint64_t kSeed = 0;  // of bootstrap and sign flips; printed with the results

// The tallies of `entry` in the reference's order of questions.
std::vector<score::Tally> aligned(const EvalEntry& entry, const EvalEntry& reference) {
  if (entry.scores.ids == reference.scores.ids) return entry.summary.tallies;
  std::map<std::string_view, size_t> place;
  for (size_t i = 0; i < entry.scores.ids.size(); ++i) place[entry.scores.ids[i]] = i;
  std::vector<score::Tally> tallies;
  for (const std::string& id : reference.scores.ids) {
    auto found = place.find(id);
    SF_CHECK(found != place.end(), Exit::kData, "{} and {} answer different questions: {} has no answer in {}",
             reference.scores.origin, entry.scores.origin, id, entry.scores.origin);
    tallies.push_back(entry.summary.tallies[found->second]);
  }
  SF_CHECK(tallies.size() == entry.scores.ids.size(), Exit::kData, "{} answers {} questions, {} answers {}",
           entry.scores.origin, entry.scores.ids.size(), reference.scores.origin, tallies.size());
  return tallies;
}

std::string p_text(double p) {
  return p < 0.001 ? "<0.001" : fmt::format("{:.3f}", p);
}

std::string points(double share) {
  return fmt::format("{:+.1f}", 100 * share);
}

bool is_original(const EvalSeries& series, const EvalEntry& entry) {
  return entry.step && !entry.again && !(series.outside && &entry == &series.entries[0]);
}

void check_originals(const EvalSeries& series) {
  std::map<int64_t, std::string> originals;  // the files
  for (const EvalEntry& entry : series.entries) {
    if (!is_original(series, entry)) continue;
    auto [at, is_new] = originals.emplace(*entry.step, entry.scores.origin);
    SF_CHECK(is_new || fault("tool.replace_original"), Exit::kData,
             "{} and {} both claim step {}; score the later one with --again, so that it stands beside the first",
             at->second, entry.scores.origin, *entry.step);
  }
}

const EvalEntry* highest(const EvalSeries& series) {
  const EvalEntry* best = nullptr;
  for (const EvalEntry& entry : series.entries)
    if (is_original(series, entry) && (!best || entry.summary.rate > best->summary.rate)) best = &entry;
  return best;
}

std::string share_text(int64_t count, int64_t all) {
  if (all == 0) return "0/0";
  const auto some = static_cast<double>(count), whole = static_cast<double>(all);
  return fmt::format("{}/{}, {} % ({})", thousands(count), thousands(all), percent(some / whole),
                     percent_range(score::wilson(some, whole)));
}

// How much of the last one's gain is form: said where every answer weighs alike and one of them could not be read.
void add_gain(EvalSeries& series, const EvalEntry& last) {
  const EvalEntry& first = series.entries[series.reference];
  const score::Reading before = first.summary.reading(), after = last.summary.reading();
  if (&last == &first || first.summary.least != first.summary.most || last.summary.least != last.summary.most) return;
  if (before.readable == before.n && after.readable == after.n) return;
  const score::Gain gain = score::gain_of(before, after);
  series.notes.push_back(fmt::format(
      "{} against {}: {} points = {} of format (readable {} before, {} after) and {} of correctness (of readable {} "
      "before, {} after)",
      last.label, first.label, points(after.rate() - before.rate()), points(gain.format),
      share_text(before.readable, before.n), share_text(after.readable, after.n), points(gain.correctness),
      share_text(before.correct, before.readable), share_text(after.correct, after.readable)));
}

void add_notes(EvalSeries& series) {
  for (const EvalEntry& entry : series.entries)
    if (const std::string part = entry.scores.coverage(); !part.empty())
      series.notes.push_back(fmt::format("{} is of {} alone", entry.label, part));
  size_t comparisons = series.entries.size() - 1;
  if (comparisons == 0) return;
  series.notes.push_back(
      fmt::format("paired by question against {}: sign-flip test, bootstrap over questions, seed {}; p adjusted (Holm) "
                  "for {} comparison{}",
                  series.entries[series.reference].label, kSeed, comparisons, comparisons == 1 ? "" : "s"));
  const EvalEntry* best = highest(series);
  const EvalEntry* last = nullptr;
  size_t originals = 0;
  for (const EvalEntry& entry : series.entries)
    if (is_original(series, entry)) last = &entry, ++originals;
  if (last) add_gain(series, *last);
  if (!best || !last || originals < 3) return;
  if (best == last) {
    series.notes.push_back(fmt::format("{} is the last and the highest of {} checkpoints", last->label, originals));
    return;
  }
  score::Paired test = score::paired_test(aligned(*last, *best), best->summary.tallies, kSeed);
  series.notes.push_back(fmt::format(
      "{} is the highest of {} checkpoints, a choice made after looking; {} is the last: {} points apart, p {}{}",
      best->label, originals, last->label, points(test.difference), p_text(test.p),
      test.p > 0.05 ? ": no evidence of a difference" : ""));
}

}  // namespace

EvalSeries series_of(std::vector<score::Scores> files, const std::string& against, bool outside) {
  SF_CHECK(!files.empty(), Exit::kData, "there are no verdicts to report");
  EvalSeries series;
  series.outside = outside;
  for (score::Scores& scores : files) {
    SF_CHECK(!scores.answers.empty(), Exit::kData,
             "{}: holds no verdict, as a shard without questions; merge the shards", scores.origin);
    score::require_comparable(series.entries.empty() ? scores : series.entries[0].scores, scores);
    EvalEntry entry;
    entry.label = scores.label();  // as it is; whoever shows it writes out what it must not do
    if (const Json* step = scores.header.find("step"); step && step->is_int()) entry.step = step->as_int();
    entry.again = scores.header.get_bool("again", false);
    if (entry.again) entry.label += " again";
    entry.summary = summarise(scores);
    entry.scores = std::move(scores);
    series.entries.push_back(std::move(entry));
  }
  check_originals(series);
  if (!against.empty()) {
    auto found = std::find_if(series.entries.begin(), series.entries.end(),
                              [&](const EvalEntry& entry) { return entry.label == against; });
    std::vector<std::string> labels;
    for (const EvalEntry& entry : series.entries) labels.push_back(entry.label);
    SF_CHECK(found != series.entries.end(), Exit::kUsage, "--against {}: there are {}", against,
             fmt::join(labels, ", "));
    series.reference = static_cast<size_t>(found - series.entries.begin());
  }
  const EvalEntry& reference = series.entries[series.reference];
  std::vector<double> p;
  for (EvalEntry& entry : series.entries) {
    if (&entry == &reference) continue;
    entry.paired = score::paired_test(reference.summary.tallies, aligned(entry, reference), kSeed);
    p.push_back(entry.paired->p);
  }
  std::vector<double> adjusted = score::holm(p);
  size_t next = 0;
  for (EvalEntry& entry : series.entries)
    if (entry.paired) entry.adjusted_p = adjusted[next++];
  add_notes(series);
  return series;
}

std::vector<std::string> series_columns(const EvalSeries& series) {
  std::vector<std::string> columns = {"checkpoint", "correct", "pass@1", "95 %"};
  if (series.entries.size() > 1)
    columns.insert(columns.end(), {"vs " + series.entries[series.reference].label, "95 %", "p", "up/down"});
  bool many = std::any_of(series.entries.begin(), series.entries.end(),
                          [](const EvalEntry& entry) { return entry.summary.least > 1; });
  if (many) columns.insert(columns.end(), {"pass@n", "maj@n"});
  columns.insert(columns.end(), {"reward", "no answer", "cut", "tokens"});
  return columns;
}

std::vector<std::string> series_cells(const EvalSeries& series, const EvalEntry& entry) {
  const score::Summary& s = entry.summary;
  std::vector<std::string> cells = {entry.label,
                                    fmt::format("{}/{}", thousands(s.count(Outcome::kCorrect)), thousands(s.answers)),
                                    percent(s.rate), percent_range(s.interval)};
  if (entry.paired) {
    const score::Paired& test = *entry.paired;
    cells.insert(cells.end(),
                 {points(test.difference), fmt::format("{}..{}", points(test.interval.low), points(test.interval.high)),
                  p_text(entry.adjusted_p), fmt::format("{}/{}", test.up, test.down)});
  } else if (series.entries.size() > 1) {
    cells.insert(cells.end(), {"-", "-", "-", "-"});
  }
  if (series_columns(series).size() - cells.size() > 4) {
    cells.push_back(s.pass_at.empty() ? "-" : percent(s.pass_at.back().second));
    cells.push_back(percent(s.majority));
  }
  int64_t none = s.count(Outcome::kNoAnswer) + s.count(Outcome::kUnfinished) + s.count(Outcome::kTruncated) +
                 s.count(Outcome::kRefused);
  auto share = [&](int64_t count) {
    return s.answers == 0 ? std::string("-")
                          : percent(static_cast<double>(count) / static_cast<double>(s.answers)) + "%";
  };
  cells.insert(cells.end(), {fmt::format("{:+.4f}", score::reward_of_accuracy(s.rate)), share(none), share(s.cut),
                             s.with_tokens > 0 ? thousands(s.tokens) : "not said"});
  return cells;
}

std::vector<std::string> series_lines(const EvalSeries& series, size_t width) {
  std::vector<std::vector<std::string>> rows = {series_columns(series)};
  for (const EvalEntry& entry : series.entries) rows.push_back(series_cells(series, entry));
  std::vector<size_t> widths(rows[0].size(), 0);
  for (auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) {
      row[c] = printable(row[c]);  // before it is measured
      widths[c] = std::max(widths[c], row[c].size());
    }
  size_t shown = 0, used = 0;
  for (; shown < widths.size(); ++shown) {
    size_t more = widths[shown] + (shown == 0 ? 0 : 2);
    if (width > 0 && shown > 3 && used + more > width) break;
    used += more;
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < shown; ++c)
      line += c == 0 ? fmt::format("{:<{}}", row[c], widths[c]) : fmt::format("  {:>{}}", row[c], widths[c]);
    lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
  }
  for (const std::string& note : series.notes) lines.push_back("note: " + note);
  return lines;
}

Json series_json(const EvalSeries& series) {
  Json json = Json::object();
  const Json& header = series.entries[0].scores.header;
  for (const char* key : {"rule", "rule_version", "rule_digest", "questions_digest"})
    if (const Json* value = header.find(key)) json.set(key, *value);
  json.set("reference", series.entries[series.reference].label).set("seed", static_cast<int64_t>(kSeed));
  Json list = Json::array();
  for (const EvalEntry& entry : series.entries) {
    Json one = Json::object().set("label", entry.label).set("step", entry.step ? Json(*entry.step) : Json());
    const std::string part = entry.scores.coverage();
    one.set("part", part.empty() ? Json() : Json(part));
    one.set("again", entry.again).set("summary", entry.summary.to_json());
    if (entry.paired) {
      const score::Paired& test = *entry.paired;
      Json paired = Json::object().set("difference", test.difference);
      paired.set("interval_95", Json::Array{Json(test.interval.low), Json(test.interval.high)});
      paired.set("p", test.p).set("p_adjusted", entry.adjusted_p).set("exact", test.exact);
      const score::Gain gain =
          score::gain_of(series.entries[series.reference].summary.reading(), entry.summary.reading());
      paired.set("format", gain.format).set("correctness", gain.correctness);
      paired.set("up", test.up).set("down", test.down).set("equal", test.equal);
      one.set("against_reference", std::move(paired));
    }
    list.push(std::move(one));
  }
  Json notes = Json::array();
  for (const std::string& note : series.notes) notes.push(note);
  return json.set("checkpoints", std::move(list)).set("notes", std::move(notes));
}

}  // namespace sf::tool
