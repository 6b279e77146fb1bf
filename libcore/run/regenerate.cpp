// SPDX-License-Identifier: Apache-2.0
// sf-capture regenerate: prompts -> chats in the target's own words, with the ids that were generated.
#include "run/answers.h"
#include "run/entry.h"
#include "run/group.h"
#include "run/target.h"
#include "tool/facts.h"
#include "tool/outputs.h"

namespace sf::run {
namespace {

int regenerate(app::Invocation& invocation) {
  tool::refuse_existing(invocation.get("output"));
  const std::unique_ptr<comm::Group> group = make_group(invocation);
  OpenTarget target = open_target(invocation);
  const tool::AnswerSettings asked =
      tool::apply_answers(invocation.settings(), target.checkpoint, target.model.decoder(), target.encoder.tokenizer());
  gen::GenerateOptions options = generate_options(invocation, target, asked);
  EncodedPrompts prompts = encode_prompts(invocation, target);
  app::settle_settings(invocation);
  const std::string out = invocation.get("output");
  AnswerRun run;
  const AnswerTask task =
      chat_task(target, options, prompts, tool::chat_job(target.checkpoint, target.encoder, asked, target.compute));
  if (int status = answer_into_file(invocation, *group, task, out, run)) return status;
  invocation.result(invocation.json_output() ? run.to_json().set("path", out).dump() : out);
  return 0;
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_capture_regenerate(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::regenerate(*invocation); });
}
