// SPDX-License-Identifier: Apache-2.0
#include "tool/eval_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "score/statistics.h"
#include "score/strings.h"
#include "tool/eval_text.h"

namespace sf::tool {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // spreadsheets write it
constexpr double kMostStep = 9'007'199'254'740'992;          // whole numbers up to here are doubles

double number_of(std::string_view text, std::string_view origin, size_t line) {
  double value = 0;
  text = score::trimmed_ascii(text);
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && std::isfinite(value), Exit::kData,
           "{}:{}: '{}' is no number", origin, line, text);
  return value;
}

int64_t whole_of(std::string_view text, std::string_view origin, size_t line) {
  const double value = number_of(text, origin, line);
  SF_CHECK(value >= 0 && value <= kMostStep && value == std::floor(value), Exit::kData,
           "{}:{}: '{}' is no whole number from 0", origin, line, score::trimmed_ascii(text));
  return std::llround(value);
}

struct Columns {
  size_t step = SIZE_MAX, value = SIZE_MAX, again = SIZE_MAX, count = 0;
  bool reward = false;
};

Columns columns_of(std::string_view header, std::string_view origin) {
  Columns columns;
  std::vector<std::string> names = score::split(header, ",");
  columns.count = names.size();
  auto take = [&](size_t& place, size_t i) {
    SF_CHECK(place == SIZE_MAX, Exit::kData, "{}:1: {} and {} say the same thing twice; keep one of the columns",
             origin, names[place], names[i]);
    place = i;
  };
  for (size_t i = 0; i < names.size(); ++i) {
    names[i] = score::lowered(score::trimmed_ascii(names[i]));
    if (names[i] == "step") take(columns.step, i);
    if (names[i] == "again") take(columns.again, i);
    if (names[i] == "reward" || names[i] == "accuracy") take(columns.value, i);
  }
  SF_CHECK(columns.step != SIZE_MAX && columns.value != SIZE_MAX, Exit::kData,
           "{}:1: wanted columns step and reward (or accuracy), found {}", origin, header);
  columns.reward = names[columns.value] == "reward";
  return columns;
}

// A step has one original; what was evaluated again says so.
void check_originals(const std::vector<CurvePoint>& points, std::string_view origin) {
  const CurvePoint* before = nullptr;
  for (const CurvePoint& point : points) {
    if (point.again) continue;
    SF_CHECK(!before || before->step != point.step, Exit::kData,
             "{}: step {} occurs twice; a column again with 1 marks what was evaluated again", origin, point.step);
    before = &point;
  }
}

}  // namespace

std::vector<CurvePoint> read_curve(std::string_view csv, std::string_view origin, int64_t of) {
  if (csv.starts_with(kByteOrderMark)) csv.remove_prefix(kByteOrderMark.size());
  std::vector<std::string> lines = score::split(csv, "\n");
  Columns columns = columns_of(lines[0], origin);
  std::vector<CurvePoint> points;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (score::trimmed_ascii(lines[i]).empty()) continue;
    std::vector<std::string> cells = score::split(lines[i], ",");
    SF_CHECK(cells.size() == columns.count, Exit::kData, "{}:{}: {} cells, wanted {}", origin, i + 1, cells.size(),
             columns.count);
    double value = number_of(cells[columns.value], origin, i + 1);
    double share = columns.reward ? score::accuracy_of_reward(value) : value;
    double count = share * static_cast<double>(of);
    SF_CHECK(
        count > -0.005 && count < static_cast<double>(of) + 0.005 && std::abs(count - std::nearbyint(count)) <= 0.005,
        Exit::kData, "{}:{}: {} is no whole number of {} answers (it would be {:.3f}); --of says how many there were",
        origin, i + 1, value, of, count);
    CurvePoint point{
        .step = whole_of(cells[columns.step], origin, i + 1), .again = false, .correct = std::llround(count), .of = of};
    if (columns.again != SIZE_MAX) {
      const int64_t again = whole_of(cells[columns.again], origin, i + 1);
      SF_CHECK(again <= 1, Exit::kData, "{}:{}: again is {}; wanted 0 or 1", origin, i + 1, again);
      point.again = again == 1;
    }
    points.push_back(point);
  }
  SF_CHECK(!points.empty(), Exit::kData, "{}: holds no point", origin);
  std::stable_sort(points.begin(), points.end(),
                   [](const CurvePoint& a, const CurvePoint& b) { return a.step < b.step; });
  check_originals(points, origin);
  return points;
}

namespace {

std::vector<std::string> cells_of(const CurvePoint& point) {
  score::Interval range = score::wilson(static_cast<double>(point.correct), static_cast<double>(point.of));
  return {fmt::format("step {}{}", point.step, point.again ? " again" : ""),
          fmt::format("{}/{}", point.correct, point.of), percent(point.share()), percent_range(range),
          fmt::format("{:+.4f}", score::reward_of_accuracy(point.share()))};
}

const std::vector<std::string> kColumns = {"checkpoint", "correct", "pass@1", "95 % (Wilson)", "reward"};

std::vector<std::string> notes_of(const std::vector<CurvePoint>& points) {
  const CurvePoint* best = nullptr;
  const CurvePoint* last = nullptr;
  size_t originals = 0;
  for (const CurvePoint& point : points) {
    if (point.again) continue;
    ++originals;
    last = &point;
    if (!best || point.correct > best->correct) best = &point;
  }
  std::vector<std::string> notes;
  if (best && last && best != last)
    notes.push_back(fmt::format("step {} is the highest of {} points, a choice made after looking; step {} is the last",
                                best->step, originals, last->step));
  notes.push_back(
      fmt::format("one of {} answers is {:.2f} points; points of the same questions need a paired test, which a curve "
                  "does not allow",
                  points[0].of, 100.0 / static_cast<double>(points[0].of)));
  return notes;
}

}  // namespace

report::EvalPage curve_page(const std::vector<CurvePoint>& points, const std::string& title) {
  report::EvalPage page;
  page.title = title;
  page.subtitle = fmt::format("a recorded curve of {} points, {} answers each", points.size(), points[0].of);
  page.columns = kColumns;
  for (const CurvePoint& point : points) {
    score::Interval range = score::wilson(static_cast<double>(point.correct), static_cast<double>(point.of));
    report::EvalPoint drawn;
    drawn.label = fmt::format("step {}", point.step);
    drawn.step = static_cast<double>(point.step);
    drawn.again = point.again;
    drawn.rate = point.share();
    drawn.low = range.low;
    drawn.high = range.high;
    drawn.cells = cells_of(point);
    page.points.push_back(std::move(drawn));
  }
  const CurvePoint &first = points.front(), &last = points.back();
  page.tiles = {{fmt::format("{}/{} → {}/{}", first.correct, first.of, last.correct, last.of),
                 fmt::format("correct, step {} to {}", first.step, last.step)}};
  page.notes = notes_of(points);
  return page;
}

std::vector<std::string> curve_lines(const std::vector<CurvePoint>& points) {
  std::vector<std::string> lines = {
      fmt::format("{:<14}{:>9}{:>8}{:>15}{:>9}", kColumns[0], kColumns[1], kColumns[2], kColumns[3], kColumns[4])};
  for (const CurvePoint& point : points) {
    std::vector<std::string> c = cells_of(point);
    lines.push_back(fmt::format("{:<14}{:>9}{:>8}{:>15}{:>9}", c[0], c[1], c[2], c[3], c[4]));
  }
  for (const std::string& note : notes_of(points)) lines.push_back("note: " + note);
  return lines;
}

Json curve_json(const std::vector<CurvePoint>& points) {
  Json list = Json::array();
  for (const CurvePoint& point : points) {
    score::Interval range = score::wilson(static_cast<double>(point.correct), static_cast<double>(point.of));
    list.push(Json::object()
                  .set("step", point.step)
                  .set("again", point.again)
                  .set("correct", point.correct)
                  .set("of", point.of)
                  .set("pass_at_1", point.share())
                  .set("interval_95", Json::Array{Json(range.low), Json(range.high)})
                  .set("reward", score::reward_of_accuracy(point.share())));
  }
  return Json::object().set("points", std::move(list));
}

}  // namespace sf::tool
