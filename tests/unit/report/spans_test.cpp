// SPDX-License-Identifier: Apache-2.0
#include "report/spans.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/error.h"

namespace sf::report {
namespace {

namespace fs = std::filesystem;

struct RunFolder {
  fs::path dir;
  RunFolder() {
    char name[] = "/tmp/sf-spans-XXXXXX";
    dir = mkdtemp(name);
  }
  ~RunFolder() { fs::remove_all(dir); }
  fs::path file(int rank) const { return dir / fmt::format("spans-{}.jsonl", rank); }
  void write(int rank, std::initializer_list<int64_t> steps, const std::vector<Span>& spans) const {
    SpanWriter writer(file(rank), 0, rank);
    for (int64_t step : steps) writer.write(step, spans, 0);
  }
};

Error caught(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return {Exit::kOk, "nothing was refused"};
}

size_t count(const std::string& text, std::string_view part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

const std::vector<Span> kSpans = {
    {.kind = "data", .begin = 10, .end = 10.25},
    {.kind = "gather", .name = "gather x", .begin = 10.25, .end = 10.5, .waited = 0.125, .bytes = 4096},
    {.kind = "compute", .begin = 10.5, .end = 11}};

TEST(Spans, WhatIsWrittenIsReadBackByRankAndStep) {
  RunFolder run;
  run.write(0, {2, 100}, kSpans);
  run.write(1, {2, 100}, {kSpans[2]});
  StepSpans spans = read_spans(run.dir, 2);
  ASSERT_EQ(spans.ranks.size(), 2u);
  EXPECT_EQ(spans.step, 2);
  ASSERT_EQ(spans.ranks.at(0).size(), 3u);
  EXPECT_EQ(spans.ranks.at(0)[1].name, "gather x");
  EXPECT_EQ(spans.ranks.at(0)[1].waited, 0.125);
  EXPECT_EQ(spans.ranks.at(0)[1].bytes, 4096u);
  EXPECT_EQ(spans.ranks.at(1)[0].end, 11);
}

TEST(Spans, TheLastStepOfEveryRankIsTheDefault) {
  RunFolder run;
  run.write(0, {2, 100, 200}, kSpans);
  run.write(1, {2, 100}, kSpans);
  EXPECT_EQ(read_spans(run.dir, 0).step, 100);
}

TEST(Spans, AStepThatIsNotRecordedIsMissingInputAndNamesThoseThatAre) {
  RunFolder run;
  EXPECT_EQ(caught([&] { read_spans(run.dir, 0); }).code(), Exit::kNoInput);
  run.write(0, {2, 100}, kSpans);
  Error error = caught([&] { read_spans(run.dir, 3); });
  EXPECT_EQ(error.code(), Exit::kNoInput);
  EXPECT_NE(std::string(error.what()).find("step 3 has no spans; recorded steps: 2, 100"), std::string::npos)
      << error.what();
}

TEST(Spans, AResumedRunDropsSpansOfLaterStepsAndAFreshOneAll) {
  RunFolder run;
  run.write(0, {2, 100}, kSpans);
  { SpanWriter again(run.file(0), 50, 0); }
  EXPECT_EQ(read_spans(run.dir, 0).step, 2);
  { SpanWriter fresh(run.file(0), 0, 0); }
  EXPECT_FALSE(fs::exists(run.file(0)));
}

TEST(Spans, AFileThatIsFullTakesNoFurtherStep) {
  RunFolder run;
  SpanWriter writer(run.file(0), 0, 0);
  EXPECT_TRUE(writer.has_room());
  Span large = kSpans[1];
  large.name.assign(SpanWriter::kMostBytes, 'x');
  writer.write(2, {large}, 0);
  EXPECT_FALSE(writer.has_room());
}

TEST(Spans, ASpanThatEndsBeforeItBeginsIsBadData) {
  RunFolder run;
  run.write(0, {2}, {{.kind = "data", .begin = 2, .end = 1}});
  EXPECT_EQ(caught([&] { read_spans(run.dir, 2); }).code(), Exit::kData);
}

TEST(Timeline, DrawsARowARankWithTheWaitBeforeTheWork) {
  StepSpans spans{.step = 2, .ranks = {{0, kSpans}, {1, {kSpans[2]}}}};
  std::string svg = timeline(spans);
  EXPECT_NE(svg.find("Step 2: 1000.00 ms on 2 ranks"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">rank 0<"), std::string::npos);
  EXPECT_NE(svg.find(">rank 1<"), std::string::npos);
  // The plot is 572 wide: data 143, wait 71.5, gather 71.5, compute 286 from the middle; and rank 1's compute.
  EXPECT_EQ(count(svg, "width=\"143\""), 1u);
  EXPECT_EQ(count(svg, "x=\"201\" y=\"60\" width=\"71.5\""), 1u) << svg;
  EXPECT_EQ(count(svg, "x=\"272.5\""), 1u);
  EXPECT_EQ(count(svg, "x=\"344\" y=\"60\" width=\"286\""), 1u);
  EXPECT_EQ(count(svg, "width=\"286\""), 2u);
  for (const char* share : {"compute 66.7 %", "gather 8.3 %", "wait 8.3 %", "data 16.7 %"})
    EXPECT_NE(svg.find(share), std::string::npos) << share;
}

TEST(Timeline, NeighboursOfOneKindAreDrawnAsOne) {
  std::vector<Span> many;
  for (int i = 0; i < 20000; ++i) many.push_back({.kind = "compute", .begin = i * 1e-6, .end = (i + 1) * 1e-6});
  EXPECT_EQ(count(timeline({.step = 2, .ranks = {{0, many}}}), "<rect"), 2u);  // and the legend's
}

}  // namespace
}  // namespace sf::report
