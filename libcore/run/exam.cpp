// SPDX-License-Identifier: Apache-2.0
#include "run/exam.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/hash.h"
#include "ckpt/draft.h"
#include "config/apply.h"
#include "gen/speculative.h"
#include "text/tokenizer.h"
#include "tool/facts.h"
#include "tool/plan_compute.h"

namespace sf::run {
namespace {

// A target that answers, with a draft or without; the task borrows from it.
class Examinee {
 public:
  Examinee(app::Invocation& invocation, const tool::Exam& exam, const tool::Candidate& candidate)
      : exam_(exam),
        target_(open_target(invocation, candidate, exam.variables)),
        facts_(tool::facts_of(exam, target_.checkpoint, candidate.step,
                              target_.adapter ? &target_.adapter->files() : nullptr)),
        options_(generate_options(invocation, target_)) {
    options_.log_probs = true;
    if (invocation.has("draft")) take_draft(invocation);
    encoded_ = tool::encode(invocation.settings(), exam, target_.encoder, target_.model.decoder().max_positions);
  }
  Examinee(const Examinee&) = delete;

  AnswerTask task() {
    AnswerTask task;
    for (size_t i = 0; i < exam_.prompts.size(); ++i)
      for (int64_t sample = 0; sample < exam_.samples; ++sample) {
        task.keys.push_back(fmt::format("{}/{}", exam_.prompts[i].id, sample));
        const int64_t room = target_.model.decoder().max_positions - std::ssize(encoded_[i]);  // the prompt left some
        task.prompts.push_back({.sample = xxh3_64(task.keys.back()),
                                .ids = encoded_[i],
                                .max_new_tokens = std::min(options_.max_new_tokens, room)});
      }
    task.row = [this](size_t index, const gen::Completion& done) { return row(index, done); };
    task.generate = [this](std::span<const gen::Prompt> open, const AnswerTask::Done& done) {
      if (!draft_) return gen::generate(target_.model, open, options_, done);
      return gen::speculate(target_.model, *draft_, open, options_, proposals_, done).all;
    };
    task.job = tool::job_of(facts_, exam_);
    task.first = Json::object().set("facts", facts_);
    return task;
  }

 private:
  void take_draft(app::Invocation& invocation) {
    const ckpt::Checkpoint files = ckpt::Checkpoint::open(invocation.get("draft"));
    ckpt::check_target(files, target_.checkpoint);
    draft_ = open_draft(invocation, files, target_.model);
    proposals_ = tool::proposals_of(invocation.settings(), arch::draft_family(files.config()));
    tool::add_draft_facts(facts_, files, proposals_, invocation.settings());
  }

  Json row(size_t index, const gen::Completion& done) const {
    const size_t question = index / static_cast<size_t>(exam_.samples);
    Json::Array ids;
    for (int32_t id : done.ids) ids.emplace_back(int64_t{id});
    return Json::object()
        .set("id", exam_.prompts[question].id)
        .set("sample", static_cast<int64_t>(index % static_cast<size_t>(exam_.samples)))
        .set("completion", text_of(done, options_, target_.encoder.tokenizer()))
        .set("finish", std::string(gen::name_of(done.finish)))
        .set("tokens", std::ssize(done.ids))
        .set("prompt_tokens", std::ssize(encoded_[question]))
        .set("logprob", done.log_prob)
        .set("ids", std::move(ids));
  }

  const tool::Exam& exam_;
  OpenTarget target_;
  Json facts_;
  gen::GenerateOptions options_;
  std::unique_ptr<gen::Drafter> draft_;
  gen::Proposals proposals_;
  std::vector<std::vector<int32_t>> encoded_;
};

// Lines in the task's order, each as soon as all before it are there.
AnswerRun answer_onto_stdout(app::Invocation& invocation, const AnswerTask& task) {
  invocation.stop();
  invocation.result(task.first.dump());
  std::map<size_t, std::string> waiting;
  size_t next = 0;
  AnswerRun run;
  run.stats = task.generate(task.prompts, [&](const gen::Completion& done) {
    waiting.emplace(done.prompt, task.row(done.prompt, done).dump());
    for (; !waiting.empty() && waiting.begin()->first == next; ++next) {
      invocation.result(waiting.begin()->second);
      waiting.erase(waiting.begin());
    }
  });
  return run;
}

}  // namespace

Examined examine(app::Invocation& invocation, comm::Group& group, const tool::Exam& exam,
                 const tool::Candidate& candidate, const std::optional<std::filesystem::path>& out) {
  Examinee examinee(invocation, exam, candidate);
  if (group.rank() == 0 && exam.samples > 1 && invocation.settings().get_float("generate.temperature") == 0)
    invocation.warn(fmt::format("generate.temperature is 0: the {} answers to a question will be equal", exam.samples));
  app::settle_settings(invocation);
  const AnswerTask task = examinee.task();
  Examined result;
  if (out) {
    result.status = answer_into_file(invocation, group, task, *out, result.run);
    return result;
  }
  result.run = answer_onto_stdout(invocation, task);
  const auto all = std::ssize(task.keys);
  if (result.run.stats.prompts == all) {
    invocation.log(result.run.summary());
    return result;
  }
  invocation.log(fmt::format("stopped: {} of {} answers were finished; nothing is kept, -o FILE would keep them",
                             result.run.stats.prompts, all));
  result.status = 128 + invocation.stop_signal();
  return result;
}

}  // namespace sf::run
