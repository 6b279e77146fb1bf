// SPDX-License-Identifier: Apache-2.0
#include "tool/capture_shard.h"

#include <fmt/core.h>

#include <algorithm>

#include "arch/states.h"
#include "base/error.h"
#include "config/apply.h"
#include "plan/names.h"
#include "stream/features.h"

namespace sf::tool {
namespace {

constexpr int64_t kPanel = 16;  // rows of a packed weight are a multiple of it
constexpr int64_t kCut = 256;   // rows of a forward
constexpr int64_t kAhead = 1;   // segments that a gather runs ahead

int64_t up_to(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

uint64_t bytes_of(int64_t elements, uint64_t element) {
  return static_cast<uint64_t>(elements) * element;
}

// One segment's weights: as they are gathered or read, and as they are packed.
struct SegmentBytes {
  uint64_t raw = 0, packed = 0;
  uint64_t largest = 0;  // parameter, fp32, from which narrower ones are made
};

SegmentBytes bytes_of(const arch::ModelSpec& spec, const arch::Segment& segment, uint64_t element) {
  SegmentBytes bytes;
  for (const std::string& name : segment.parameters) {
    const Shape& shape = spec.find(spec.storage_of(name))->shape;
    bytes.raw += plan::align_up(bytes_of(numel(shape), element));
    if (element < sizeof(float)) bytes.largest = std::max(bytes.largest, bytes_of(numel(shape), sizeof(float)));
    if (shape.size() < 2 || segment.name == "embed") continue;  // of the embedding rows are looked up
    const int64_t banks = shape.size() == 3 ? shape[0] : 1, rows = shape[shape.size() - 2];
    bytes.packed +=
        bytes_of(banks * (up_to(rows, kPanel) + (banks > 1 ? kPanel : 0)) * up_to(shape.back(), 2), element);
  }
  return bytes;
}

// What one block holds while rows pass it, beside its weights and their states: keys and values of a sequence, and what
// attention and MLP make of one piece, in fp32 where a product is rounded after it.
uint64_t block_bytes(const arch::Decoder& d, int64_t longest, uint64_t element) {
  const int64_t q = d.heads * d.head_dim, kv = d.kv_heads * d.head_dim, piece = std::min(kCut, longest);
  const int64_t width = std::max(d.intermediate, d.experts.count > 0 ? d.experts.width * d.experts.chosen : 0);
  return bytes_of(2 * kv * longest, element) +
         bytes_of(piece * (4 * d.hidden + 5 * q + 6 * kv + 4 * width), sizeof(float));
}

}  // namespace

CaptureShard apply_capture_shard(app::Invocation& invocation, int world, Dtype compute) {
  config::Settings& settings = invocation.settings();
  SF_CHECK(world == 1 || !invocation.has("import"), Exit::kUsage,
           "--import computes no states that {} ranks could share; start it once", world);
  SF_CHECK(!invocation.has("reuse") || (invocation.has("output") && invocation.has("data")), Exit::kUsage,
           "--reuse DIR takes rows of a directory of features over into another: give --data FILE and -o DIR");
  const std::string held = world > 1 ? "every parameter" : "every parameter (1 rank: it holds the whole)";
  CaptureShard shard;
  shard.schedule.world = world;
  shard.schedule.layout = plan::layout_from_backend(config::Apply(settings, held, "run").word("shard.backend"));
  shard.schedule.compute = compute;
  shard.schedule.prefetch = kAhead;
  shard.schedule.facts.push_back(fmt::format("rows that pass together: {} tokens", shard.pass_tokens()));
  shard.call_deadline_s =
      config::Apply(settings, fmt::format("the calls of {} ranks", world), "run").number("engine.call_deadline_s");
  SF_CHECK(!shard.together() || settings.get_string("shard.host_resident").empty(), Exit::kConfig,
           "shard.host_resident ({}) maps the embedding beside a target that a rank holds whole; {} ranks with "
           "shard.backend = \"{}\" hold it together: leave it out, or use \"replicate\"",
           settings.origin("shard.host_resident"), world, settings.get_string("shard.backend"));
  return shard;
}

CaptureLoad capture_load(const config::Settings& settings, const Chats& chats, const stream::Contract& contract) {
  return {.longest = chats.longest(),
          .checked = settings.get_int("capture.selftest_rows"),
          .checked_row = std::min(chats.longest(), kMostChecked) + kBehindChecked,
          .feature = size_of(stream::feature_element(contract.feature_dtype))};
}

std::unique_ptr<stream::DirSource> open_reused(const app::Invocation& invocation, const stream::Contract& contract) {
  if (!invocation.has("reuse")) return nullptr;
  stream::Contract wanted = contract;
  wanted.rows = 0;
  wanted.max_length = 0;
  wanted.data.clear();
  wanted.mask_rule.clear();
  return stream::DirSource::open(invocation.get("reuse"), wanted);
}

void check_reused(app::Invocation& invocation, const CaptureWish& wish, Dtype compute) {
  const ckpt::Checkpoint target = ckpt::Checkpoint::open(invocation.get("target"));
  stream::Contract contract = contract_of(target, text::ChatEncoder::open(target.dir()), compute, wish);
  contract.feature_dtype = stream::feature_type(invocation.settings().get_string("capture.feature_dtype"));
  open_reused(invocation, contract);
}

CaptureBytes capture_bytes(const arch::Decoder& decoder, const CaptureWish& wish, const CaptureShard& shard,
                           const CaptureLoad& load, int rank) {
  SF_CHECK(
      !shard.together() || decoder.delta.layers.empty(), Exit::kConfig,
      "a target of the {} family cannot lie in shards over {} ranks: shard.backend = \"replicate\" gives each of them "
      "a whole one, or start it on one rank",
      decoder.family, shard.schedule.world);
  const arch::ModelSpec spec = arch::describe_states(decoder, wish.teacher);
  const plan::Schedule plan = plan::make_schedule(spec, spec.segments, shard.schedule);
  const uint64_t element = size_of(shard.schedule.compute);
  const int64_t tokens = std::max(load.longest, shard.pass_tokens()), hidden = decoder.hidden;
  const int64_t mine = (load.checked + shard.schedule.world - 1) / shard.schedule.world * load.checked_row;
  const auto kept = static_cast<int64_t>(wish.layers.size()) + 1;  // and the last, normed
  uint64_t turn = 0, plain = 0;
  for (const arch::Segment& segment : spec.segments) {
    const SegmentBytes own = bytes_of(spec, segment, element);
    const bool block = segment.name.starts_with("layers.");
    turn = std::max(turn, own.packed + (block ? block_bytes(decoder, load.longest, element)
                                              : bytes_of(2 * tokens * hidden, sizeof(float))));
    plain = std::max(
        plain, own.raw + own.packed + own.largest + (block ? block_bytes(decoder, load.checked_row, element) : 0));
  }
  const uint64_t states = bytes_of((kept + 2) * tokens * hidden, element) + bytes_of(2 * tokens, sizeof(int64_t));
  const uint64_t carried = bytes_of(2 * kept * load.longest * hidden, std::max(load.feature, element));
  const uint64_t seen =
      bytes_of(3 * (decoder.layers + 2) * mine * hidden, element) + bytes_of(kept * mine * hidden, 2 * sizeof(float));
  const uint64_t at_rest = plan.memory[static_cast<size_t>(rank)].total();
  return {at_rest, at_rest + std::max(states + std::max(turn, carried), mine > 0 ? plain + seen : 0)};
}

}  // namespace sf::tool
