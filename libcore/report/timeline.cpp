// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "report/spans.h"
#include "report/svg.h"
#include "report/svg_canvas.h"

namespace sf::report {
namespace {

constexpr double kClose = 0.25;     // page units: what is nearer is one
constexpr double kGap = 3;          // between rows
constexpr size_t kMostLabels = 16;  // rows that are labelled
constexpr std::array<std::string_view, 8> kKinds = {"compute",   "gather",   "reduce", "wait",
                                                    "optimizer", "exchange", "data",   "publish"};

size_t index_of(std::string_view kind) {
  auto found = std::find(kKinds.begin(), kKinds.end(), kind);
  return static_cast<size_t>(found == kKinds.end() ? kKinds.begin() + 5 - kKinds.begin() : found - kKinds.begin());
}

struct Bar {
  size_t kind;
  double begin, end;
};

std::vector<Bar> bars_of(const std::vector<Span>& spans) {
  std::vector<Bar> bars;
  for (const Span& span : spans) {
    double work = std::min(span.begin + span.waited, span.end);
    if (work > span.begin) bars.push_back({index_of("wait"), span.begin, work});
    if (span.end > work) bars.push_back({index_of(span.kind), work, span.end});
  }
  return bars;
}

// As drawn: neighbours of one kind joined.
std::vector<Bar> joined(const std::vector<Bar>& bars, const Scale& x) {
  std::vector<Bar> drawn;
  for (const Bar& bar : bars) {
    Bar at{bar.kind, x.at(bar.begin), x.at(bar.end)};
    if (!drawn.empty() && drawn.back().kind == at.kind && at.begin - drawn.back().end < kClose)
      drawn.back().end = at.end;
    else
      drawn.push_back(at);
  }
  return drawn;
}

}  // namespace

std::string timeline(const StepSpans& spans) {
  double first = 0, last = 0;
  bool any = false;
  std::array<double, kKinds.size()> sums{};
  std::map<int64_t, std::vector<Bar>> rows;
  for (const auto& [rank, list] : spans.ranks) {
    for (const Bar& bar : rows[rank] = bars_of(list)) {
      first = any ? std::min(first, bar.begin) : bar.begin;
      last = any ? std::max(last, bar.end) : bar.end;
      any = true;
      sums[bar.kind] += bar.end - bar.begin;
    }
  }
  double whole = std::max(last - first, 1e-9), all = 0;
  for (double sum : sums) all += sum;
  std::vector<std::pair<std::string, int>> legend;
  for (size_t kind = 0; kind < kKinds.size(); ++kind)
    if (sums[kind] > 0)
      legend.emplace_back(fmt::format("{} {:.1f} %", kKinds[kind], 100 * sums[kind] / all), static_cast<int>(kind));
  Canvas canvas(
      fmt::format("Step {}: {:.2f} ms on {} rank{}", spans.step, 1e3 * whole, rows.size(), rows.size() == 1 ? "" : "s"),
      legend);
  double height = (Canvas::kBottom - canvas.top()) / static_cast<double>(std::max<size_t>(rows.size(), 1));
  double gap = std::min(kGap, height / 4), y = canvas.top();
  Scale place{.low = first, .high = first + whole, .from = Canvas::kLeft, .to = Canvas::kRight};
  for (const auto& [rank, bars] : rows) {
    if (rows.size() <= kMostLabels)
      canvas.text(Canvas::kLeft - 8, y + height / 2 + 4, "a", "end", fmt::format("rank {}", rank));
    for (const Bar& bar : joined(bars, place))
      canvas.add(fmt::format("<rect class=\"f {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                             colour_class(static_cast<int>(bar.kind)), page_number(bar.begin), page_number(y),
                             page_number(bar.end - bar.begin), page_number(height - gap)));
    y += height;
  }
  Scale ms{.low = 0, .high = 1e3 * whole, .from = Canvas::kLeft, .to = Canvas::kRight};
  canvas.x_axis(ms, ticks(0, 1e3 * whole, 6), "ms since the step began");
  return canvas.finish();
}

}  // namespace sf::report
