// SPDX-License-Identifier: Apache-2.0
// sf-train grpo: questions -> responses -> scores -> steps of an adapter, on one rank or many.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "ckpt/as_published.h"
#include "ckpt/buffers.h"
#include "gen/local_sampler.h"
#include "model/grpo.h"
#include "run/adapter_training.h"
#include "run/device.h"
#include "run/entry.h"
#include "run/loading.h"
#include "run/target.h"
#include "run/training.h"
#include "score/statistics.h"
#include "tensor/memory.h"
#include "tool/draft_settings.h"
#include "tool/grpo_task.h"
#include "tool/open_adapter.h"
#include "train/grpo.h"

namespace sf::run {
namespace {

namespace fs = std::filesystem;

train::GrpoOptions trainer_options(const tool::GrpoTask& task, const train::LoopOptions& loop) {
  const tool::GrpoSettings& s = task.settings;
  return {.advantage = s.advantage,
          .aggregation = s.aggregation,
          .factor = s.factor,
          .recomputes = s.recomputes,
          .correction = s.correction,
          .rejection = s.rejection,
          .mini_batch = s.mini_batch * s.responses,
          .token_budget = s.token_budget,
          .max_norm = loop.max_norm,
          .adamw = loop.adamw,
          .call_deadline_s = loop.call_deadline_s};
}

// What judging made of some answers.
struct Judged {
  std::vector<score::Verdict> verdicts;
  int64_t correct = 0, readable = 0;  // readable: an answer was found, right or wrong
};

class GrpoRun {
 public:
  struct Parts {
    app::Invocation& invocation;
    const tool::GrpoTask& task;
    engine::Engine& engine;
    OpenTarget& target;
    const gen::GenerateOptions& sampling;
    train::Checkpoints& checkpoints;
    const train::LoopOptions& loop;
    fs::path run_dir;
    MetricSink* sink;
  };
  explicit GrpoRun(const Parts& parts)
      : p_(parts),
        task_(parts.task),
        group_(parts.engine.group()),
        sampler_(group_, parts.target.model),
        trainer_(parts.engine, trainer_options(parts.task, parts.loop)),
        drawn_(parts.sampling) {
    drawn_.token_log_probs = true;
    greedy_.max_new_tokens = drawn_.max_new_tokens, greedy_.batch = drawn_.batch;
    greedy_.stop_ids = drawn_.stop_ids, greedy_.stop_texts = drawn_.stop_texts, greedy_.tokenizer = drawn_.tokenizer;
    greedy_.cancelled = drawn_.cancelled;
  }

  train::LoopEnd run(const train::Progress& from) {
    progress_ = from;
    try {
      return steps();
    } catch (const std::exception& error) {
      group_.abandon(error.what());  // the others must not wait for a rank that is gone
      throw;
    }
  }

 private:
  train::LoopEnd steps() {
    publish();
    if (progress_.step == 0 && !evaluate()) return leave(Exit::kAgain, "stopped by request");
    while (progress_.step < p_.loop.steps) {
      if (stop_asked()) return leave(Exit::kAgain, "stopped by request");
      began_ = monotonic_s();
      const std::optional<std::vector<train::Response>> responses = roll_out();
      if (!responses) return leave(Exit::kAgain, "stopped by request, in a rollout that will be drawn again");
      learn(*responses);
      publish();
      const bool last = progress_.step == p_.loop.steps;
      const int64_t every = task_.settings.eval_every;
      if ((last || (every > 0 && progress_.step % every == 0)) && !evaluate())
        return leave(Exit::kAgain, "stopped by request, in an evaluation");
      if (p_.sink) p_.sink->flush(progress_.step);
      const int64_t due = p_.loop.checkpoint_every;
      if (due > 0 && progress_.step % due == 0) p_.checkpoints.save(p_.engine, progress_, train::Saved::kCopied);
    }
    return leave(Exit::kOk, "");
  }

  train::LoopEnd leave(Exit exit, std::string reason) {
    train::LoopEnd end{.exit = exit, .reason = std::move(reason), .progress = progress_};
    if (progress_.step > 0) end.checkpoint = p_.checkpoints.save(p_.engine, progress_);
    return end;
  }

  bool stop_asked() {
    int64_t asked = p_.invocation.stop() == app::Stop::kFinishStep;
    group_.all_reduce_sum(std::span(&asked, 1), {"stop", Deadline::after(Seconds(p_.loop.call_deadline_s))});
    return asked > 0;
  }

  void say(const std::string& name, double value) {
    if (p_.sink) p_.sink->scalar(progress_.step, name, value);
  }

  // The trainer's adapter into every sampler; its version is the step after which it is.
  void publish() {
    const double start = monotonic_s();
    const uint64_t sent = group_.traffic().bytes_sent;
    gen::LiveAdapter live;
    for (const arch::Adapter& adapter : task_.adapter.adapters())
      live[adapter.parameter] = {p_.engine.gathered(adapter.a).clone(), p_.engine.gathered(adapter.b).clone(),
                                 adapter.scale};
    sampler_.adopt(progress_.step, live, gen::digest_of(live));
    if (began_ == 0) return;  // before the first step there is no record to say it in
    say("sync/bytes_sent", static_cast<double>(group_.traffic().bytes_sent - sent));
    say("time_sync_s", monotonic_s() - start);
  }

  std::vector<gen::Prompt> prompts_of_step() const {
    std::vector<gen::Prompt> prompts;
    for (int64_t j = 0; j < task_.settings.prompts; ++j) {
      const uint64_t position = progress_.cursor + static_cast<uint64_t>(j);
      if (position >= p_.loop.windows.positions) break;
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

  size_t row_of(uint64_t position) const {
    return stream::place_of(position, task_.contract.rows, task_.order_seed).row;
  }

  // Nothing if a rank was stopped before all responses were there.
  std::optional<std::vector<train::Response>> roll_out() {
    const std::vector<gen::Prompt> prompts = prompts_of_step();
    std::vector<gen::Completion> drawn = sampler_.answer(prompts, drawn_);
    if (drawn.size() < prompts.size()) return std::nullopt;
    const double done = monotonic_s();
    say("time_rollout_s", done - began_);
    std::vector<size_t> rows;
    const auto each = static_cast<size_t>(task_.settings.responses);
    for (size_t k = 0; k < drawn.size(); ++k) rows.push_back(row_of(progress_.cursor + k / each));
    const Judged judged = judge(task_.asked, rows, drawn);
    std::vector<train::Response> responses;
    for (size_t k = 0; k < drawn.size(); ++k)
      responses.push_back({.group = std::to_string(k / each),
                           .prompt = prompts[k].ids,
                           .answer = drawn[k].ids,
                           .rollout_log_probs = drawn[k].token_log_probs,
                           .score = score_of(judged.verdicts[k], drawn[k])});
    accuracy_ = static_cast<double>(judged.correct) / static_cast<double>(drawn.size());
    say("acc", accuracy_);
    say("readable", static_cast<double>(judged.readable) / static_cast<double>(drawn.size()));
    if (task_.settings.keep_rollouts && group_.rank() == 0) keep(rows, responses, judged);
    return responses;
  }

  double score_of(const score::Verdict& verdict, const gen::Completion& drawn) const {
    const tool::GrpoSettings& s = task_.settings;
    const double score = verdict.correct() ? s.right : s.wrong;
    if (s.overlong_buffer == 0) return score;
    return score +
           rl::overlong_penalty(std::ssize(drawn.ids), task_.answer_tokens, s.overlong_buffer, s.overlong_factor);
  }

  // Every rank judges all: verdicts are a function of the text.
  Judged judge(const tool::Asked& asked, const std::vector<size_t>& rows,
               const std::vector<gen::Completion>& answers) const {
    using enum score::Outcome;
    Judged judged;
    for (size_t k = 0; k < answers.size(); ++k) {
      const std::string text = gen::text_of(answers[k], drawn_, task_.encoder.tokenizer());
      judged.verdicts.push_back(task_.rule.score(asked.question(rows[k]).gold,
                                                 {.text = text, .cut = answers[k].finish == gen::Finish::kLength}));
      const score::Outcome outcome = judged.verdicts.back().outcome;
      judged.correct += outcome == kCorrect;
      judged.readable += outcome == kCorrect || outcome == kWrong || outcome == kOutOfRange || outcome == kUndecided;
    }
    return judged;
  }

  void keep(const std::vector<size_t>& rows, const std::vector<train::Response>& responses,
            const Judged& judged) const {
    std::string lines;
    for (size_t k = 0; k < responses.size(); ++k) {
      Json::Array prompt, ids, log_probs;
      for (int32_t id : responses[k].prompt) prompt.emplace_back(int64_t{id});
      for (int32_t id : responses[k].answer) ids.emplace_back(int64_t{id});
      for (double value : responses[k].rollout_log_probs) log_probs.emplace_back(value);
      lines += Json::object()
                   .set("id", task_.asked.exam.prompts[rows[k]].id)
                   .set("sample", static_cast<int64_t>(k) % task_.settings.responses)
                   .set("adapter", sampler_.version())
                   .set("digest", sampler_.digest())
                   .set("score", responses[k].score)
                   .set("outcome", std::string(score::name_of(judged.verdicts[k].outcome)))
                   .set("prompt_ids", std::move(prompt))
                   .set("ids", std::move(ids))
                   .set("log_probs", std::move(log_probs))
                   .dump() +
               "\n";
    }
    fs::create_directories(p_.run_dir / "rollouts");
    write_atomic(p_.run_dir / "rollouts" / fmt::format("step-{}.jsonl", progress_.step + 1), lines);
  }

  void learn(const std::vector<train::Response>& responses) {
    const double rate = train::rate(p_.loop.schedule, progress_.step);
    const train::GrpoResult result = trainer_.step(responses, rate);
    ++progress_.step;
    progress_.cursor =
        std::min(progress_.cursor + static_cast<uint64_t>(task_.settings.prompts), p_.loop.windows.positions);
    progress_.updates += result.updates;
    progress_.skipped += result.skipped;
    progress_.skipped_in_a_row = result.skipped > 0 && result.updates == 0 ? progress_.skipped_in_a_row + 1 : 0;
    double loss = 0;
    for (const rl::Metric& metric : result.metrics) {
      say(metric.name, metric.value);
      if (metric.name == "actor/pg_loss") loss = metric.value;
    }
    for (const train::Response& response : responses) progress_.tokens += std::ssize(response.answer);
    say("loss", loss);
    say("acc", accuracy_);
    say("actor/lr", rate);
    say("skipped", static_cast<double>(result.skipped));
    say("time_log_probs_s", result.log_probs_s);
    say("time_update_s", result.update_s);
    say("perf/time_per_step", monotonic_s() - began_);
    say("memory_resident_measured", static_cast<double>(tensor::resident_bytes()));
    const std::pair<std::string, double> noted[] = {{"loss", loss}, {"acc", accuracy_}};
    p_.checkpoints.note(noted);
    SF_CHECK(progress_.skipped_in_a_row < p_.loop.skip_limit, Exit::kData,
             "{} steps in a row had a non-finite gradient and were skipped, the last at {}", progress_.skipped_in_a_row,
             result.culprit);
  }

  // Greedy answers to what is held out. False if a rank was stopped first.
  bool evaluate() {
    if (!task_.held) return true;
    const double start = monotonic_s();
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
    const auto n = static_cast<double>(answers.size()), correct = static_cast<double>(judged.correct);
    const score::Interval interval = score::wilson(correct, n);
    say("val/acc", correct / n);
    say("val/correct", correct);
    say("val/readable", static_cast<double>(judged.readable));
    say("val/n", n);
    say("time_eval_s", monotonic_s() - start);
    if (group_.rank() == 0)
      p_.invocation.log(
          fmt::format("held out after step {}: {} of {} correct, {:.1f} % (95 %: {:.1f} to {:.1f}), {} "
                      "readable",
                      progress_.step, judged.correct, answers.size(), 100 * correct / n, 100 * interval.low,
                      100 * interval.high, judged.readable));
    if (progress_.step == 0 && p_.sink) p_.sink->flush(0);
    return true;
  }

  Parts p_;
  const tool::GrpoTask& task_;
  comm::Group& group_;
  gen::LocalSampler sampler_;
  train::GrpoTrainer trainer_;
  gen::GenerateOptions drawn_, greedy_;
  train::Progress progress_;
  double began_ = 0, accuracy_ = 0;
};

train::CheckpointOptions checkpoint_options(app::Invocation& invocation, const tool::GrpoTask& task,
                                            const tool::LoopSettings& loop) {
  train::CheckpointOptions options = checkpoints_of_run(invocation, task.contract, loop);
  as_adapter(task.target, task.encoder, task.adapter, options);
  return options;
}

OpenTarget open_sampler(app::Invocation& invocation, const tool::GrpoTask& task) {
  config::Settings& settings = invocation.settings();
  const Dtype compute = *dtype_from_config(settings.get_string("target.compute_dtype"));
  gen::Target model = gen::Target::load(task.target, compute);
  settings.applied("target.compute_dtype", settings.get_string("target.compute_dtype"),
                   fmt::format("{} layers of the sampler", model.decoder().layers), "gen");
  const std::string thinking = settings.get_string("eval.thinking");
  return {
      nullptr,
      task.target,
      std::nullopt,
      text::ChatEncoder::open(
          task.target.dir(), thinking == "template" ? Json() : Json::object().set("enable_thinking", thinking == "on")),
      std::move(model),
      compute};
}

int train_grpo(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  const at::Device device = apply_device(invocation);
  apply_threads(invocation, "engine.threads", invocation.ranks().local_world);
  const tool::GrpoTask task = tool::open_grpo(invocation);
  const std::vector<arch::Adapter>& adapters = task.adapter.adapters();
  const arch::ModelSpec spec = arch::describe_training(task.decoder, adapters);
  engine::EngineOptions engine_options = apply_engine(invocation, spec, tool::places_in(task.target));
  engine_options.device = device;
  tool::apply_algorithm(settings, "grpo", {});
  const bool narrow = tool::apply_adapter_dtype(settings, 2 * adapters.size());
  const tool::LoopSettings loop = tool::apply_prompt_loop(settings, task.settings.prompts);
  train::LoopOptions options = loop_options(invocation, loop, task.contract.rows, false);
  options.adamw.bf16 = narrow;
  std::unique_ptr<comm::Group> group = make_group(invocation);
  RunDir run(invocation, *group);
  if (run.resume_from())
    tool::check_same_adapter(ckpt::Checkpoint::open(*run.resume_from()), task.adapter, narrow ? "bf16" : "fp32");
  Loading loading(invocation, *group, engine_options.call_deadline_s);
  loading.compare_files({{"target", task.contract.target},
                         {"adapter", task.adapter.files().identity()},
                         {"questions", task.contract.data}});
  choose_modes(invocation, *group, engine_options, [&](config::Settings& asked, int world) {
    tool::PlanRequest request = tool::grpo_request(asked, task, world);
    tool::place_host_tables(request.options, tool::places_in(task.target));
    return request;
  });
  std::optional<engine::Engine> engine;
  const model::PolicyForm form{task.settings.loss, task.settings.clip, settings.get_float("generate.temperature")};
  loading.step("shards", [&] {
    engine.emplace(*group, spec, model::grpo_segments(task.decoder, adapters, form), engine_options);
  });
  std::optional<OpenTarget> target;
  loading.step("sampler", [&] { target.emplace(open_sampler(invocation, task)); });
  const gen::GenerateOptions sampling = generate_options(invocation, *target);
  train::CheckpointOptions kept = checkpoint_options(invocation, task, loop);
  kept.bf16 = narrow;
  train::Checkpoints checkpoints(std::move(kept));
  app::settle_settings(invocation);
  loading.step("buffers", [&] { ckpt::check_buffers(task.target, spec); });
  loading.step("values", [&] { load_parameters(*engine, spec, task.target, &task.adapter, narrow); });
  train::Progress progress;
  loading.step("state", [&] { progress = resume(invocation, run, checkpoints, *engine, task.contract); });
  loading.finish();
  RunReport report(invocation, *engine, run, progress.step, options.steps);
  GrpoRun grpo({invocation, task, *engine, *target, sampling, checkpoints, options, run.path(), report.sink()});
  return report.finish(grpo.run(progress));
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_train_grpo(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_grpo(*invocation); });
}
