// SPDX-License-Identifier: Apache-2.0
#include "engine/state.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "base/error.h"
#include "base/fault.h"
#include "engine/tables.h"
#include "ops/optimizer_kernels.h"
#include "tensor/memory.h"
#include "tensor/threads.h"

namespace sf::engine {
namespace {

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

plan::Schedule make_plan(const arch::ModelSpec& spec, const std::vector<model::Segment>& segments,
                         const EngineOptions& options, int world) {
  std::vector<arch::Segment> described;
  for (const model::Segment& segment : segments) {
    described.push_back({segment.name, segment.parameters, segment.reads, segment.writes, 0});
  }
  plan::ScheduleOptions wanted = options.schedule;
  wanted.world = world;
  wanted.facts.push_back(fmt::format("threads {}", tensor::threads()));
  if (fault("engine.local_sum")) wanted.local = true;
  return plan::make_schedule(spec, described, wanted);
}

Engine::State::State(comm::Group& g, const arch::ModelSpec& spec, std::vector<model::Segment> s, EngineOptions o)
    : group(g),
      options(std::move(o)),
      segments(std::move(s)),
      plan(make_plan(spec, segments, options, g.world())),
      before_bytes(tensor::memory().allocated),
      hosts(plan, g, {options.host_sources, options.host_dir, options.call_deadline_s}),
      store(plan, spec, segments, g.rank()),
      copies(store, options.device),
      at_rest_bytes(tensor::memory().allocated - before_bytes),
      slots(plan),
      spill_(options.spill_dir),
      uses_(plan.parameters.size(), 0),
      filled_(plan.groups.size(), 0),
      lane_(plan.options.prefetch > 0 && g.world() > 1) {
  TableOptions tables{options.call_deadline_s, &hosts, &times.communication, options.device};
  options.exchanges.merge(table_exchanges(plan, segments, spec, group, tables));
  for (size_t p = 0; p < plan.parameters.size(); ++p)
    if (hosts.table(p).defined()) store.lend(p, hosts.table(p));
  if (!options.poison || fault("engine.no_poison")) return;
  store.poison(0, plan.arena_bytes);
  slots.on_release = [this](uint64_t begin, uint64_t end) { store.poison(begin, end); };
}

void Engine::State::split_ranks() {
  const plan::Mesh& mesh = plan.mesh;
  if (mesh.replicas == 1 || mesh.shards == 1 || row_) return;
  row_ = group.split(mesh.replica_of(group.rank()), call("split into replicas"));
  column_ = group.split(mesh.shard_of(group.rank()), call("split into shards"));
}

comm::Group& Engine::State::row() {
  split_ranks();
  return row_ ? *row_ : group;
}

comm::Group& Engine::State::column() {
  split_ranks();
  return column_ ? *column_ : group;
}

comm::Call Engine::State::call(std::string_view tag) const {
  return {tag, Deadline::after(Seconds(options.call_deadline_s))};
}

void Engine::State::check_ready() {
  if (ready_) return;
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    SF_CHECK(store.loaded(p), Exit::kSoftware, "parameter {} was never loaded", plan.parameters[p].name);
  }
  hosts.seal();
  if (!fault("engine.own_plan")) agree_on_plan();
  ready_ = true;
}

void Engine::State::agree_on_plan() {
  std::string mine = plan.text(), digest = plan.digest();
  auto world = static_cast<size_t>(group.world());
  std::vector<size_t> sizes(world, digest.size());
  std::string all(digest.size() * world, ' ');
  group.all_gather(std::as_bytes(std::span(digest)), sizes, std::as_writable_bytes(std::span(all)),
                   call("compare plans"));
  for (size_t r = 0; r < world; ++r) {
    if (std::string_view(all).substr(r * digest.size(), digest.size()) != digest) report_difference(mine);
  }
}

// All ranks come here together: equal digests everywhere, or a difference everybody sees.
void Engine::State::report_difference(const std::string& mine) {
  auto world = static_cast<size_t>(group.world());
  std::vector<int64_t> lengths(world, 0);
  lengths[static_cast<size_t>(group.rank())] = static_cast<int64_t>(mine.size());
  group.all_reduce_sum(lengths, call("compare plans: lengths"));
  std::vector<size_t> sizes(lengths.begin(), lengths.end());
  size_t total = 0;
  for (size_t size : sizes) total += size;
  std::string all(total, ' ');
  group.all_gather(std::as_bytes(std::span(mine)), sizes, std::as_writable_bytes(std::span(all)),
                   call("compare plans: texts"));
  std::string_view first = std::string_view(all).substr(0, sizes[0]);
  size_t at = sizes[0];
  for (size_t r = 1; r < world; ++r) {
    std::string difference = plan::first_difference(first, std::string_view(all).substr(at, sizes[r]));
    SF_CHECK(difference.empty(), Exit::kProtocol, "plans differ between rank 0 (here) and rank {} (there): {}", r,
             difference);
    at += sizes[r];
  }
  fail(Exit::kSoftware, "plans have different digests and equal texts");
}

uint64_t Engine::State::post(std::string tag, std::function<void(const comm::Call&)> body) {
  auto made = [this, tag = std::move(tag), body = std::move(body)] { body(call(tag)); };
  if (lane_.threaded()) return lane_.post(made);
  timed_call(made);
  return 0;
}

void Engine::State::wait(uint64_t number) {
  if (lane_.threaded()) timed_call([&] { lane_.wait(number); });
}

void Engine::State::drain() {
  if (lane_.threaded()) timed_call([&] { lane_.drain(); });
}

void Engine::State::prepare(int64_t time, int64_t end) {
  for (const plan::Gather& due : plan::due(plan, slots, time, end)) {
    size_t g = due.use.group;
    comm::Group& ranks = row();
    slots.gathered(g);
    filled_[g] = post(
        "gather " + plan.groups[g].name,
        [this, g, &ranks, part = due.trainable_only](const comm::Call& call) { store.gather(g, part, ranks, call); });
  }
  size_t now = plan::use_at(plan, time)->group;
  wait(filled_[now]);
  if (options.exchanges.contains(segments[now].name)) drain();  // an exchange makes calls of its own
}

model::Tensors Engine::State::pass(const std::optional<model::Tensors>& micro_batch, const std::string* loss,
                                   const std::vector<std::string>& keep) {
  try {
    check_ready();
    PassCalls calls{[this](int64_t time, int64_t end) { prepare(time, end); },
                    [this](size_t g, auto gradients) { fold(g, std::move(gradients)); }};
    Pass pass(plan, segments, options, store, {copies, spill_}, calls);
    double start = monotonic_s(), waited = times.communication;
    pass.forward(micro_batch, loss != nullptr, keep);
    double turn = monotonic_s(), waited_forward = times.communication - waited;
    times.forward += turn - start - waited_forward;
    if (loss) {
      pass.backward(*loss);
      drain();
      times.backward += monotonic_s() - turn - (times.communication - waited - waited_forward);
      ++round_;
    }
    if (round_ == 0) end_window();
    return pass.take_kept();
  } catch (const std::exception& error) {
    group.abandon(first_line(error.what()));
    throw;
  }
}

at::Tensor Engine::State::parameter_whole(size_t parameter) {
  if (hosts.table(parameter).defined()) return hosts.table(parameter).to(at::kFloat);
  if (plan.parameters[parameter].trainable) return gather_whole(parameter, store.master(parameter), "parameter");
  return gather_whole(parameter, store.read_frozen(parameter), "parameter");
}

at::Tensor Engine::State::gradient_whole(size_t parameter) {
  const plan::Held& held = plan.parameters[parameter];
  SF_CHECK(held.trainable, Exit::kSoftware, "parameter {} is frozen and has no gradient", held.name);
  fold_local_sums();
  std::vector<float> mine = window_gradient(parameter), all(static_cast<size_t>(store.held(parameter).size()));
  if (plan.mesh.replicas == 1) return gather_whole(parameter, mine, "gradient");
  std::vector<size_t> sizes;
  for (int r : plan.mesh.column(group.rank())) {
    sizes.push_back(static_cast<size_t>(held.owned[static_cast<size_t>(r)].size()) * sizeof(float));
  }
  std::string tag = "gather gradient " + held.name;
  column().all_gather(std::as_bytes(std::span(mine)), sizes, std::as_writable_bytes(std::span(all)), call(tag));
  return gather_whole(parameter, all, "gradient");
}

std::vector<plan::Interval> Engine::State::of_row(const std::vector<plan::Interval>& intervals) const {
  std::vector<plan::Interval> row;
  for (int r : plan.mesh.row(group.rank())) row.push_back(intervals[static_cast<size_t>(r)]);
  return row;
}

void Engine::State::end_window() {
  for (auto& [segment, exchange] : options.exchanges) exchange->end_window();
}

at::Tensor Engine::State::gather_whole(size_t parameter, std::span<const float> mine, std::string_view what) {
  const plan::Held& held = plan.parameters[parameter];
  at::Tensor whole = at::empty(held.shape, at::TensorOptions().dtype(at::kFloat));
  std::span<float> into(whole.mutable_data_ptr<float>(), static_cast<size_t>(whole.numel()));
  if (held.replicated || (plan.mesh.shards == 1 && !held.exchanged)) {
    std::copy(mine.begin(), mine.end(), into.begin());
    return whole;
  }
  std::vector<size_t> sizes;
  for (const plan::Interval& part : held.exchanged ? held.intervals : of_row(held.intervals)) {
    sizes.push_back(static_cast<size_t>(part.size()) * sizeof(float));
  }
  std::string tag = fmt::format("gather {} {}", what, held.name);
  (held.exchanged ? group : row()).all_gather(std::as_bytes(mine), sizes, std::as_writable_bytes(into), call(tag));
  return whole;
}

void Engine::State::load_state(const std::string& name, const ReadInterval& read) {
  slots.forget();
  std::string_view parameter = name;
  std::span<float> (Store::*part)(size_t) const = &Store::master;
  if (name.ends_with(".exp_avg")) {
    parameter.remove_suffix(std::string_view(".exp_avg").size());
    part = &Store::exp_avg;
  } else if (name.ends_with(".exp_avg_sq")) {
    parameter.remove_suffix(std::string_view(".exp_avg_sq").size());
    part = &Store::exp_avg_sq;
  } else {
    return store.load(store.index_of(name), read);
  }
  size_t index = store.index_of(parameter);
  SF_CHECK(plan.parameters[index].trainable, Exit::kSoftware, "{}: parameter {} is frozen and has no moments", name,
           parameter);
  const plan::Interval& mine = store.owned(index);
  if (!mine.empty()) read(mine.lo, mine.hi, (store.*part)(index));
}

}  // namespace sf::engine
