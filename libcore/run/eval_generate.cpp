// SPDX-License-Identifier: Apache-2.0
// sf-eval generate: answers of a target to prompts, to a file or to stdout.
#include "base/error.h"
#include "run/answers.h"
#include "run/entry.h"
#include "text/tokenizer.h"

namespace sf::run {
namespace {

int eval_generate(app::Invocation& invocation) {
  if (invocation.has("output")) refuse_existing(invocation.get("output"));
  OpenTarget target = open_target(invocation);
  gen::GenerateOptions options = generate_options(invocation, target);
  EncodedPrompts prompts = encode_prompts(invocation, target);
  app::settle_settings(invocation);
  if (invocation.has("output")) return answer_into_file(invocation, target, options, prompts);
  AnswerRun run;
  auto show = [&](const gen::Completion& done) {
    if (invocation.json_output()) return;
    Json row =
        Json::object().set("id", prompts.prompts[done.prompt].id).set("finish", std::string(gen::name_of(done.finish)));
    row.set("answer", target.encoder.tokenizer().decode(done.ids, true));
    invocation.result(row.dump());
  };
  run.stats = gen::generate(target.model, prompts.encoded, options, show);
  invocation.log(run.summary());
  if (invocation.json_output()) invocation.result(run.to_json().dump());
  bool all = run.stats.prompts == static_cast<int64_t>(prompts.prompts.size());
  return all ? 0 : 128 + invocation.stop_signal();  // nothing is kept that another run could go on from
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_eval_generate(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::eval_generate(*invocation); });
}
