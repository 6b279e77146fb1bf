// SPDX-License-Identifier: Apache-2.0
#include "report/svg.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/svg_canvas.h"

namespace sf::report {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Ticks, AreRoundAndInside) {
  EXPECT_EQ(ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(0.9, 2.1, 5), (std::vector<double>{1, 1.5, 2}));
  EXPECT_EQ(tick_text(0.25, 0.05), "0.25");
  EXPECT_EQ(tick_text(20000, 5000), "20k");
  EXPECT_EQ(tick_text(3, 1), "3");
}

TEST(Smoothed, StartsAtTheFirstValueAndKeepsGaps) {
  std::vector<double> result = smoothed({4, NAN, 4, 4}, 10);
  EXPECT_DOUBLE_EQ(result[0], 4);
  EXPECT_TRUE(std::isnan(result[1]));
  EXPECT_DOUBLE_EQ(result[3], 4);
}

TEST(Thinned, KeepsMeansAndExtremesOfBins) {
  Series series;
  for (int i = 0; i < 100; ++i) {
    series.x.push_back(i);
    series.y.push_back(i % 10);
  }
  Series less = thinned(series, 10);
  ASSERT_EQ(less.x.size(), 10u);
  EXPECT_DOUBLE_EQ(less.y[0], 4.5);
  EXPECT_DOUBLE_EQ(less.low[3], 0);
  EXPECT_DOUBLE_EQ(less.high[3], 9);
  EXPECT_EQ(thinned(series, 100).x.size(), 100u);
}

TEST(LineChart, DrawsOneLineASeriesAndBreaksItAtGaps) {
  LineChart chart{.title = "Loss", .x_label = "step", .y_label = "nats"};
  chart.series = {{.name = "a", .x = {0, 1, 2, 3}, .y = {1, NAN, 2, 3}}};
  std::string svg = line_chart(chart);
  EXPECT_EQ(count(svg, "class=\"s c0\""), 1u);
  size_t at = svg.find("class=\"s c0\"");
  std::string path = svg.substr(at, svg.find("/>", at) - at);
  EXPECT_EQ(count(path, "M"), 2u) << path;
  EXPECT_EQ(count(path, "L"), 1u) << path;
}

TEST(LineChart, SurvivesEmptyAndConstantValues) {
  LineChart chart{.title = "t"};
  EXPECT_EQ(count(line_chart(chart), "nan"), 0u);
  chart.series = {{.x = {5}, .y = {2}}, {.x = {1, 2}, .y = {NAN, NAN}}};
  std::string svg = line_chart(chart);
  EXPECT_EQ(count(svg, "nan"), 0u);
  EXPECT_EQ(count(svg, "inf"), 0u);
  EXPECT_EQ(count(svg, "<circle"), 1u);
}

TEST(LineChart, TextIsEscaped) {
  LineChart chart{.title = "a < b & \"c\""};
  EXPECT_EQ(count(line_chart(chart), "a &lt; b &amp; &quot;c&quot;"), 2u);
}

TEST(BarChart, SaysNotRunForAMissingValue) {
  BarChart chart{.title = "Acceptance", .groups = {"before", "after"}, .names = {"length"}, .values = {{1.05, NAN}}};
  std::string svg = bar_chart(chart);
  EXPECT_EQ(count(svg, ">not run<"), 1u);
  EXPECT_EQ(count(svg, ">1.05<"), 1u);
}

TEST(StackChart, PartsOfAColumnTouch) {
  StackChart chart{.title = "Time", .x = {1, 2}, .names = {"a", "b"}, .values = {{1, 1}, {1, 3}}};
  std::string svg = stack_chart(chart);
  EXPECT_EQ(count(svg, "<rect class=\"f c0\""), 3u);  // two columns and the legend
  EXPECT_EQ(count(svg, "<rect class=\"f c1\""), 3u);
}

TEST(Standalone, CarriesItsStyle) {
  std::string svg = standalone(line_chart({.title = "t"}));
  EXPECT_EQ(count(svg, "<style>"), 1u);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace sf::report
