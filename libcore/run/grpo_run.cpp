// SPDX-License-Identifier: Apache-2.0
#include "run/grpo_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/hash.h"
#include "comm/trace.h"
#include "rl/advantage.h"
#include "score/statistics.h"

namespace sf::run {
namespace {

train::GrpoOptions trainer_options(const tool::GrpoTask& task, const train::LoopOptions& loop,
                                   std::function<void(const std::string&)> enter) {
  using enum train::OldLogProbs;
  const tool::GrpoSettings& s = task.settings;
  return {.advantage = s.advantage,
          .aggregation = s.aggregation,
          .factor = s.factor,
          .old = s.old_log_probs == "recompute" ? kRecompute
                 : s.old_log_probs == "update"  ? kUpdate
                                                : kRollout,
          .correction = s.correction,
          .rejection = s.rejection,
          .mini_batch = s.mini_batch * s.responses,
          .token_budget = s.token_budget,
          .longest_answer = task.answer_tokens,
          .kl_coefficient = s.kl ? std::optional(s.kl->coefficient) : std::nullopt,
          .max_norm = loop.max_norm,
          .adamw = loop.adamw,
          .call_deadline_s = loop.call_deadline_s,
          .phase = std::move(enter)};
}

// 1 for each response that differs in score from another to its question.
std::vector<uint8_t> teaching_in(std::span<const train::Response> responses) {
  std::vector<std::string> groups;
  std::vector<double> scores;
  for (const train::Response& response : responses) groups.push_back(response.group), scores.push_back(response.score);
  return rl::teaches(groups, scores);
}

std::vector<size_t> first_of(const std::vector<uint8_t>& marked, size_t most) {
  std::vector<size_t> found;
  for (size_t k = 0; k < marked.size() && found.size() < most; ++k)
    if (marked[k]) found.push_back(k);
  return found;
}

// Of one rank, the most that its phases held.
std::vector<train::MemoryUse> memory_of_all(comm::Group& group, const train::MemoryUse& mine, double deadline_s) {
  std::vector<train::MemoryUse> all(static_cast<size_t>(group.world()));
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::vector<size_t>(all.size(), sizeof mine),
                   std::as_writable_bytes(std::span(all)),
                   {"memory of all ranks", Deadline::after(Seconds(deadline_s))});
  return all;
}

}  // namespace

GrpoRun::GrpoRun(const Parts& parts)
    : p_(parts),
      task_(parts.task),
      group_(parts.engine.group()),
      phases_("cold_start", parts.began),
      sampler_(group_, parts.model),
      trainer_(parts.engine, trainer_options(parts.task, parts.loop, [this](const std::string& name) { enter(name); })),
      drawn_(parts.sampling) {
  drawn_.token_log_probs = true;
  greedy_.max_new_tokens = drawn_.max_new_tokens, greedy_.batch = drawn_.batch;
  greedy_.stop_ids = drawn_.stop_ids, greedy_.stop_texts = drawn_.stop_texts, greedy_.tokenizer = drawn_.tokenizer;
  greedy_.cancelled = drawn_.cancelled;
}

train::LoopEnd GrpoRun::run(const train::Progress& from) {
  progress_ = from;
  if (group_.rank() == 0) records_.emplace(p_.run_dir, task_, from.step);
  if (group_.rank() == 0 && task_.reward)
    program_ = std::make_unique<tool::RewardProgram>(
        tool::RewardOptions{.command = *task_.reward,
                            .deadline_s = task_.settings.reward_deadline_s,
                            .restarts = task_.settings.reward_restarts,
                            .warn = [this](const std::string& text) { p_.invocation.warn(text); },
                            .cancelled = drawn_.cancelled});
  try {
    return steps();
  } catch (const std::exception& error) {
    group_.abandon(error.what());  // the others must not wait for a rank that is gone
    throw;
  }
}

train::LoopEnd GrpoRun::steps() {
  publish();
  if (evaluation_is_owed() && !evaluate()) return leave(Exit::kAgain, "stopped by request");
  flush();
  while (progress_.step < p_.loop.steps) {
    if (stop_asked()) return leave(Exit::kAgain, "stopped by request");
    began_ = monotonic_s();
    if (comm::Trace* trace = comm::trace_of(group_)) trace->begin_step(progress_.step + 1);
    const std::optional<Rollout> rollout = roll_out();
    if (!rollout) return leave(Exit::kAgain, "stopped by request, in a rollout that will be drawn again");
    learn(*rollout);
    publish();
    const bool answered = !evaluation_is_due() || evaluate();
    flush();
    if (!answered) return leave(Exit::kAgain, "stopped by request, in an evaluation that will be made");
    const int64_t due = p_.loop.checkpoint_every;
    enter("checkpoint");
    if (due > 0 && progress_.step % due == 0) p_.checkpoints.save(p_.engine, progress_, train::Saved::kCopied);
    if (comm::Trace* trace = comm::trace_of(group_)) trace->end_step();
  }
  return leave(Exit::kOk, "");
}

train::LoopEnd GrpoRun::leave(Exit exit, std::string reason) {
  enter("checkpoint");
  train::LoopEnd end{.exit = exit, .reason = std::move(reason), .progress = progress_};
  if (progress_.step > 0) end.checkpoint = p_.checkpoints.save(p_.engine, progress_);
  phases_.take();
  end.memory = memory_of_all(group_, memory(), p_.loop.call_deadline_s);
  return end;
}

// In a picture of the step, a program that scores is data and all that is not published is computed.
void GrpoRun::enter(const std::string& name) {
  using enum comm::Span::Kind;
  phases_.enter(name);
  if (comm::Trace* trace = comm::trace_of(group_))
    trace->phase(name == "reward" ? kData : name == "checkpoint" ? kPublish : kCompute);
}

train::MemoryUse GrpoRun::memory() const {
  const engine::MemoryReport predicted = p_.engine.predicted(), measured = p_.engine.measured();
  return {.at_rest_predicted = predicted.at_rest,
          .at_rest_measured = measured.at_rest,
          .peak_predicted = p_.peak_predicted,
          .peak_measured = phases_.peak_bytes(),
          .device_peak_measured = measured.device_peak};
}

bool GrpoRun::stop_asked() {
  int64_t asked = p_.invocation.stop() == app::Stop::kFinishStep;
  group_.all_reduce_sum(std::span(&asked, 1), {"stop", Deadline::after(Seconds(p_.loop.call_deadline_s))});
  return asked > 0;
}

void GrpoRun::say(const std::string& name, double value) {
  if (p_.sink) p_.sink->scalar(progress_.step, name, value);
}

// The record of a step: with the seconds and the memory of each phase since the one before.
void GrpoRun::flush() {
  for (const auto& [name, spent] : phases_.take()) {
    say(fmt::format("time_{}_s", name), spent.seconds);
    if (spent.peak_bytes > 0) say(fmt::format("memory_{}_peak", name), static_cast<double>(spent.peak_bytes));
  }
  const train::MemoryUse use = memory();
  say("memory_at_rest_predicted", static_cast<double>(use.at_rest_predicted));
  say("memory_at_rest_measured", static_cast<double>(use.at_rest_measured));
  if (use.peak_predicted > 0) say("memory_peak_predicted", static_cast<double>(use.peak_predicted));
  if (use.peak_measured > 0) say("memory_peak_measured", static_cast<double>(use.peak_measured));
  if (p_.sink) p_.sink->flush(progress_.step);
}

// The trainer's adapter into every sampler; its version is the step after which it is.
void GrpoRun::publish() {
  enter("sync");
  const uint64_t sent = group_.traffic().bytes_sent;
  gen::LiveAdapter live;
  uint64_t bytes = 0;
  for (const arch::Adapter& adapter : task_.adapter.adapters()) {
    const gen::Factors& factors = live[adapter.parameter] = {p_.engine.gathered(adapter.a).clone(),
                                                             p_.engine.gathered(adapter.b).clone(), adapter.scale};
    bytes += factors.a.nbytes() + factors.b.nbytes();
  }
  sampler_.adopt(progress_.step, live, gen::digest_of(live));
  say("sync/adapter_bytes", static_cast<double>(bytes));
  say("sync/bytes_sent", static_cast<double>(group_.traffic().bytes_sent - sent));
}

// Each question of positions [from, from + grpo.prompts) as often as it is answered. With dynamic sampling questions
// may come again before the last step: how many are needed is not known before.
std::vector<gen::Prompt> GrpoRun::prompts_from(uint64_t from) const {
  uint64_t end = from + static_cast<uint64_t>(task_.settings.prompts);
  if (task_.settings.dynamic_sampling == 0) end = std::min(end, p_.loop.windows.positions);
  std::vector<gen::Prompt> prompts;
  for (uint64_t position = from; position < end; ++position) {
    const size_t row = row_of(position);
    const std::vector<int32_t>& ids = task_.asked.ids[row];
    const int64_t room = task_.decoder.max_positions - std::ssize(ids);
    for (int64_t i = 0; i < task_.settings.responses; ++i)
      prompts.push_back({.sample = xxh3_64(fmt::format("{}/{}/{}", position, task_.asked.exam.prompts[row].id, i)),
                         .ids = ids,
                         .max_new_tokens = std::min(task_.answer_tokens, room)});
  }
  return prompts;
}

size_t GrpoRun::row_of(uint64_t position) const {
  return stream::place_of(position, task_.contract.rows, task_.order_seed).row;
}

// Nothing if a rank was stopped before all responses were there.
std::optional<GrpoRun::Rollout> GrpoRun::draw(uint64_t from) {
  enter("rollout");
  const std::vector<gen::Prompt> prompts = prompts_from(from);
  const std::vector<gen::Completion> drawn = sampler_.answer(prompts, drawn_);
  if (drawn.size() < prompts.size()) return std::nullopt;
  enter("reward");
  Rollout rollout;
  const auto each = static_cast<size_t>(task_.settings.responses);
  for (size_t k = 0; k < drawn.size(); ++k) rollout.rows.push_back(row_of(from + k / each));
  rollout.judged = judge(task_.asked, rollout.rows, drawn);
  const std::vector<double> scores = scores_of(rollout, drawn);
  if (scores.size() < drawn.size()) return std::nullopt;
  for (size_t k = 0; k < drawn.size(); ++k)
    rollout.responses.push_back({.group = std::to_string(from + k / each),
                                 .prompt = prompts[k].ids,
                                 .answer = drawn[k].ids,
                                 .rollout_log_probs = drawn[k].token_log_probs,
                                 .score = scores[k]});
  rollout.positions = drawn.size() / each;
  return rollout;
}

// All that is drawn for a step: once, or until as many questions as are wanted have responses of different scores.
std::optional<GrpoRun::Rollout> GrpoRun::roll_out() {
  const auto wanted = static_cast<size_t>(task_.settings.prompts * task_.settings.responses);
  const int64_t most = std::max<int64_t>(1, task_.settings.dynamic_sampling);
  Rollout all;
  size_t teaching = 0;
  for (int64_t times = 0; times < most && teaching < wanted; ++times) {
    std::optional<Rollout> one = draw(progress_.cursor + all.positions);
    if (!one) return std::nullopt;
    all.append(std::move(*one));
    teaching = std::ranges::count(teaching_in(all.responses), 1);
  }
  if (task_.settings.keep_rollouts && records_)
    records_->responses({sampler_.version(), sampler_.digest()}, all.rows, all.responses, all.judged);
  if (task_.settings.dynamic_sampling > 0) all.learned = first_of(teaching_in(all.responses), wanted);
  return all;
}

void GrpoRun::Rollout::append(Rollout more) {
  auto join = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  join(rows, more.rows);
  join(responses, more.responses);
  join(judged.texts, more.judged.texts);
  join(judged.verdicts, more.judged.verdicts);
  join(judged.program, more.judged.program);
  judged.reading.n += more.judged.reading.n;
  judged.reading.readable += more.judged.reading.readable;
  judged.reading.correct += more.judged.reading.correct;
  positions += more.positions;
}

// By the rule or by the program, less what is too long. Fewer than there are answers if a rank was stopped.
std::vector<double> GrpoRun::scores_of(Rollout& rollout, const std::vector<gen::Completion>& drawn) {
  const tool::GrpoSettings& s = task_.settings;
  std::vector<double> scores;
  if (task_.reward)
    scores = programs_scores(rollout, drawn);
  else
    for (const score::Verdict& verdict : rollout.judged.verdicts)
      scores.push_back(verdict.correct() ? s.right : s.wrong);
  if (s.overlong_buffer > 0)
    for (size_t k = 0; k < scores.size(); ++k)
      scores[k] +=
          rl::overlong_penalty(std::ssize(drawn[k].ids), task_.answer_tokens, s.overlong_buffer, s.overlong_factor);
  return scores;
}

// Rank 0 asks; all learn from what it was told.
std::vector<double> GrpoRun::programs_scores(Rollout& rollout, const std::vector<gen::Completion>& drawn) {
  std::vector<double> told(drawn.size() + 1, 0);  // behind them: all are there
  if (program_) {
    std::vector<tool::RewardAsk> asks;
    for (size_t k = 0; k < drawn.size(); ++k) {
      const score::Question& asked = task_.asked.question(rollout.rows[k]);
      asks.push_back({.id = asked.id,
                      .question = asked.text,
                      .gold = asked.gold,
                      .response = rollout.judged.texts[k],
                      .sample = static_cast<int64_t>(k) % task_.settings.responses,
                      .tokens = std::ssize(drawn[k].ids),
                      .cut = drawn[k].finish == gen::Finish::kLength});
    }
    rollout.judged.program = program_->judge(asks);
    for (size_t k = 0; k < rollout.judged.program.size(); ++k)
      told[k] = rollout.judged.program[k].at("score").as_double();
    told.back() = rollout.judged.program.size() == drawn.size();
  }
  const double patience = p_.loop.call_deadline_s + task_.settings.reward_deadline_s *
                                                        static_cast<double>(task_.settings.reward_restarts + 1) *
                                                        static_cast<double>(drawn.size());
  group_.broadcast(std::as_writable_bytes(std::span(told)), 0, {"scores", Deadline::after(Seconds(patience))});
  if (told.back() == 0) return {};
  told.pop_back();
  return told;
}

// Every rank judges all: verdicts are a function of the text.
Judged GrpoRun::judge(const tool::Asked& asked, const std::vector<size_t>& rows,
                      const std::vector<gen::Completion>& answers) const {
  Judged judged;
  for (size_t k = 0; k < answers.size(); ++k) {
    judged.texts.push_back(gen::text_of(answers[k], drawn_, task_.encoder.tokenizer()));
    judged.verdicts.push_back(task_.rule.score(
        asked.question(rows[k]).gold, {.text = judged.texts.back(), .cut = answers[k].finish == gen::Finish::kLength}));
    ++judged.reading.n;
    judged.reading.correct += judged.verdicts.back().correct();
    judged.reading.readable += score::is_readable(judged.verdicts.back().outcome);
  }
  return judged;
}

void GrpoRun::learn(const Rollout& rollout) {
  const double rate = train::rate(p_.loop.schedule, progress_.step);
  train::GrpoResult result;
  if (!rollout.learned) {
    result = trainer_.step(rollout.responses, rate);
  } else if (!rollout.learned->empty()) {  // else nothing that was drawn teaches anything
    std::vector<train::Response> chosen;
    for (size_t k : *rollout.learned) chosen.push_back(rollout.responses[k]);
    result = trainer_.step(chosen, rate);
  }
  ++progress_.step;
  progress_.cursor += rollout.positions;
  progress_.updates += result.updates;
  progress_.skipped += result.skipped;
  progress_.skipped_in_a_row = result.skipped > 0 && result.updates == 0 ? progress_.skipped_in_a_row + 1 : 0;
  for (const train::Response& response : rollout.responses) progress_.tokens += std::ssize(response.answer);
  report(result, rollout, rate);
  SF_CHECK(progress_.skipped_in_a_row < p_.loop.skip_limit, Exit::kData,
           "{} steps in a row had a non-finite gradient and were skipped, the last at {}", progress_.skipped_in_a_row,
           result.culprit);
}

void GrpoRun::report(const train::GrpoResult& result, const Rollout& rollout, double rate) {
  double loss = 0;
  for (const rl::Metric& metric : result.metrics) {
    say(metric.name, metric.value);
    if (metric.name == "actor/pg_loss") loss = metric.value;
  }
  const double accuracy = rollout.judged.reading.rate();
  double sum = 0;
  int64_t tokens = 0;
  for (const train::Response& response : rollout.responses) {
    sum += response.score;
    tokens += std::ssize(response.prompt) + std::ssize(response.answer);
  }
  say("loss", loss);
  say("acc", accuracy);
  say("readable", rollout.judged.reading.format());
  say("grpo/drawn_groups", static_cast<double>(rollout.positions));
  say("grpo/drawn_score", sum / static_cast<double>(rollout.responses.size()));
  say("grpo/updates", static_cast<double>(result.updates));
  say("actor/lr", rate);
  say("skipped", static_cast<double>(result.skipped));
  const double seconds = monotonic_s() - began_;
  say("perf/time_per_step", seconds);
  say("perf/total_num_tokens", static_cast<double>(tokens));
  say("perf/throughput", static_cast<double>(tokens) / (seconds * group_.world()));
  const std::pair<std::string, double> noted[] = {{"loss", loss}, {"acc", accuracy}};
  p_.checkpoints.note(noted);
}

bool GrpoRun::evaluation_is_due() const {
  if (!task_.held) return false;
  const int64_t every = task_.settings.eval_every;
  return progress_.step == 0 || progress_.step == p_.loop.steps || (every > 0 && progress_.step % every == 0);
}

// Before the first step, and where a run was stopped in the evaluation of the step that it goes on from.
bool GrpoRun::evaluation_is_owed() {
  if (!evaluation_is_due()) return false;
  int64_t there = records_ && records_->has_held(progress_.step);
  group_.all_reduce_sum(std::span(&there, 1), {"verdicts", Deadline::after(Seconds(p_.loop.call_deadline_s))});
  return there == 0;
}

// Greedy answers to what is held out. False if a rank was stopped first.
bool GrpoRun::evaluate() {
  enter("evaluation");
  std::vector<gen::Prompt> prompts;
  std::vector<size_t> rows;
  for (size_t i = 0; i < task_.held->ids.size(); ++i) {
    const int64_t room = task_.decoder.max_positions - std::ssize(task_.held->ids[i]);
    prompts.push_back({.ids = task_.held->ids[i], .max_new_tokens = std::min(task_.answer_tokens, room)});
    rows.push_back(i);
  }
  const std::vector<gen::Completion> answers = sampler_.answer(prompts, greedy_);
  if (answers.size() < prompts.size()) return false;
  const Judged judged = judge(*task_.held, rows, answers);
  if (!records_) return true;
  if (!records_->held({sampler_.version(), sampler_.digest()}, answers, judged))
    p_.invocation.warn(fmt::format("held out after step {}: other answers than the first time; both are kept in {}",
                                   progress_.step, (p_.run_dir / "held").string()));
  tell(judged.reading);
  return true;
}

void GrpoRun::tell(const score::Reading& held) {
  const auto n = static_cast<double>(held.n), correct = static_cast<double>(held.correct);
  const score::Interval interval = score::wilson(correct, n);
  say("val/acc", held.rate());
  say("val/acc_low", interval.low);
  say("val/acc_high", interval.high);
  say("val/correct", correct);
  say("val/readable", static_cast<double>(held.readable));
  say("val/n", n);
  p_.invocation.log(fmt::format(
      "held out after step {}: {} of {} correct, {:.1f} % (95 %: {:.1f} to {:.1f}), {} readable", progress_.step,
      held.correct, held.n, 100 * held.rate(), 100 * interval.low, 100 * interval.high, held.readable));
}

}  // namespace sf::run
