// SPDX-License-Identifier: Apache-2.0
#include "run/acceptance.h"

#include <fmt/core.h>

#include <cctype>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "ckpt/end_ids.h"
#include "comm/agree.h"
#include "gen/drafter.h"

namespace sf::run {
namespace {

namespace fs = std::filesystem;

comm::Call call_of(const tool::HeldOut& held, std::string_view tag) {
  return {tag, Deadline::after(Seconds(held.deadline_s))};
}

// What the window of the step says of acceptance, under names of its own: never "acceptance_length".
Json estimates_in(const train::Metrics& window) {
  Json found = Json::object();
  for (const auto& [name, value] : window) {
    const bool one_place = std::isdigit(static_cast<unsigned char>(name.back()));
    if (name.find("acc") != std::string::npos && !one_place) found.set("training_" + name, value);
  }
  return found.as_object().empty() ? Json() : found;
}

std::string line_of(const train::Served& served, const train::Served& best) {
  std::string text =
      fmt::format("step {}: served acceptance length {:.3f} ({} tokens in {} verifications; n = {} prompts)",
                  served.step, served.length(), served.committed, served.verifications, served.prompts);
  text += best.step == served.step ? ", the best so far"
                                   : fmt::format("; best: {:.3f} at step {}", best.length(), best.step);
  if (served.training.is_object()) text += "; training's own estimate " + served.training.dump();
  return text;
}

}  // namespace

Acceptance::Acceptance(app::Invocation& invocation, comm::Group& group, const tool::DraftFiles& draft,
                       const tool::HeldOut& held, std::function<bool()> stop)
    : invocation_(invocation), group_(group), draft_(draft), held_(held), stop_(std::move(stop)) {}

// This rank's prompts.
gen::SpeculativeStats Acceptance::decode(const fs::path& checkpoint) const {
  const auto compute = *dtype_from_config(invocation_.settings().get_string("engine.compute_dtype"));
  std::vector<gen::Prompt> mine;
  for (size_t i = static_cast<size_t>(group_.rank()); i < held_.prompts.size();
       i += static_cast<size_t>(group_.world())) {
    const tool::HeldOut::Prompt& prompt = held_.prompts[i];
    mine.push_back({.sample = xxh3_64(prompt.id), .ids = prompt.ids, .max_new_tokens = prompt.max_new_tokens});
  }
  gen::SpeculativeStats none;
  none.tried.resize(static_cast<size_t>(held_.proposals.depth));
  none.accepted = none.tried;
  if (mine.empty()) return none;
  gen::Target target = gen::Target::load(draft_.target, compute);
  const ckpt::Checkpoint files = ckpt::Checkpoint::open(checkpoint);
  std::unique_ptr<gen::Drafter> draft = gen::open_drafter(files, target);
  gen::GenerateOptions options;
  options.max_new_tokens = held_.max_new_tokens;
  options.batch = held_.batch;
  options.stop_ids = ckpt::end_ids_of(draft_.target.dir(), target.decoder());
  options.cancelled = stop_;
  int64_t done = 0;
  return gen::speculate(target, *draft, mine, options, held_.proposals, [&](const gen::Completion&) {
    invocation_.progress("held-out prompts", ++done, std::ssize(mine), "");
  });
}

// Over all ranks; nothing if one of them was asked to stop.
std::optional<train::Served> Acceptance::count(const fs::path& checkpoint) const {
  gen::SpeculativeStats mine;
  comm::agree(group_, call_of(held_, "decoding of held-out prompts"), [&] { mine = decode(checkpoint); });
  std::vector<int64_t> sum = {mine.all.prompts, mine.all.new_tokens, mine.committed, mine.verifications};
  const size_t facts = sum.size(), depth = mine.tried.size();
  sum.insert(sum.end(), mine.tried.begin(), mine.tried.end());
  sum.insert(sum.end(), mine.accepted.begin(), mine.accepted.end());
  group_.all_reduce_sum(sum, call_of(held_, "acceptance of held-out prompts"));
  train::Served served{.prompts = sum[0], .new_tokens = sum[1], .committed = sum[2], .verifications = sum[3]};
  const auto places = sum.begin() + static_cast<int64_t>(facts);
  served.tried.assign(places, places + static_cast<int64_t>(depth));
  served.accepted.assign(places + static_cast<int64_t>(depth), sum.end());
  served.conditions = held_.conditions;
  return served.prompts == std::ssize(held_.prompts) ? std::optional(served) : std::nullopt;
}

void Acceptance::evaluate(const fs::path& checkpoint, int64_t step, const train::Metrics& window,
                          RunReport& report) const {
  const fs::path run = checkpoint.parent_path();
  const bool first = group_.rank() == 0;
  int64_t known = 0;
  comm::agree(group_, call_of(held_, "records of evaluations"),
              [&] { known = first && train::read_served(run, step, held_.conditions); });
  group_.broadcast(std::as_writable_bytes(std::span(&known, 1)), 0, call_of(held_, "records of evaluations"));
  std::optional<train::Served> served;
  if (!known) {
    served = count(checkpoint);
    if (!served) {
      if (first) invocation_.log(fmt::format("step {}: its evaluation was given up, and is made on going on", step));
      return;
    }
  }
  comm::agree(group_, call_of(held_, "records of evaluations"), [&] {
    if (!first) return;
    if (served) {
      served->step = step;
      served->checkpoint = ckpt::Checkpoint::open(checkpoint).manifest().identity;
      served->training = estimates_in(window);
      train::write_served(run, *served);
    }
    const std::optional<train::Served> best = train::name_best_served(run, held_.conditions);
    if (!served) return;
    const Json record = served->to_json();
    Json event = Json::object();
    for (const auto& [name, value] : record.as_object())
      if (name != "step" && name != "training") event.set(name, value);
    if (served->training.is_object())
      for (const auto& [name, value] : served->training.as_object()) event.set(name, value);
    report.event("evaluation", step, event.set("best_step", best->step));
    invocation_.log(line_of(*served, *best));
  });
}

}  // namespace sf::run
