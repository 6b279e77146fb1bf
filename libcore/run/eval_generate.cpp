// SPDX-License-Identifier: Apache-2.0
// sf-eval generate: answers of a target to a set of questions, to a file or to stdout.
#include "base/error.h"
#include "run/entry.h"
#include "run/exam.h"
#include "run/group.h"
#include "tool/open_adapter.h"
#include "tool/outputs.h"
#include "tool/target_settings.h"

namespace sf::run {
namespace {

int eval_generate(app::Invocation& invocation) {
  std::optional<std::filesystem::path> out;
  if (invocation.has("output")) {
    tool::refuse_existing(*(out = invocation.get("output")));
    tool::require_place_for(*out);
  }
  SF_CHECK(out || invocation.ranks().world == 1, Exit::kUsage, "{} ranks write a file together: give it as -o FILE",
           invocation.ranks().world);
  const std::unique_ptr<comm::Group> group = make_group(invocation);
  const tool::Exam exam = tool::read_exam(invocation, false);
  if (!invocation.has("draft")) tool::apply_no_draft(invocation.settings());
  Examined done = examine(invocation, *group, exam, {invocation.get("target"), tool::adapter_option(invocation)}, out);
  if (done.status == 0 && out)
    invocation.result(invocation.json_output() ? done.run.to_json().set("path", out->string()).dump() : out->string());
  return done.status;
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_eval_generate(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::eval_generate(*invocation); });
}
