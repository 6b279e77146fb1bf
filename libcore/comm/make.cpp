// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <thread>

#include "base/error.h"
#include "comm/shared.h"
#include "tensor/threads.h"

namespace sf::comm {
namespace {

// Small areas: a group of 128 threads stays at 16 MiB.
constexpr size_t kThreadsHalfBytes = size_t{64} << 10;

}  // namespace

std::vector<std::unique_ptr<Group>> make_threads(int world) {
  auto region = shm::Region::anonymous(world, kThreadsHalfBytes);
  std::vector<std::unique_ptr<Group>> groups;
  auto parts = std::make_shared<ThreadParts>();
  for (int rank = 0; rank < world; ++rank)
    groups.push_back(std::make_unique<SharedGroup>(Place{.board = region, .rank = rank, .kind = "threads"}, parts));
  return groups;
}

std::unique_ptr<Group> make_shm(int control_fd, int rank, int world) {
  auto region = shm::Region::map(control_fd);
  SF_CHECK(region->world() == world && rank >= 0 && rank < world, Exit::kProtocol,
           "rank {} of {} wanted, the group's memory file is for {} ranks", rank, world, region->world());
  return std::make_unique<SharedGroup>(Place{.board = std::move(region), .rank = rank, .kind = "shm"}, nullptr);
}

void run_threads(int world, const std::function<void(Group&)>& body) {
  auto groups = make_threads(world);
  std::vector<std::exception_ptr> errors(groups.size());
  auto run_rank = [&](size_t rank) {
    try {
      tensor::set_threads(1);  // ranks share the cores; and equal bits need equal threads
      body(*groups[rank]);
    } catch (const std::exception& error) {
      groups[rank]->abandon(error.what());
      errors[rank] = std::current_exception();
    }
    groups[rank].reset();
  };
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  std::exception_ptr news;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const Error& known) {
      if (known.code() != Exit::kUnavailable) throw;
      if (!news) news = error;
    }
  }
  if (news) std::rethrow_exception(news);
}

}  // namespace sf::comm
