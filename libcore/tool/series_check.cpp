// SPDX-License-Identifier: Apache-2.0
#include "tool/series_check.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/draft.h"
#include "text/chat.h"
#include "tool/eval_data.h"
#include "tool/eval_score.h"
#include "tool/facts.h"
#include "tool/outputs.h"
#include "tool/run_dir.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

struct Published {
  fs::path file;
  Json header;
};

// Of the directory itself and of its parts; what cannot be read is not done, and made again.
std::vector<Published> published_in(const fs::path& out) {
  std::vector<fs::path> dirs = {out};
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(out, ignored))
    if (entry.is_directory(ignored) && entry.path().filename().string().find(".of-") != std::string::npos)
      dirs.push_back(entry.path());
  std::vector<Published> found;
  for (const fs::path& dir : dirs) {
    if (!fs::is_directory(dir, ignored)) continue;
    for (const fs::path& file : verdicts_in(dir))
      if (std::optional<Json> header = scores_header(file)) found.push_back({file, std::move(*header)});
  }
  return found;
}

[[noreturn]] void other_series(const Published& there, const std::string& why) {
  fail(Exit::kProtocol, "{} was made with other settings than these: {}; give those, or another -o",
       there.file.string(), why);
}

void compare_settings(const Published& there, const Exam& exam, const score::Rule& rule) {
  const Json* facts = there.header.find("facts");
  if (!facts || !facts->contains("prompts")) return;  // scored by hand
  const std::string why = facts_difference(*facts, exam.facts, {"target", "adapter", "step", "tokenizer", "template"});
  if (!why.empty()) other_series(there, why);
  const std::string golds = there.header.get_string("questions_digest", "");
  if (golds != exam.book.digest()) other_series(there, "the golds of --questions were others");
  if (there.header.get_string("rule", "") != rule.name()) return;  // the report shows how rules agree
  if (there.header.get_string("rule_digest", "") != rule.digest())
    other_series(there,
                 fmt::format("rule {} had other options (--allow-unfinished, --last-number, --pattern) or another "
                             "version",
                             rule.name()));
}

void compare_weights(const Published& there, const Exam& exam, const Candidate& candidate, const score::Rule& rule) {
  const Json* facts = there.header.find("facts");
  if (there.header.get_int("step", -1) != *candidate.step || there.header.get_string("rule", "") != rule.name()) return;
  SF_CHECK(facts && facts->contains("prompts"), Exit::kProtocol,
           "{} holds verdicts of step {} already, of answers that were made elsewhere; choose another -o",
           there.file.string(), *candidate.step);
  const std::string why = facts_difference(*facts, facts_of(exam, candidate));
  SF_CHECK(why.empty(), Exit::kProtocol, "{} is of another checkpoint of step {}: {}; choose another -o",
           there.file.string(), *candidate.step, why);
}

// Of what training changes nothing of.
void check_same_model(const ckpt::Checkpoint& target, const ckpt::Checkpoint& trained) {
  for (const char* key : {"architectures", "hidden_size", "num_hidden_layers", "vocab_size"}) {
    const Json *a = target.config().find(key), *b = trained.config().find(key);
    SF_CHECK((a && b) ? *a == *b : a == b, Exit::kProtocol,
             "{} did not begin from --target {}: {} is {} and {}; give the target it began from",
             trained.dir().string(), target.dir().string(), key, b ? b->dump() : "none", a ? a->dump() : "none");
  }
  const std::string ours = text::digest_words(target.dir()).tokenizer;
  const std::string theirs = text::digest_words(trained.dir()).tokenizer;
  SF_CHECK(ours == theirs, Exit::kProtocol,
           "{} did not begin from --target {}: tokenizers of digest {:.16} and {:.16}; give the target it began from",
           trained.dir().string(), target.dir().string(), theirs, ours);
}

}  // namespace

void refuse_other_series(const app::Invocation& invocation, const Exam& exam, std::span<const Candidate> candidates) {
  const score::Rule rule = rule_of(invocation);
  for (const Published& there : published_in(invocation.get("output"))) {
    if (there.header.get_bool("again", false)) continue;
    compare_settings(there, exam, rule);
    for (const Candidate& candidate : candidates) compare_weights(there, exam, candidate, rule);
  }
}

void check_candidates(const app::Invocation& invocation, std::span<const Candidate> candidates) {
  std::optional<ckpt::Checkpoint> target;
  if (invocation.has("target")) target = ckpt::Checkpoint::open(invocation.get("target"));
  for (const Candidate& candidate : candidates) {
    if (candidate.adapter) {
      const ckpt::Checkpoint adapter = ckpt::Checkpoint::open(*candidate.adapter);
      if (adapter.has_manifest()) ckpt::check_target(adapter, *target);
      continue;
    }
    if (target && candidate.target == target->dir()) continue;
    const ckpt::Checkpoint trained = ckpt::Checkpoint::open(candidate.target);
    if (target) check_same_model(*target, trained);
  }
}

void check_series_output(const app::Invocation& invocation) {
  const fs::path out = invocation.get("output");
  require_place_for_dir(out);
  refuse_what_is_no_run(out);
  std::error_code ignored;
  SF_CHECK(!fs::exists(out / "metrics.jsonl", ignored), Exit::kCantCreate,
           "{} holds a run, whose report would pass over verdicts; choose another -o", out.string());
}

}  // namespace sf::tool
