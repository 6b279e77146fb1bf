// SPDX-License-Identifier: Apache-2.0
#include "tool/grpo_task.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "config/apply.h"
#include "config/origins.h"
#include "tool/eval_score.h"
#include "tool/open_adapter.h"

namespace sf::tool {
namespace {

// The ratio is between laws of one form: softmax of the logits over the temperature.
void check_sampling(const config::Settings& settings) {
  SF_CHECK(settings.get_float("generate.temperature") > 0, Exit::kConfig,
           "generate.temperature is 0 ({}): all responses to a prompt would be equal; set it, e.g. to 1",
           settings.origin("generate.temperature"));
  const std::pair<const char*, bool> plain[] = {
      {"generate.top_k", settings.get_int("generate.top_k") == 0},
      {"generate.top_p", settings.get_float("generate.top_p") == 1},
      {"generate.min_p", settings.get_float("generate.min_p") == 0},
      {"generate.repetition_penalty", settings.get_float("generate.repetition_penalty") == 1}};
  for (const auto& [key, unused] : plain)
    SF_CHECK(unused, Exit::kConfig, "{} ({}) changes the law that responses are drawn from, which is trained as it is",
             key, settings.origin(key));
  SF_CHECK(settings.get_int("eval.samples") == 1, Exit::kConfig,
           "eval.samples = {} ({}): held-out answers are greedy, several would be equal; grpo.responses says how many "
           "are drawn",
           settings.get_int("eval.samples"), settings.origin("eval.samples"));
}

Asked asked_in(app::Invocation& invocation, config::Settings& settings, const std::string& file, const GrpoTask& task) {
  Asked asked{read_exam(invocation, settings, file), {}};
  for (const score::Question& question : asked.exam.book.questions()) check_gold(task.rule, question);
  asked.ids = encode(settings, asked.exam, task.encoder, task.decoder.max_positions);
  return asked;
}

void check_disjoint(const Asked& asked, const Asked& held) {
  std::set<std::string> known;
  for (const score::Question& question : asked.exam.book.questions())
    known.insert(score::normal_question(question.text));
  for (const score::Question& question : held.exam.book.questions())
    SF_CHECK(!known.contains(score::normal_question(question.text)), Exit::kData,
             "{}: question {} is trained on: what is held out must not be", question.origin, question.id);
}

// Long texts by their digest.
std::string in_short(const std::string& text) {
  constexpr size_t kMost = 64;
  return text.size() > kMost ? "sha256:" + sha256_hex(text).substr(0, 16) : text;
}

// What shapes a run's samples and updates, where it is not the default: a run goes on under the same.
std::string what_is_drawn(const config::Settings& settings) {
  constexpr std::string_view kFree[] = {"grpo.eval_every", "grpo.keep_rollouts", "grpo.reward_deadline_s",
                                        "grpo.reward_restarts", "generate.batch"};
  constexpr std::string_view kBeside[] = {"target.compute_dtype", "eval.system", "eval.prompt", "eval.thinking"};
  std::string text;
  for (const config::Key& key : config::schema()) {
    const bool shapes = key.name.starts_with("grpo.") || key.name.starts_with("generate.") ||
                        std::ranges::find(kBeside, key.name) != std::end(kBeside);
    if (!shapes || !config::is_changed(settings, key) || std::ranges::find(kFree, key.name) != std::end(kFree))
      continue;
    const bool real = key.type == config::Key::Type::kFloat;  // 1 and 1.0 are one number
    text +=
        ", " + key.name + "=" + in_short(real ? double_text(settings.get_float(key.name)) : settings.shown(key.name));
  }
  return text;
}

void describe(app::Invocation& invocation, GrpoTask& task) {
  stream::Contract& contract = task.contract;
  contract.algorithm = "grpo";
  contract.target = task.target.identity();
  contract.tokenizer = task.encoder.tokenizer_digest();
  contract.chat_template = task.encoder.template_digest();
  contract.compute_dtype = contract.feature_dtype =
      name_of(*dtype_from_config(invocation.settings().get_string("engine.compute_dtype")));
  contract.vocab = task.decoder.vocab;
  contract.hidden = task.decoder.hidden;
  contract.max_length = task.longest;
  contract.rows = task.asked.exam.prompts.size();
  contract.data = task.asked.exam.book.digest();
  contract.order_seed = task.order_seed;
  contract.mask_rule = task.rule.name();
  if (task.reward) contract.mask_rule += ", scores of " + *task.reward;
  if (task.held) contract.mask_rule += ", held out " + task.held->exam.book.digest().substr(0, 16);
  contract.mask_rule += what_is_drawn(invocation.settings());
}

void measure(const config::Settings& settings, GrpoTask& task) {
  task.answer_tokens = settings.get_int("generate.max_new_tokens");
  for (const std::vector<int32_t>& ids : task.asked.ids)
    task.longest = std::max(task.longest, std::min(std::ssize(ids) + task.answer_tokens, task.decoder.max_positions));
  SF_CHECK(task.longest <= task.settings.token_budget, Exit::kConfig,
           "a prompt and its response may take {} tokens, grpo.token_budget is {} ({}): raise it, or lower "
           "generate.max_new_tokens",
           task.longest, task.settings.token_budget, settings.origin("grpo.token_budget"));
  SF_CHECK(task.settings.overlong_buffer <= task.answer_tokens, Exit::kConfig,
           "grpo.overlong_buffer = {} ({}) is above generate.max_new_tokens = {}", task.settings.overlong_buffer,
           settings.origin("grpo.overlong_buffer"), task.answer_tokens);
  if (task.settings.factor == 0) task.settings.factor = static_cast<double>(task.answer_tokens);
}

}  // namespace

GrpoTask open_grpo(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  SF_CHECK(invocation.get("rollout", "local") == "local", Exit::kUsage,
           "--rollout {}: wanted local, where the trainer's ranks answer", invocation.get("rollout", ""));
  check_sampling(settings);
  const std::string thinking = settings.get_string("eval.thinking");
  const Json variables = thinking == "template" ? Json() : Json::object().set("enable_thinking", thinking == "on");
  ckpt::Checkpoint target = ckpt::Checkpoint::open(invocation.get("target"));
  text::ChatEncoder encoder = text::ChatEncoder::open(target.dir(), variables);
  arch::Decoder decoder = arch::decoder_from_config(target.config());
  ckpt::AdapterFiles adapter = *open_trained_adapter(invocation, target);
  GrpoTask task{.target = std::move(target),
                .encoder = std::move(encoder),
                .decoder = std::move(decoder),
                .adapter = std::move(adapter),
                .settings = apply_grpo(settings),
                .rule = rule_of(invocation)};
  if (invocation.has("reward")) task.reward = invocation.get("reward");
  apply_scores(settings, task.settings, task.reward.has_value());
  task.asked = asked_in(invocation, settings, invocation.get("questions"), task);
  if (invocation.has("held")) {
    config::Settings said = settings;  // of the questions already
    task.held = asked_in(invocation, said, invocation.get("held"), task);
    check_disjoint(task.asked, *task.held);
    task.settings.eval_every = config::Apply(settings, "every step", "run").whole("grpo.eval_every");
  } else {
    config::Apply(settings, "0 evaluations (there is no --held)", "run").nothing("grpo.eval_every");
  }
  measure(settings, task);
  task.order_seed = static_cast<uint64_t>(config::Apply(settings, "every epoch", "stream").whole("data.order_seed"));
  describe(invocation, task);
  return task;
}

}  // namespace sf::tool
