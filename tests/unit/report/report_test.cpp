// SPDX-License-Identifier: Apache-2.0
#include "report/report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace sf::report {
namespace {

Record record(const std::string& event, int64_t step, Json fields) {
  return {.event = event, .t = 1000.0 + static_cast<double>(step), .step = step, .fields = std::move(fields)};
}

std::vector<Record> run_of(int steps) {
  std::vector<Record> records = {
      record("run", 0, Json::object().set("command", "sf-train eagle3 <x>").set("ranks", 2))};
  for (int i = 1; i <= steps; ++i)
    records.push_back(record("step", i,
                             Json::object()
                                 .set("loss", 4.0 / i)
                                 .set("tokens", 1000)
                                 .set("acc_0", 0.5)
                                 .set("acc_1", 0.25)
                                 .set("time_forward_s", 0.25)
                                 .set("time_backward_s", 0.75)
                                 .set("memory_at_rest_predicted", 1048576)
                                 .set("memory_at_rest_measured", 2097152)));
  return records;
}

std::vector<std::string> names(const std::vector<Chart>& charts) {
  std::vector<std::string> result;
  for (const Chart& chart : charts) result.push_back(chart.name);
  return result;
}

TEST(Report, ShowsWhatWasMeasuredAndNothingElse) {
  EXPECT_EQ(names(charts_of(run_of(20), {})), (std::vector<std::string>{"loss", "accuracy", "time", "memory"}));
}

TEST(Report, AcceptanceIsShownWhenGiven) {
  Json before = Json::object().set("label", "before").set("acceptance_length", 1.01).set("prompts", 48);
  Json after = Json::object().set("label", "after").set("acceptance_length", 1.75).set("prompts", 48);
  after.set("positions", Json(Json::Array{Json::object().set("accepted", 5).set("tried", 10).set("rate", 0.5)}));
  std::string page = page_of("run", run_of(20), {before, after});
  EXPECT_NE(page.find("1.01 → 1.75"), std::string::npos);
  EXPECT_NE(page.find("n = 48 prompts"), std::string::npos);
  EXPECT_NE(page.find("not run"), std::string::npos);  // positions of the first
}

TEST(Report, TimeSharesAddUp) {
  std::vector<Chart> charts = charts_of(run_of(20), {});
  EXPECT_EQ(charts.at(2).name, "time");
  EXPECT_EQ(charts.at(2).note, "forward 25.0 % · backward 75.0 % of the steps' time on rank 0.");
}

TEST(Report, ThePageIsSelfContainedAndEscaped) {
  std::string page = page_of("run", run_of(20), {});
  for (const char* outside : {"src=", "href=", "<script", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  EXPECT_NE(page.find("sf-train eagle3 &lt;x&gt;"), std::string::npos);
}

// The first record of a run that learns from rewards is that before its first step; nothing stands between two
// evaluations but their line.
std::vector<Record> rewarded() {
  std::vector<Record> records = {record("run", 0, Json::object().set("command", "sf-train grpo"))};
  for (int i = 0; i <= 4; ++i) {
    Json fields = Json::object();
    if (i > 0) fields.set("grpo/drawn_score", 0.1 * i).set("training/rollout_probs_diff_mean", 1e-6);
    if (i > 0) fields.set("response_length/mean", 20 + i).set("actor/grad_norm", 0.5).set("actor/lr", 1e-4);
    if (i > 0) fields.set("time_rollout_s", 3.0).set("time_update_s", 1.0);
    if (i % 2 == 0) {
      fields.set("val/n", 200).set("val/correct", 40 + 30 * i).set("val/readable", 180);
      fields.set("val/acc_low", 0.1).set("val/acc_high", 0.9);
    }
    records.push_back(record("step", i, std::move(fields)));
  }
  return records;
}

TEST(Report, ShowsRewardsAndWhatIsHeldOutFromStepZero) {
  const std::vector<Chart> charts = charts_of(rewarded(), {});
  EXPECT_EQ(names(charts),
            (std::vector<std::string>{"held", "reward", "mismatch", "length", "grad_norm", "lr", "time"}));
  EXPECT_NE(charts[0].svg.find("correct of readable"), std::string::npos);
  EXPECT_NE(page_of("run", rewarded(), {}).find("40 → 160 of 200"), std::string::npos);
  EXPECT_EQ(charts.back().note, "rollout 75.0 % · update 25.0 % of the steps' time on rank 0.");
}

TEST(Report, NoStepIsBadData) {
  EXPECT_THROW(page_of("run", {record("run", 0, Json::object())}, {}), Error);
}

TEST(Report, WritesThePageAndEachChart) {
  char name[] = "/tmp/sf-report-XXXXXX";
  std::filesystem::path dir = mkdtemp(name);
  {
    MetricsWriter writer = MetricsWriter::open(dir / "metrics.jsonl", 0);
    writer.scalar(1, "loss", 2);
    writer.flush(1);
  }
  std::vector<std::filesystem::path> files = write_report(dir, dir / "report.html", {});
  EXPECT_EQ(files, (std::vector<std::filesystem::path>{dir / "report.html", dir / "report-loss.svg"}));
  for (const auto& file : files) EXPECT_TRUE(std::filesystem::exists(file)) << file;
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace sf::report
