// SPDX-License-Identifier: Apache-2.0
// sf-eval checkpoints and watch: answers of a run's checkpoints and verdicts about them, each made once.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <span>
#include <thread>

#include "base/deadline.h"
#include "base/error.h"
#include "base/new_dirs.h"
#include "ckpt/checkpoint.h"
#include "run/entry.h"
#include "run/exam.h"
#include "tool/eval_score.h"
#include "tool/run_exams.h"
#include "tool/series_check.h"

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

  // 0, or 75: stopped, and what was done is kept. The candidate was checked before.
  int evaluate(const Candidate& candidate) {
    const tool::ExamFiles files = tool::files_of(invocation_, exam_, rule_, candidate);
    const bool before = files.found().has_value();
    if (!before) {
      for (const std::string& why : files.damage())
        invocation_.warn(fmt::format("verdicts that are not whole are made again: {}", why));
      if (int status = answer(candidate, files)) return status;
    }
    tool::tell_verdicts(invocation_, *candidate.step, files, before);
    return 0;
  }

  // Of what is to be made: that it can be, and that it goes with what is there.
  void check(std::span<const Candidate> all) const {
    tool::check_candidates(invocation_, all);
    tool::refuse_other_series(invocation_, exam_, all);
  }

 private:
  int answer(const Candidate& candidate, const tool::ExamFiles& files) {
    const NewDirs answers(files.answers.parent_path()), verdicts(files.verdicts.parent_path());
    if (!fs::exists(files.answers))
      if (int status = examine(invocation_, *comm::make_single(), exam_, candidate, files.answers).status)
        return status;
    try {
      tool::score_into(invocation_, files.answers, files.verdicts);
    } catch (const Error& error) {
      if (error.code() != Exit::kData) throw;
      fail(Exit::kData, "{}; remove {}, and the same line makes it again", error.what(), files.answers.string());
    }
    return 0;
  }

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

// Why a checkpoint cannot be opened yet; empty: it can.
std::string missing_of(const Candidate& candidate) {
  try {
    ckpt::Checkpoint::open(candidate.adapter.value_or(candidate.target));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// A run's checkpoints, each once.
class Watch {
 public:
  Watch(app::Invocation& invocation, Series& series)
      : invocation_(invocation), series_(series), run_(invocation.positional().front()) {}

  // 0, or 75. `fresh`: whether there was a new one.
  int look(bool& fresh) {
    SF_CHECK(!fs::exists(run_) || fs::is_directory(run_), Exit::kNoInput, "{} is no directory of a run", run_.string());
    const std::vector<Candidate> open = unseen();
    if (open.empty()) return 0;
    check(open);
    for (const Candidate& candidate : open) {
      if (invocation_.stop() != app::Stop::kNone) return 0;
      seen_.insert(place_of(candidate));
      fresh = true;
      try {
        if (int status = series_.evaluate(candidate)) return status;
      } catch (const Error&) {
        if (!is_gone(place_of(candidate))) throw;
        invocation_.warn(fmt::format("step {} was removed before it was evaluated", *candidate.step));
      }
    }
    return 0;
  }

 private:
  static const fs::path& place_of(const Candidate& candidate) {
    return candidate.adapter ? *candidate.adapter : candidate.target;
  }

  std::vector<Candidate> unseen() {
    std::vector<Candidate> open;
    if (!fs::exists(run_)) return open;
    for (Candidate& candidate : tool::candidates(invocation_))
      if (!seen_.contains(place_of(candidate)) && !awaits(candidate)) open.push_back(std::move(candidate));
    return open;
  }

  // All of them before the first is answered: a wrong --target shows in an adapter, not in itself.
  void check(const std::vector<Candidate>& open) const {
    try {
      series_.check(open);
    } catch (const Error&) {
      if (std::ranges::none_of(open, [](const Candidate& one) { return is_gone(place_of(one)); })) throw;
    }
  }

  // A directory that is being copied, or was left behind, is no checkpoint yet; said once.
  bool awaits(const Candidate& candidate) {
    const fs::path& dir = place_of(candidate);
    const std::string why = dir == invocation_.get("target", "") ? "" : missing_of(candidate);
    if (why.empty() || is_gone(dir)) return false;
    if (awaited_.insert(dir).second)
      invocation_.warn(fmt::format("step {} is no whole checkpoint yet, and is awaited: {}", *candidate.step, why));
    return true;
  }

  app::Invocation& invocation_;
  Series& series_;
  const fs::path run_;
  std::set<fs::path> seen_, awaited_;
};

int eval_watch(app::Invocation& invocation) {
  invocation.stop();
  const double idle = tool::idle_option(invocation);
  tool::check_series_output(invocation);
  Series series(invocation);
  Watch watch(invocation, series);
  double since = monotonic_s();
  invocation.log(
      fmt::format("waits for checkpoints of {}; ends after {} s without one", invocation.positional().front(), idle));
  while (invocation.stop() == app::Stop::kNone) {
    bool fresh = false;
    if (int status = watch.look(fresh)) return status;
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
