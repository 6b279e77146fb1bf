// SPDX-License-Identifier: Apache-2.0
#include "tool/held_out.h"

#include <algorithm>
#include <map>
#include <span>

#include "arch/decoder.h"
#include "base/error.h"
#include "base/hash.h"
#include "config/apply.h"
#include "plan/work.h"
#include "text/chat.h"
#include "tool/prompts.h"

namespace sf::tool {
namespace {

using config::Apply;

constexpr int64_t kPrefillRows = 256;  // of a forward: a prompt in pieces of so many positions
constexpr int64_t kGrain = 256;        // positions that a cache's capacity is a multiple of
constexpr int64_t kJoined = 3;         // matrices packed as one, as queries, keys and values are

// Every tensor of the target is multiplied by; a trainer's target may else be two tables.
void check_whole(const ckpt::Checkpoint& target, const arch::ModelSpec& spec) {
  for (const arch::Parameter& parameter : spec.parameters)
    SF_CHECK(target.contains(parameter.name), Exit::kConfig,
             "eval.interval decodes with the whole target, and {} lacks {}: make the draft for the whole one, or leave "
             "eval.interval out",
             target.dir().string(), parameter.name);
}

std::vector<HeldOut::Prompt> prompts_of(config::Settings& settings, const DraftFiles& draft,
                                        const arch::Decoder& target, int64_t most) {
  const Apply every(settings, "every evaluation", "run");
  const std::string file = every.word("eval.held_prompts");
  const auto limit = static_cast<size_t>(every.whole("eval.limit"));
  const text::ChatEncoder encoder = text::ChatEncoder::open(draft.target.dir());
  Prompts read = read_prompts(file, limit, encoder, target.max_positions);
  std::vector<HeldOut::Prompt> prompts;
  for (size_t i = 0; i < read.prompts.size(); ++i) {
    const int64_t room = target.max_positions - std::ssize(read.ids[i]);
    prompts.push_back({read.prompts[i].id, std::move(read.ids[i]), std::min(most, room)});
  }
  return prompts;
}

std::string conditions_of(const HeldOut& held, const DraftFiles& draft, Dtype compute) {
  Xxh3 ids;
  for (const HeldOut::Prompt& prompt : held.prompts) {
    const int64_t facts[] = {std::ssize(prompt.ids), prompt.max_new_tokens};
    ids.update(std::as_bytes(std::span(facts)));
    ids.update(std::as_bytes(std::span(prompt.ids)));
  }
  const Json facts = Json::object()
                         .set("target", draft.target.identity())
                         .set("prompts", hex64(ids.digest()))
                         .set("draft_tokens", held.proposals.depth)
                         .set("compute_dtype", name_of(compute));
  return sha256_hex(facts.dump()).substr(0, 16);
}

// Of weights: one packed matrix for each, and rows of the embedding beside a head that is tied to it. While one is
// packed there is a copy of it, which of matrices that are joined holds several.
uint64_t weight_bytes(const arch::ModelSpec& target, const arch::ModelSpec& draft, bool tied, Dtype compute) {
  int64_t elements = 0, copied = 0;
  for (const arch::Parameter& parameter : target.parameters) {
    const int64_t size = numel(parameter.shape);
    const bool table = parameter.name == "model.embed_tokens.weight", head = parameter.name == "lm_head.weight";
    elements += table && tied ? 2 * size : size;
    if (!table) copied = std::max(copied, head ? size : kJoined * size);
  }
  for (const arch::Parameter& parameter : draft.parameters) {
    if (!parameter.trainable) continue;  // the target's
    elements += numel(parameter.shape);
    copied = std::max(copied, numel(parameter.shape));
  }
  return static_cast<uint64_t>(elements + copied) * size_of(compute);
}

// Positions that caches hold: no more than `seats` of a capacity are made, which a shorter answer's is not reused for.
int64_t cached_positions(const HeldOut& held, int64_t seats, int64_t slots) {
  std::map<int64_t, int64_t> wanted;  // capacity -> prompts
  for (const HeldOut::Prompt& prompt : held.prompts)
    ++wanted[(std::ssize(prompt.ids) + prompt.max_new_tokens + slots + kGrain) / kGrain * kGrain];
  int64_t positions = 0;
  for (const auto& [capacity, prompts] : wanted) positions += capacity * std::min(seats, prompts);
  return positions;
}

// A forward holds no more than a few states of each kind for each of its rows, and two rows of scores for each slot.
uint64_t bytes_of(const HeldOut& held, const Json& config, const arch::Decoder& target, Dtype compute) {
  const arch::DraftFamily& family = arch::draft_family(config);
  const arch::ModelSpec own = family.describe(config);
  uint64_t bytes = weight_bytes(arch::describe(target), own, target.tied, compute);
  bytes += 3 * plan::rotary_bytes(target.rotary_dims(), target.max_positions);
  int64_t longest = 0, slots = held.proposals.depth + 1, layers = std::ssize(own.segments);
  if (family.blocks) {
    const arch::Dflash blocks = family.blocks(config);
    slots = std::max(slots, blocks.block);
    layers = blocks.layers;
  }
  for (const HeldOut::Prompt& prompt : held.prompts) longest = std::max(longest, std::ssize(prompt.ids));
  const int64_t seats = std::min(held.batch, std::ssize(held.prompts));
  const int64_t keys =
      cached_positions(held, seats, slots) * (target.layers + layers) * 2 * target.kv_heads * target.head_dim;
  const int64_t rows = std::max({kPrefillRows, seats * slots, longest});
  const int64_t states = rows * (12 * target.hidden + 4 * target.intermediate + 4 * target.heads * target.head_dim);
  const int64_t scores = seats * slots * target.vocab * 2;
  return bytes + static_cast<uint64_t>(keys) * size_of(compute) +
         static_cast<uint64_t>(states + scores) * sizeof(float);
}

void set_aside(config::Settings& settings) {
  const Apply without(settings, "0 evaluations (eval.interval = 0)", "run");
  for (const char* key :
       {"eval.held_prompts", "eval.limit", "eval.draft_tokens", "eval.max_new_tokens", "eval.batch", "eval.deadline_s"})
    without.nothing(key);
}

}  // namespace

HeldOut held_out(app::Invocation& invocation, const DraftFiles& draft) {
  config::Settings& settings = invocation.settings();
  const Apply every(settings, "every evaluation", "run");
  HeldOut held{.interval = Apply(settings, "every step", "run").whole("eval.interval")};
  if (held.interval == 0) {
    set_aside(settings);
    return held;
  }
  SF_CHECK(!settings.get_string("eval.held_prompts").empty(), Exit::kConfig,
           "eval.interval = {} ({}) decodes held-out prompts: eval.held_prompts names no file of them", held.interval,
           settings.origin("eval.interval"));
  SF_CHECK(settings.get_string("training.best") == "none", Exit::kConfig,
           "training.best = \"{}\" ({}) beside eval.interval: RUN/best is named by acceptance then; leave it at none",
           settings.get_string("training.best"), settings.origin("training.best"));
  const arch::Decoder target = arch::decoder_from_config(draft.target.config());
  check_whole(draft.target, arch::describe(target));
  held.proposals = {.depth = every.whole("eval.draft_tokens")};
  held.max_new_tokens = every.whole("eval.max_new_tokens");
  held.batch = every.whole("eval.batch");
  held.deadline_s = every.number("eval.deadline_s");
  held.prompts = prompts_of(settings, draft, target, held.max_new_tokens);
  const Dtype compute = *dtype_from_config(settings.get_string("engine.compute_dtype"));
  held.conditions = conditions_of(held, draft, compute);
  held.bytes = bytes_of(held, draft.files.config(), target, compute);
  return held;
}

}  // namespace sf::tool
