// SPDX-License-Identifier: Apache-2.0
// sf-eval checkpoints and watch: answers of a run's checkpoints and verdicts about them, each made once.
#include <fmt/core.h>

#include <chrono>
#include <set>
#include <thread>

#include "base/deadline.h"
#include "base/error.h"
#include "run/entry.h"
#include "run/exam.h"
#include "tool/eval_score.h"
#include "tool/run_exams.h"

namespace sf::run {
namespace {

namespace fs = std::filesystem;
using tool::Candidate;

constexpr auto kLook = std::chrono::milliseconds(200);  // between two looks for a new checkpoint

class Series {
 public:
  explicit Series(app::Invocation& invocation)
      : invocation_(invocation),
        exam_(tool::read_exam(invocation, true)),
        rule_(tool::checked_rule(invocation, exam_)) {}

  // 0, or 75: stopped, and what was done is kept.
  int evaluate(const Candidate& candidate) {
    const tool::ExamFiles files = tool::files_of(invocation_, exam_, rule_, candidate);
    const bool before = files.found().has_value();
    if (!before) {
      fs::create_directories(files.answers.parent_path());
      fs::create_directories(files.verdicts.parent_path());
      if (!fs::exists(files.answers))
        if (int status = examine(invocation_, *comm::make_single(), exam_, candidate, files.answers).status)
          return status;
      tool::score_into(invocation_, files.answers, files.verdicts);
    }
    tool::tell_verdicts(invocation_, *candidate.step, files, before);
    return 0;
  }

 private:
  app::Invocation& invocation_;
  const tool::Exam exam_;
  const std::string rule_;
};

int eval_checkpoints(app::Invocation& invocation) {
  invocation.stop();  // from here on a request to stop keeps what is done
  Series series(invocation);
  const std::vector<Candidate> all = tool::candidates(invocation);
  SF_CHECK(!all.empty(), Exit::kNoInput, "{} has no checkpoint yet", invocation.positional().front());
  for (const Candidate& candidate : all) {
    if (invocation.stop() != app::Stop::kNone) return static_cast<int>(Exit::kAgain);
    if (int status = series.evaluate(candidate)) return status;
  }
  return 0;
}

// A trainer keeps its newest checkpoints: one may be gone before its turn.
bool is_gone(const fs::path& dir) {
  std::error_code ignored;
  return !fs::exists(dir, ignored);
}

int eval_watch(app::Invocation& invocation) {
  invocation.stop();
  const auto idle =
      static_cast<double>(invocation.has("idle") ? tool::whole_option(invocation, "idle", 1, 1'000'000'000) : 3600);
  Series series(invocation);
  const fs::path run = invocation.positional().front();
  std::set<fs::path> seen;
  double since = monotonic_s();
  invocation.log(fmt::format("waits for checkpoints of {}; ends after {} s without one", run.string(), idle));
  while (invocation.stop() == app::Stop::kNone) {
    bool fresh = false;
    for (const Candidate& candidate : fs::is_directory(run) ? tool::candidates(invocation) : std::vector<Candidate>{}) {
      const fs::path& dir = candidate.adapter ? *candidate.adapter : candidate.target;
      if (!seen.insert(dir).second || invocation.stop() != app::Stop::kNone) continue;
      fresh = true;
      try {
        if (int status = series.evaluate(candidate)) return status;
      } catch (const Error&) {
        if (!is_gone(dir)) throw;
        invocation.warn(fmt::format("step {} was removed before it was evaluated", *candidate.step));
      }
    }
    if (fresh) since = monotonic_s();
    if (monotonic_s() - since > idle) return 0;
    std::this_thread::sleep_for(kLook);
  }
  return static_cast<int>(Exit::kAgain);
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_eval_checkpoints(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::eval_checkpoints(*invocation); });
}
extern "C" int sf_eval_watch(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::eval_watch(*invocation); });
}
