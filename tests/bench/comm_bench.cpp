// SPDX-License-Identifier: Apache-2.0
// Two ranks of one host: all-gather and fold of 64 MiB, beside a memcpy of 64 MiB by both at once. Medians of pairs.
// usage: comm_bench [AREA_KIB]
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "base/deadline.h"
#include "base/shm_control.h"
#include "comm/group.h"

namespace {

constexpr size_t kBytes = size_t{64} << 20;
constexpr int kWorld = 2, kRounds = 21;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(sf::comm::Group& group) {
  sf::comm::Call call{"bench", sf::Deadline::after(sf::Seconds(600))};
  std::vector<float> from(kBytes / 4, 1.0f), to(kBytes / 4), acc(kBytes / 4 / kWorld);
  std::vector<size_t> sizes(kWorld, kBytes / kWorld), offsets{0, acc.size(), 2 * acc.size()};
  auto bytes = std::as_writable_bytes(std::span(to));
  auto mine = bytes.subspan(static_cast<size_t>(group.rank()) * sizes[0], sizes[0]);
  std::vector<double> copy, gather, fold;
  auto timed = [&](std::vector<double>& into, const std::function<void()>& body) {
    group.barrier(call);
    double start = sf::monotonic_s();
    body();
    group.barrier(call);
    into.push_back(sf::monotonic_s() - start);
  };
  for (int round = 0; round < kRounds; ++round) {
    timed(copy, [&] { std::memcpy(to.data(), from.data(), kBytes); });
    timed(gather, [&] { group.all_gather(mine, sizes, bytes, call); });
    timed(fold, [&] { group.reduce_fold(from, true, offsets, acc, call); });
  }
  if (group.rank() != 0) return;
  double gib = static_cast<double>(kBytes) / (1 << 30), base = median(copy);
  std::printf("memcpy %.2f GiB/s; all-gather %.2f GiB/s (%.2f of memcpy); fold %.2f GiB/s (%.2f)\n", gib / base,
              gib / median(gather), base / median(gather), gib / median(fold), base / median(fold));
}

}  // namespace

int main(int argc, char** argv) {
  size_t area = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) << 10 : size_t{1} << 20;
  int fd = sf::shm::create_control(kWorld, area);
  pid_t other = fork();
  run(*sf::comm::make_shm(fd, other == 0 ? 1 : 0, kWorld));
  if (other != 0) waitpid(other, nullptr, 0);
  return 0;
}
