// SPDX-License-Identifier: Apache-2.0
#include "stream/client.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "stream/client_impl.h"
#include "stream/flow.h"

namespace sf::stream {

std::unique_ptr<StreamSource> StreamSource::connect(std::string handle, StreamOptions options) {
  return connect(std::vector<From>{{std::move(handle), {}}}, std::move(options));
}

std::unique_ptr<StreamSource> StreamSource::connect(std::vector<From> from, StreamOptions options) {
  auto impl = std::make_unique<Impl>(from, std::move(options));
  Impl& self = *impl;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  self.self = fmt::format("{}:{}", host, getpid());
  struct stat info {};
  bool piped = fstat(self.options.life_fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
  if (!piped) self.options.life_fd = -1;  // a handle redirected from a file has no life to watch
  double now = monotonic_s();
  bool by_file = false;
  for (size_t i = 0; i < from.size(); ++i) {
    by_file = by_file || !from[i].file.empty();
    if (from[i].handle.empty()) continue;
    Handle offered = Handle::parse(from[i].handle, "stream handle");
    try {
      self.adopt(self.links[i], offered);
    } catch (const Error& error) {
      self.links[i].handle = offered;
      self.refuse_all(error);
      throw;
    }
  }
  SF_CHECK(self.contracted, Exit::kUnavailable, "none of the {} producers has published a handle", from.size());
  std::unique_ptr<StreamSource> source(new StreamSource(std::move(impl)));
  for (Link& link : self.links)
    if (link.handle) link.open(self.options.rank, now);
  double patience = std::max(self.options.connect_s, by_file ? self.options.rejoin_s : 0);
  Deadline deadline = Deadline::after(Seconds(patience));
  self.alone_since = now;
  self.thread = std::thread([&self] { self.run(); });
  std::unique_lock lock(self.mutex);
  self.changed.wait_for(lock, deadline.left(), [&] { return self.joined || self.failure; });
  if (self.failure) throw Error(*self.failure);
  SF_CHECK(self.joined, Exit::kUnavailable, "no producer answered within {:.0f} s: {}; is it still running?", patience,
           self.state_of_links(monotonic_s()));
  return source;
}

StreamSource::StreamSource(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StreamSource::~StreamSource() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->quit = true;
  }
  impl_->wake.ring();
  if (impl_->thread.joinable()) impl_->thread.join();
}

const Contract& StreamSource::contract() const {
  return impl_->contract;
}

void StreamSource::want(std::span<const uint64_t> positions) {
  {
    std::lock_guard lock(impl_->mutex);
    for (uint64_t position : positions) impl_->asking.want(position);
    SF_CHECK(impl_->asking.waiting() <= kMaxQueued, Exit::kSoftware,
             "{} positions are wanted at once, at most {} can be", impl_->asking.waiting(), kMaxQueued);
  }
  impl_->wake.ring();
}

Sample StreamSource::get(uint64_t position, Deadline deadline) {
  Impl& self = *impl_;
  double start = monotonic_s();
  std::unique_lock lock(self.mutex);
  SF_ASSERT(!self.finished);
  auto there = [&] { return self.ready.contains(position); };
  if (!there() && !self.failure) {
    self.asking.need(position);
    self.wake.ring();
    self.changed.wait_for(lock, deadline.left(), [&] { return there() || self.failure; });
  }
  double now = monotonic_s();
  self.counts.waited_s += now - start;
  if (!there()) {
    if (self.failure) throw Error(*self.failure);
    fail(Exit::kUnavailable, "position {} did not come within {:.1f} s: {}", position, now - start,
         self.state_of_links(now));
  }
  Sample sample = std::move(self.ready.extract(position).mapped());
  self.landed[static_cast<size_t>(self.asking.take(position))].push_back(position);
  self.wake.ring();
  return sample;
}

void StreamSource::trained(uint64_t end) {
  Impl& self = *impl_;
  std::lock_guard lock(self.mutex);
  self.asking.trained(end);
  const std::optional<std::string> wrong = self.asking.wrong();
  SF_CHECK(!wrong, Exit::kSoftware, "the stream's counters do not add up: {}", wrong.value_or(""));
  self.wake.ring();
}

void StreamSource::finish() {
  Impl& self = *impl_;
  {
    std::unique_lock lock(self.mutex);
    if (self.finished) return;
    self.finished = true;
    self.bye = true;
    for (Link& link : self.links) link.next_beat = 0;
    self.wake.ring();
    auto answered = [&] {
      return std::all_of(self.links.begin(), self.links.end(),
                         [](const Link& link) { return !link.channel || link.bye_acked; });
    };
    auto limit = Seconds(self.options.finish_s);
    if (!self.failure) self.changed.wait_for(lock, limit, [&] { return answered() || self.failure; });
    for (const Link& link : self.links)
      if (link.handle && !link.bye_acked) self.report(link.who() + " did not answer BYE");
    self.quit = true;
  }
  self.wake.ring();
  self.thread.join();
}

void StreamSource::refuse(const Error& why) const {
  std::vector<Handle> producers;
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->options.rank != 0) return;
    for (const Link& link : impl_->links)
      if (link.handle) producers.push_back(*link.handle);
  }
  for (const Handle& producer : producers) stream::refuse(producer, impl_->hello_to(producer), why);
}

bool StreamSource::producer_stopping() const {
  std::lock_guard lock(impl_->mutex);
  bool any = false;
  for (const Link& link : impl_->links) {
    if (!link.channel) continue;
    if (!link.stopping) return false;
    any = true;
  }
  return any;
}

StreamCounts StreamSource::counts() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->seen(monotonic_s());
}

}  // namespace sf::stream
