// SPDX-License-Identifier: Apache-2.0
// sf-capture regenerate: prompts -> chats in the target's own words, with the ids that were generated.
#include <fmt/core.h>

#include <map>

#include "base/deadline.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "run/answers.h"
#include "run/entry.h"
#include "run/target.h"

namespace sf::run {
namespace {

int regenerate(app::Invocation& invocation) {
  std::filesystem::path out = invocation.get("output");
  SF_CHECK(!std::filesystem::exists(out), Exit::kCantCreate, "{} exists; remove it or choose another -o", out.string());
  OpenTarget target = open_target(invocation);
  gen::GenerateOptions options = generate_options(invocation, target);
  EncodedPrompts prompts = encode_prompts(invocation, target);
  app::settle_settings(invocation);
  if (invocation.plan_only()) {
    invocation.result(Json::object().set("prompts", static_cast<int64_t>(prompts.prompts.size())).dump());
    return 0;
  }
  AnswerFile file(out, answer_job(target, options));
  AnswerRun run = answer_all(invocation, target, options, prompts, file);
  if (run.stopped) {
    invocation.log(fmt::format("stopped; {} of {} answers are kept in {}", file.size(), prompts.prompts.size(),
                               file.partial().string()));
    return static_cast<int>(Exit::kAgain);
  }
  file.publish(prompts.prompts);
  invocation.log(run.summary());
  invocation.result(invocation.json_output() ? run.to_json().set("path", out.string()).dump() : out.string());
  return 0;
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_capture_regenerate(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::regenerate(*invocation); });
}
