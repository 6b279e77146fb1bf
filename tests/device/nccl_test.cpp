// SPDX-License-Identifier: Apache-2.0
// The group over NCCL, one rank a GPU: gathers and folds against what a host would compute.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/shm_control.h"
#include "comm/nccl.h"
#include "sf_kernels/cuda.h"

namespace sf::comm {
namespace {

Call named(std::string_view tag) {
  return {tag, Deadline::after_ms(60'000)};
}

// Device memory with a host's contents.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& host) : count_(host.size()) {
    EXPECT_EQ(cudaMalloc(&memory_, std::max<size_t>(1, count_) * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(memory_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~OnDevice() { cudaFree(memory_); }
  OnDevice(const OnDevice&) = delete;
  std::span<T> span() const { return {static_cast<T*>(memory_), count_}; }
  std::vector<T> host() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), memory_, count_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  void* memory_ = nullptr;
  size_t count_;
};

// Counted in a process of its own: CUDA does not survive a fork.
int gpus() {
  int status = 0;
  pid_t child = fork();
  if (child == 0) {
    int count = 0;
    _exit(sf_cuda_device_count(&count) == 0 ? std::min(count, 100) : 0);
  }
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

void on_every_gpu(const NcclOptions& options, const std::function<void(Group&)>& body) {
  int world = gpus();
  if (world == 0) GTEST_SKIP() << "not run: no GPU on this machine";
  int fd = shm::create_control(world);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    int status = 1;
    try {
      cudaSetDevice(rank);
      SF_CHECK(sf_cuda_collectives() != nullptr, Exit::kUnavailable, "built without NCCL");
      auto group = make_nccl(*sf_cuda_collectives(), make_shm(fd, rank, world), options);
      body(*group);
      status = ::testing::Test::HasFailure() ? 2 : 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    }
    std::fflush(nullptr);
    _exit(status);
  }
  close(fd);
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank << " of " << world;
  }
}

std::vector<float> gradient_of(int rank, size_t elements) {
  Rng rng(7, "gradient");
  std::vector<float> values(elements);
  for (size_t i = 0; i < elements; ++i) values[i] = rng.normal(static_cast<uint64_t>(rank), i) * 1e3f;
  return values;
}

TEST(NcclOnDevice, GathersEqualAndUnevenPiecesBitForBit) {
  on_every_gpu({}, [](Group& group) {
    auto world = static_cast<size_t>(group.world()), me = static_cast<size_t>(group.rank());
    for (bool equal : {true, false}) {
      std::vector<size_t> sizes(world);
      std::vector<std::byte> wanted;
      for (size_t r = 0; r < world; ++r) {
        sizes[r] = equal ? 4099 : 17 * r + 1;
        wanted.insert(wanted.end(), sizes[r], static_cast<std::byte>(r + 1));
      }
      OnDevice<std::byte> mine(std::vector<std::byte>(sizes[me], static_cast<std::byte>(me + 1)));
      OnDevice<std::byte> into(std::vector<std::byte>(wanted.size()));
      group.all_gather(mine.span(), sizes, into.span(), named("gather"));
      EXPECT_EQ(into.host(), wanted);
    }
  });
}

void fold(Group& group, size_t unit, double tolerance) {
  auto world = static_cast<size_t>(group.world()), me = static_cast<size_t>(group.rank());
  std::vector<size_t> offsets{0};
  for (size_t r = 0; r < world; ++r) offsets.push_back(offsets.back() + unit);
  std::vector<float> wanted(unit, 0.25f);
  for (size_t r = 0; r < world; ++r) {
    auto gradient = gradient_of(static_cast<int>(r), offsets.back());
    for (size_t i = 0; i < unit; ++i) wanted[i] += gradient[offsets[me] + i];
  }
  OnDevice<float> gradient(gradient_of(group.rank(), offsets.back())), acc(std::vector<float>(unit, 0.25f));
  group.reduce_fold(gradient.span(), true, offsets, acc.span(), named("fold"));
  std::vector<float> found = acc.host();
  for (size_t i = 0; i < unit; ++i) ASSERT_LE(std::abs(found[i] - wanted[i]), tolerance) << i;
}

TEST(NcclOnDevice, AnExactFoldHasTheHostsBits) {
  on_every_gpu({.piece_bytes = 4096}, [](Group& group) { fold(group, 10'007, 0); });
}

TEST(NcclOnDevice, AFastFoldIsBounded) {
  // Sums of at most 100 values of 1e4: each addition rounds by 2^-24 of at most 1e6.
  on_every_gpu({.fold = Fold::kFast}, [](Group& group) { fold(group, 10'007, 100 * 1e6 * 0x1p-24); });
}

}  // namespace
}  // namespace sf::comm
