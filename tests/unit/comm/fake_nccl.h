// SPDX-License-Identifier: Apache-2.0
// NCCL among the threads of one process: every call is carried out, and written down. Its device is memory that
// allocate() gave; whatever else a call names (but for a copy) is refused, as a device would.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "sf_kernels/collectives.h"

namespace sf::comm::fake {

struct Comm {
  std::string id;
  int rank, world;
};

// Bytes under way, by communicator, sender and receiver.
struct Post {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<std::string, int, int>, std::deque<std::string>> boxes;
  int ids = 0, communicators = 0;
  std::map<const char*, size_t> memories;  // of the device: where and how long
};

inline Post& post() {
  static Post shared;
  return shared;
}

// This rank's calls in order, and those of an open launch.
inline thread_local std::vector<std::string> calls;
inline thread_local std::vector<std::function<void()>> sends, receives;
inline thread_local int launches = 0;
inline thread_local bool stuck = false;  // no call ends any more

inline thread_local size_t largest = 0;  // memory that was asked for at once
inline thread_local int device = -1;     // of this thread

constexpr int kNotOnDevice = 7;

inline bool on_device(const void* from, size_t bytes) {
  std::lock_guard lock(post().mutex);
  const char* at = static_cast<const char*>(from);
  auto found = post().memories.upper_bound(at);
  if (found == post().memories.begin() || device < 0) return false;
  --found;
  return at + bytes <= found->first + found->second;
}

inline void put(const Comm& comm, int to, const void* from, size_t bytes) {
  std::lock_guard lock(post().mutex);
  post().boxes[{comm.id, comm.rank, to}].emplace_back(static_cast<const char*>(from), bytes);
  post().changed.notify_all();
}

inline std::string take(const Comm& comm, int from) {
  std::unique_lock lock(post().mutex);
  auto& box = post().boxes[{comm.id, from, comm.rank}];
  post().changed.wait(lock, [&] { return !box.empty(); });
  std::string bytes = box.front();
  box.pop_front();
  return bytes;
}

inline void run_all() {
  for (auto* list : {&sends, &receives}) {
    for (auto& act : *list) act();
    list->clear();
  }
}

inline int do_or_keep(std::function<void()> send, std::function<void()> receive) {
  if (send) sends.push_back(std::move(send));
  if (receive) receives.push_back(std::move(receive));
  if (launches == 0 && !stuck) run_all();
  return 0;
}

template <typename... Parts>
void note(const char* name, Parts... parts) {
  std::string text = name;
  ((text += " " + std::to_string(parts)), ...);
  calls.push_back(text);
}

inline int all_gather(const void* from, void* to, size_t bytes, void* comm, void*) {
  note("all_gather", bytes);
  auto ranks = static_cast<size_t>(static_cast<Comm*>(comm)->world);
  if (!on_device(from, bytes) || !on_device(to, bytes * ranks)) return kNotOnDevice;
  auto& self = *static_cast<Comm*>(comm);
  auto at = [to, bytes](int r) { return static_cast<char*>(to) + static_cast<size_t>(r) * bytes; };
  return do_or_keep(
      [=] {
        for (int r = 0; r < self.world; ++r) put(self, r, from, bytes);
      },
      [=] {
        for (int r = 0; r < self.world; ++r) std::memcpy(at(r), take(self, r).data(), bytes);
      });
}

// Adds in an order of its own, the last rank first: not the fold's.
inline int reduce_scatter(const float* from, float* to, size_t count, void* comm, void*) {
  note("reduce_scatter", count);
  if (!on_device(from, count * sizeof(float)) || !on_device(to, count * sizeof(float))) return kNotOnDevice;
  auto& self = *static_cast<Comm*>(comm);
  return do_or_keep(
      [=] {
        for (int r = 0; r < self.world; ++r) put(self, r, from + static_cast<size_t>(r) * count, count * sizeof(float));
      },
      [=] {
        std::vector<float> sum(count, 0.0f), one(count);
        for (int r = self.world - 1; r >= 0; --r) {
          std::memcpy(one.data(), take(self, r).data(), count * sizeof(float));
          for (size_t i = 0; i < count; ++i) sum[i] += one[i];
        }
        std::memcpy(to, sum.data(), count * sizeof(float));
      });
}

inline const sf_collectives& table() {
  static const sf_collectives api{
      .error_text = [](int) { return "a fake error"; },
      .make_id =
          [](char* id) {
            std::lock_guard lock(post().mutex);
            std::memset(id, 0, SF_COLLECTIVES_ID_BYTES);
            std::strcpy(id, std::to_string(++post().ids).c_str());
            return 0;
          },
      .join =
          [](void** comm, int world, const char* id, int rank) {
            std::lock_guard lock(post().mutex);
            ++post().communicators;
            *comm = new Comm{id, rank, world};
            return 0;
          },
      .leave =
          [](void* comm) {
            std::lock_guard lock(post().mutex);
            --post().communicators;
            delete static_cast<Comm*>(comm);
            return 0;
          },
      .abort =
          [](void* comm) {
            note("abort");
            std::lock_guard lock(post().mutex);
            --post().communicators;
            delete static_cast<Comm*>(comm);
            return 0;
          },
      .async_error = [](void*) { return 0; },
      .group_start =
          [] {
            ++launches;
            note("start");
            return 0;
          },
      .group_end =
          [] {
            note("end");
            if (--launches == 0 && !stuck) run_all();
            return 0;
          },
      .send =
          [](const void* from, size_t bytes, int peer, void* comm, void*) {
            note("send", bytes, peer);
            if (!on_device(from, bytes)) return kNotOnDevice;
            auto& self = *static_cast<Comm*>(comm);
            return do_or_keep([=] { put(self, peer, from, bytes); }, {});
          },
      .receive =
          [](void* to, size_t bytes, int peer, void* comm, void*) {
            note("receive", bytes, peer);
            if (!on_device(to, bytes)) return kNotOnDevice;
            auto& self = *static_cast<Comm*>(comm);
            return do_or_keep({}, [=] { std::memcpy(to, take(self, peer).data(), bytes); });
          },
      .all_gather = all_gather,
      .reduce_scatter_f32 = reduce_scatter,
      .use_device =
          [](int number) {
            device = number;
            return 0;
          },
      .fold_add =
          [](float* acc, const float* gradient, int64_t count, void*) {
            note("fold_add", count);
            auto bytes = static_cast<size_t>(count) * sizeof(float);
            if (!on_device(acc, bytes) || !on_device(gradient, bytes)) return kNotOnDevice;
            for (int64_t i = 0; i < count; ++i) acc[i] += gradient[i];
            return 0;
          },
      .zero =
          [](void* to, size_t bytes, void*) {
            std::memset(to, 0, bytes);
            return 0;
          },
      .copy =
          [](void* to, const void* from, size_t bytes, void*) {
            std::memmove(to, from, bytes);
            return 0;
          },
      .make_stream =
          [](void** stream) {
            *stream = new char;
            return 0;
          },
      .free_stream =
          [](void* stream) {
            delete static_cast<char*>(stream);
            return 0;
          },
      .pending = [](void*) { return stuck ? 1 : 0; },
      .allocate =
          [](void** memory, size_t bytes) {
            std::lock_guard lock(post().mutex);
            *memory = ::operator new(bytes);
            post().memories[static_cast<const char*>(*memory)] = bytes;
            largest = std::max(largest, bytes);
            return 0;
          },
      .release =
          [](void* memory) {
            std::lock_guard lock(post().mutex);
            post().memories.erase(static_cast<const char*>(memory));
            ::operator delete(memory);
            return 0;
          },
  };
  return api;
}

}  // namespace sf::comm::fake
