// SPDX-License-Identifier: Apache-2.0
#include "run/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/deadline.h"
#include "base/error.h"
#include "run/group.h"
#include "text/tokenizer.h"
#include "tool/answer_rows.h"

namespace sf::run {
namespace {

constexpr Seconds kLook{600};               // to read or write a file of answers
constexpr Seconds kSlowest{7 * 24 * 3600};  // from the first rank that has its answers to the last

Json::Array to_json_array(std::span<const int32_t> ids) {
  Json::Array array;
  for (int32_t id : ids) array.emplace_back(int64_t{id});
  return array;
}

Json chat_row(const OpenTarget& target, const gen::GenerateOptions& options, const text::Prompt& prompt,
              const gen::Prompt& encoded, const gen::Completion& done) {
  Json messages = prompt.messages;
  messages.push(
      Json::object().set("role", "assistant").set("content", text_of(done, options, target.encoder.tokenizer())));
  std::vector<int32_t> ids = encoded.ids, mask(encoded.ids.size(), 0);
  ids.insert(ids.end(), done.ids.begin(), done.ids.end());
  mask.resize(ids.size(), 1);
  return Json::object()
      .set("id", prompt.id)
      .set("messages", std::move(messages))
      .set("input_ids", to_json_array(ids))
      .set("loss_mask", to_json_array(mask))
      .set("finish", std::string(gen::name_of(done.finish)));
}

// Sums over the ranks, times of the slowest; waits for it.
gen::GenerateStats over_ranks(comm::Group& group, const gen::GenerateStats& mine) {
  std::vector<gen::GenerateStats> all(static_cast<size_t>(group.world()));
  const std::vector<size_t> sizes(all.size(), sizeof mine);
  group.all_gather(std::as_bytes(std::span(&mine, 1)), sizes, std::as_writable_bytes(std::span(all)),
                   {"the slowest rank's answers", Deadline::after(kSlowest)});
  gen::GenerateStats sum;
  for (const gen::GenerateStats& one : all) {
    sum.prompts += one.prompts;
    sum.prompt_tokens += one.prompt_tokens;
    sum.new_tokens += one.new_tokens;
    sum.target_forwards += one.target_forwards;
    sum.prefill_s = std::max(sum.prefill_s, one.prefill_s);
    sum.decode_s = std::max(sum.decode_s, one.decode_s);
  }
  return sum;
}

// Rank 0 has FILE.partial before others look into it, and nobody writes before all have looked.
std::unique_ptr<tool::AnswerRows> take_rows(app::Invocation& invocation, comm::Group& group, const AnswerTask& task,
                                            const std::filesystem::path& file) {
  std::unique_ptr<tool::AnswerRows> rows;
  on_first_rank(group, "answers " + file.string(), [&] {
    rows = std::make_unique<tool::AnswerRows>(file, task.job, invocation.command_line());
    rows->require_only(task.keys);
  });
  if (group.rank() > 0) rows = std::make_unique<tool::AnswerRows>(file, task.job, group.rank());
  group.barrier({"rows that are there", Deadline::after(kLook)});
  return rows;
}

// This rank's part of what is missing: indices of the task's prompts.
std::vector<size_t> missing_here(const comm::Group& group, const AnswerTask& task, const tool::AnswerRows& rows) {
  std::vector<size_t> mine;
  for (size_t i = 0, missing = 0; i < task.keys.size(); ++i) {
    if (rows.has(task.keys[i])) continue;
    if (missing++ % static_cast<size_t>(group.world()) == static_cast<size_t>(group.rank())) mine.push_back(i);
  }
  return mine;
}

int publish(app::Invocation& invocation, const AnswerTask& task, tool::AnswerRows& rows) {
  rows.take_in();
  if (rows.size() < task.keys.size()) {
    invocation.log(fmt::format("stopped; {} of {} answers are kept in {}", rows.size(), task.keys.size(),
                               rows.partial().string()));
    return static_cast<int>(Exit::kAgain);
  }
  rows.publish(task.keys, task.first);
  return 0;
}

}  // namespace

double AnswerRun::tokens_per_s() const {
  double seconds = stats.prefill_s + stats.decode_s;
  return seconds > 0 ? static_cast<double>(stats.new_tokens) / seconds : 0;
}

std::string AnswerRun::summary() const {
  const std::string by = ranks > 1 ? fmt::format(" by {} ranks", ranks) : "";
  return fmt::format("{} answers{} ({} found already), {} new tokens, {} target forwards, {:.1f} tokens/s",
                     stats.prompts, by, kept, stats.new_tokens, stats.target_forwards, tokens_per_s());
}

Json AnswerRun::to_json() const {
  return Json::object()
      .set("prompts", stats.prompts)
      .set("kept", static_cast<int64_t>(kept))
      .set("new_tokens", stats.new_tokens)
      .set("prompt_tokens", stats.prompt_tokens)
      .set("target_forwards", stats.target_forwards)
      .set("prefill_s", stats.prefill_s)
      .set("decode_s", stats.decode_s)
      .set("tokens_per_s", tokens_per_s());
}

int answer_into_file(app::Invocation& invocation, comm::Group& group, const AnswerTask& task,
                     const std::filesystem::path& path, AnswerRun& run) {
  invocation.stop();  // from here on a request to stop keeps the rows that are finished
  const std::unique_ptr<tool::AnswerRows> rows = take_rows(invocation, group, task, path);
  run.kept = rows->size();
  run.ranks = group.world();
  const std::vector<size_t> index = missing_here(group, task, *rows);
  std::vector<gen::Prompt> open;
  for (size_t i : index) open.push_back(task.prompts[i]);
  int64_t tokens = 0;
  double start = monotonic_s();
  auto done = [&](const gen::Completion& completion) {
    rows->add(task.row(index[completion.prompt], completion));
    tokens += std::ssize(completion.ids);
    invocation.progress("answers", static_cast<int64_t>(rows->size()), static_cast<int64_t>(run.kept + open.size()),
                        fmt::format("{:.0f} tokens/s", static_cast<double>(tokens) / (monotonic_s() - start)));
  };
  if (!open.empty()) run.stats = task.generate(open, done);
  run.stats = over_ranks(group, run.stats);
  int64_t status = group.rank() == 0 ? publish(invocation, task, *rows) : 0;
  group.broadcast(std::as_writable_bytes(std::span(&status, 1)), 0, {"published answers", Deadline::after(kLook)});
  if (status == 0) invocation.log(run.summary());
  return static_cast<int>(status);
}

AnswerTask chat_task(OpenTarget& target, const gen::GenerateOptions& options, const EncodedPrompts& prompts, Json job) {
  AnswerTask task{
      .keys = {}, .prompts = prompts.encoded, .row = {}, .generate = {}, .job = std::move(job), .first = {}};
  for (const text::Prompt& prompt : prompts.prompts) task.keys.push_back(prompt.id);
  task.row = [&, sampling = task.job.at("sampling")](size_t i, const gen::Completion& done) {
    Json drawn = sampling;
    drawn.set("sample", std::to_string(prompts.encoded[i].sample));
    return chat_row(target, options, prompts.prompts[i], prompts.encoded[i], done).set("sampling", std::move(drawn));
  };
  task.generate = [&](std::span<const gen::Prompt> open, const AnswerTask::Done& done) {
    return gen::generate(target.model, open, options, done);
  };
  return task;
}

}  // namespace sf::run
