// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "comm/agree.h"
#include "run/capture.h"
#include "stream/client.h"
#include "stream/features.h"
#include "stream/frame.h"
#include "tensor/convert.h"

namespace sf::run {
namespace {

constexpr double kDeadlineS = 600;  // for the slowest rank's rows
constexpr int64_t kLogitRows = 64;  // rows of logits in memory at once

// This rank's of the first rows that are kept, as a smaller capture.max_length would leave them.
std::vector<text::ChatRow> first_rows(std::span<const text::ChatRow> rows, int64_t most, const comm::Group& group) {
  std::vector<text::ChatRow> first;
  int64_t seen = 0;
  for (const text::ChatRow& row : rows) {
    if (seen == most) break;
    if (!row.rejected.empty() || seen++ % group.world() != group.rank()) continue;
    first.push_back(row);
    text::EncodedChat& chat = first.back().encoded;
    chat.ids.resize(std::min<size_t>(chat.ids.size(), tool::kMostChecked));
    chat.loss_mask.resize(chat.ids.size());
  }
  return first;
}

// Frames of all samples dealt out by turns, as trainers that ask for several at once get them.
std::vector<stream::Sample> through_the_wire(std::vector<stream::Sample> samples) {
  struct Kept {
    stream::FrameHeader header;
    std::vector<std::byte> payload;
  };
  std::vector<std::vector<Kept>> kept(samples.size());
  size_t longest = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].position = i;
    stream::for_each_frame(samples[i], [&](const stream::Frame& frame) {
      kept[i].push_back({frame.header, {frame.payload.begin(), frame.payload.end()}});
    });
    longest = std::max(longest, kept[i].size());
  }
  std::vector<stream::Assembler> open;
  for (const std::vector<Kept>& frames : kept) open.emplace_back(stream::Frame{frames[0].header, frames[0].payload});
  for (size_t turn = 1; turn < longest; ++turn) {
    for (const std::vector<Kept>& frames : kept)
      if (turn < frames.size()) open.at(frames[turn].header.position).put(frames[turn].header, frames[turn].payload);
  }
  std::vector<stream::Sample> arrived;
  for (stream::Assembler& sample : open) arrived.push_back(sample.take());
  return arrived;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::equal(a, b);
}

// One row, computed plainly: all states of every block.
struct Plain {
  const text::ChatRow* chat;
  std::vector<at::Tensor> layers;  // [length, H], as carried; 0..L
  at::Tensor final_norm;           // the same
  at::Tensor exact;                // final_norm in the compute type
  ops::Top1 teacher;
};

std::vector<const text::ChatRow*> places_of(const std::vector<text::ChatRow>& rows) {
  std::vector<const text::ChatRow*> places;
  for (const text::ChatRow& row : rows) places.push_back(&row);
  return places;
}

// `rows` outlive the result.
std::vector<Plain> plain_of(Capture& capture, const std::vector<text::ChatRow>& rows) {
  StatesOf& target = capture.states();
  std::vector<text::ChatRow> longer = rows;
  for (size_t r = 0; r < rows.size(); ++r) {
    const std::vector<int32_t>& ids = rows[r].encoded.ids;
    const int64_t length = std::ssize(ids), room = target.decoder().max_positions - length;
    for (int64_t i = 0; i < std::min({tool::kBehindChecked, length, room}); ++i)
      longer[r].encoded.ids.push_back(ids[static_cast<size_t>(i)]);
  }
  std::vector<int64_t> all(static_cast<size_t>(target.decoder().layers) + 1);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<Computed> computed = target.plainly(places_of(longer), all);
  std::vector<Plain> result;
  for (size_t r = 0; r < rows.size(); ++r) {
    const int64_t length = std::ssize(rows[r].encoded.ids);
    auto part = [&](const at::Tensor& state) { return state.narrow(0, 0, length); };
    auto values = [&](const at::Tensor& state) { return carry(part(state), capture.feature()).values; };
    const gen::States& states = computed[r].states;
    Plain plain{&rows[r], {}, values(states.final_norm), part(states.final_norm), {}};
    for (const at::Tensor& state : states.captured) plain.layers.push_back(values(state));
    if (capture.wish().teacher) plain.teacher = {part(computed[r].teacher.top1), part(computed[r].teacher.lse), {}};
    result.push_back(std::move(plain));
  }
  return result;
}

std::string name_of_layer(int64_t layer) {
  return layer < 0 ? "final_norm" : fmt::format("layer {}", layer);
}

// What states are, where they are not those wanted: the words behind "it is".
std::string what_is(const at::Tensor& found, const at::Tensor& wanted, const Plain& plain,
                    std::span<const Plain> others) {
  for (size_t layer = 0; layer < plain.layers.size(); ++layer) {
    if (!same(found, plain.layers[layer])) continue;
    const bool last = layer + 1 == plain.layers.size();
    return fmt::format("it is layer {}{}", layer, last ? ", the state without the final norm" : "");
  }
  if (same(found, plain.final_norm)) return "it is final_norm";
  const int64_t length = wanted.size(0);
  auto part = [](const at::Tensor& t, int64_t from, int64_t to) { return t.narrow(0, from, to - from); };
  if (found.sizes() == wanted.sizes() && length > 1) {
    if (same(part(found, 1, length), part(wanted, 0, length - 1))) return "it is shifted by one token";
    if (same(part(found, 0, length - 1), part(wanted, 1, length))) return "it is shifted by one token";
  }
  for (const Plain& other : others) {
    auto all = other.layers;
    all.push_back(other.final_norm);
    for (const at::Tensor& state : all)
      if (other.chat != plain.chat && same(found, state)) return fmt::format("it is that of row {}", other.chat->row);
  }
  if (found.sizes() != wanted.sizes()) return fmt::format("{} tokens' states for {} tokens", found.size(0), length);
  at::Tensor differs = found.ne(wanted).any(1);
  return fmt::format("{} of {} tokens' states differ, the first at token {}", differs.sum().item<int64_t>(), length,
                     differs.to(at::kInt).argmax().item<int64_t>());
}

// Two tokens in a row have one state only where everything before them is the same; two layers never have.
void refuse_twins(const at::Tensor& state, int64_t layer, const Plain& plain) {
  const std::vector<int32_t>& ids = plain.chat->encoded.ids;
  if (layer == 0) return;
  at::Tensor twin = state.narrow(0, 1, state.size(0) - 1).eq(state.narrow(0, 0, state.size(0) - 1)).all(1);
  for (int64_t t = 0; t + 1 < state.size(0); ++t) {
    SF_CHECK(ids[static_cast<size_t>(t)] == ids[static_cast<size_t>(t) + 1] || !twin[t].item<bool>(), Exit::kData,
             "self-test: row {} (id {}): {} of tokens {} and {} is bit-equal, and their ids are not: the target does "
             "not see its input",
             plain.chat->row, plain.chat->id, name_of_layer(layer), t, t + 1);
  }
}

class Comparison {
 public:
  Comparison(const Capture& capture, std::span<const Plain> all) : capture_(capture), all_(all) {}

  void run(const stream::Sample& sample, const Plain& plain) const {
    const tool::CaptureWish& wish = capture_.wish();
    for (size_t i = 0; i < wish.layers.size(); ++i)
      compare(part_of(sample, wish.teacher ? "hidden_state" : "hidden_states", static_cast<int64_t>(i)), wish.layers[i],
              plain);
    for (size_t i = 1; i < wish.layers.size(); ++i) {
      const at::Tensor &a = plain.layers.at(static_cast<size_t>(wish.layers[i - 1])),
                       &b = plain.layers.at(static_cast<size_t>(wish.layers[i]));
      SF_CHECK(wish.layers[i - 1] == wish.layers[i] || !same(a, b), Exit::kData,
               "self-test: row {} (id {}): layers {} and {} are bit-equal: the blocks between do nothing",
               plain.chat->row, plain.chat->id, wish.layers[i - 1], wish.layers[i]);
    }
    if (wish.final_norm) compare(part_of(sample, "final_norm", 0), -1, plain);
    if (!wish.teacher) return;
    SF_CHECK(same(tensor::share(sample.at("target_top1")), plain.teacher.top1) &&
                 same(tensor::share(sample.at("target_lse")), plain.teacher.lse),
             Exit::kData, "self-test: row {} (id {}): the teacher's best tokens are not those of its final_norm",
             plain.chat->row, plain.chat->id);
  }

 private:
  // The values of one layer of a sample's states.
  at::Tensor part_of(const stream::Sample& sample, const std::string& name, int64_t part) const {
    const int64_t hidden = capture_.states().decoder().hidden;
    const at::Tensor stored = tensor::share(sample.at(name)).narrow(1, part * hidden, hidden);
    if (stored.scalar_type() != at::kByte) return stored;
    return values_of(stored, tensor::share(sample.at(name + std::string(stream::kScaleSuffix))).select(1, part));
  }

  void compare(const at::Tensor& found, int64_t layer, const Plain& plain) const {
    const at::Tensor& wanted = layer < 0 ? plain.final_norm : plain.layers.at(static_cast<size_t>(layer));
    SF_CHECK(same(found, wanted), Exit::kData,
             "self-test: row {} (id {}): {} is not what a plain forward of the row gives: {}; nothing was kept",
             plain.chat->row, plain.chat->id, name_of_layer(layer), what_is(found, wanted, plain, all_));
    refuse_twins(found, layer, plain);
  }

  const Capture& capture_;
  std::span<const Plain> all_;
};

// Sum of the cross entropy of supervised tokens, each from the state before it.
double loss_of(const StatesOf& target, const at::Tensor& states, const text::EncodedChat& chat, int64_t& predicted) {
  double sum = 0;
  predicted = 0;
  for (int64_t from = 0; from + 1 < states.size(0); from += kLogitRows) {
    const int64_t count = std::min(kLogitRows, states.size(0) - 1 - from);
    at::Tensor log = at::log_softmax(target.logits(states.narrow(0, from, count)), 1);
    for (int64_t i = 0; i < count; ++i) {
      const auto next = static_cast<size_t>(from + i + 1);
      if (!chat.loss_mask[next]) continue;
      sum -= log[i][chat.ids[next]].item<float>();
      ++predicted;
    }
  }
  return sum;
}

void measure_narrowing(const Capture& capture, const Plain& plain, CaptureCheck& seen) {
  const StatesOf& target = capture.states();
  if (target.shared() || capture.feature() == name_of(target.compute()) || !capture.wish().final_norm) return;
  const at::Tensor as_carried = plain.final_norm.to(plain.exact.scalar_type());
  const at::Tensor largest = std::get<0>(plain.exact.abs().max(1)), error = as_carried.sub(plain.exact).abs();
  seen.widest = std::max(seen.widest, std::get<0>(error.max(1)).div(largest).max().item<double>());
  int64_t predicted = 0;
  seen.exact_loss += loss_of(target, plain.exact, plain.chat->encoded, predicted);
  seen.carried_loss += loss_of(target, as_carried, plain.chat->encoded, predicted);
  seen.predicted += predicted;
}

}  // namespace

CaptureCheck check_capture(Capture& capture, std::span<const text::ChatRow> rows, int64_t most, comm::Group& group,
                           const Carrier& carry) {
  const double start = monotonic_s();
  const comm::Call call{"self-test", Deadline::after(Seconds(kDeadlineS))};
  const std::vector<text::ChatRow> first = first_rows(rows, most, group);
  const bool together = capture.states().shared();  // then its own calls make an error every rank's
  std::vector<Computed> computed;
  std::vector<stream::Sample> samples;
  if (together) computed = capture.compute(places_of(first));
  comm::agree(group, call, [&] {
    if (!together) computed = capture.compute(places_of(first));
    for (size_t i = 0; i < first.size(); ++i) samples.push_back(capture.sample_of(first[i], computed[i]));
    computed.clear();
  });
  samples = carry ? carry(std::move(samples)) : through_the_wire(std::move(samples));
  CaptureCheck seen{.rows = std::ssize(first)};
  comm::agree(group, call, [&] {
    SF_CHECK(samples.size() == first.size(), Exit::kSoftware, "self-test: {} samples of {} rows came back",
             samples.size(), first.size());
    const std::vector<Plain> plain = plain_of(capture, first);
    const Comparison comparison(capture, plain);
    for (size_t i = 0; i < plain.size(); ++i) {
      comparison.run(samples[i], plain[i]);
      seen.tokens += plain[i].final_norm.size(0);
      measure_narrowing(capture, plain[i], seen);
    }
  });
  std::array<int64_t, 2> all{seen.rows, seen.tokens};
  group.all_reduce_sum(all, call);
  seen.rows = all[0];
  seen.tokens = all[1];
  if (seen.predicted > 0) {
    seen.exact_loss /= static_cast<double>(seen.predicted);
    seen.carried_loss /= static_cast<double>(seen.predicted);
  }
  seen.seconds = monotonic_s() - start;
  return seen;
}

std::vector<stream::Sample> through_sockets(stream::ProducerOptions options, std::vector<stream::Sample> samples) {
  if (samples.empty()) return samples;
  constexpr int kDeadlineMs = 60000;
  std::vector<uint64_t> rows, positions;
  for (stream::Sample& sample : samples) {
    positions.push_back(rows.size());
    rows.push_back(std::exchange(sample.row, rows.size()));
  }
  options.contract.rows = rows.size();
  options.contract.order_seed = 0;
  stream::Producer producer(options,
                            [&](uint64_t position) { return samples[stream::place_of(position, rows.size(), 0).row]; });
  std::vector<stream::Sample> arrived(rows.size());
  std::optional<Error> failure;  // what a producer ends with, its trainer hears from it
  std::thread server([&] {
    try {
      producer.serve([] { return false; });
    } catch (const Error& error) {
      failure = error;
    }
  });
  try {
    auto source = stream::StreamSource::connect(producer.handle().line(), {.code = options.code});
    source->want(positions);
    for (uint64_t position : positions) {
      stream::Sample sample = source->get(position, Deadline::after_ms(kDeadlineMs));
      const size_t place = sample.row;
      sample.row = rows.at(place);
      arrived[place] = std::move(sample);
    }
    source->finish();
  } catch (...) {
    server.join();
    throw;
  }
  server.join();
  if (failure) throw *failure;
  return arrived;
}

std::string CaptureCheck::line(std::string_view feature) const {
  std::string text =
      fmt::format("self-test: {} rows, {} tokens, bit-equal to plain forwards ({:.2f} s)", rows, tokens, seconds);
  if (feature == stream::kFloat8)
    text +=
        "; e4m3 with a scale a token and layer: a value is off by at most 1/16 of itself or 1/458,752 of its token's "
        "largest";
  if (predicted == 0) return text;
  return text + fmt::format(
                    "; in {}, final_norm is off by at most {:.2g} of its token's largest value: the target's cross "
                    "entropy of {} supervised tokens is {:.5f} (of the exact states: {:.5f})",
                    feature, widest, predicted, carried_loss, exact_loss);
}

}  // namespace sf::run
