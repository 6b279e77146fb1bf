// SPDX-License-Identifier: Apache-2.0
// How a meeting begins: rank 0 listens on the first port that is free, the others look for it there.
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/interfaces.h"
#include "base/json.h"
#include "comm/meeting.h"
#include "comm/socket.h"

namespace sf::comm {
namespace {

constexpr int kMorePorts = 16;
constexpr Seconds kAnswer{2.0};  // of a port that may be a stranger's
constexpr Seconds kRetry{0.1};
constexpr Seconds kLook{0.2};  // how often a rank that waits looks for its supervisor
constexpr size_t kBoardArea = 4096;  // the least; nothing passes through it

// One line from a blocking conversation; "" if there is none in time.
std::string hear(int socket, Deadline deadline) {
  std::string text;
  while (!deadline.passed() && text.size() < 4096) {
    pollfd wait{socket, POLLIN, 0};
    char byte = 0;
    if (poll(&wait, 1, deadline.left_ms()) != 1) break;
    ssize_t count = recv(socket, &byte, 1, 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (count == 1 && byte == '\n') return text;
    if (count == 1) text += byte;
  }
  return "";
}

}  // namespace

Meeting::Meeting(const MeetingOptions& options)
    : rank_(options.rank),
      world_(options.world),
      supervisor_(options.supervisor),
      job_(options.job),
      board_(shm::Region::anonymous(options.world, kBoardArea)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      told_(static_cast<size_t>(options.world)) {
  SF_CHECK(wake_.valid(), Exit::kOs, "cannot make an eventfd: {}", errno_text(errno));
  if (!options.interface.empty()) address_ = address_of_interface(options.interface);
}

void Meeting::listen(const MeetingOptions& options) {
  if (options.listener >= 0) {
    listener_ = UniqueFd(dup(options.listener));
    place_ = fmt::format("{}:{}", own_address(listener_.get()), port_of(listener_.get()));
    return;
  }
  // A name of this host may stand for loopback here and for its true address elsewhere: then every address will do.
  std::string bound = address_.empty() ? addresses_of(options.host).front() : address_;
  if (is_loopback(bound) && bound != options.host && options.host != "localhost" && address_.empty()) bound = "";
  int last = options.port == 0 ? 0 : std::min(options.port + kMorePorts, 65535);
  for (int port = options.port; port <= last && !listener_.valid(); ++port) {
    listener_ = listen_on(bound, port);
    if (!listener_.valid() && errno == EADDRNOTAVAIL) listener_ = listen_on(bound = "", port);
  }
  SF_CHECK(listener_.valid(), Exit::kUnavailable, "rank 0 cannot listen on {} at ports {} to {}: {}",
           bound.empty() ? "any address" : bound, options.port, last, errno_text(errno));
  place_ = fmt::format("{}:{}", bound.empty() ? options.host : bound, port_of(listener_.get()));
}

// True if rank 0 of this job answered at the other end.
bool Meeting::greet(const MeetingOptions& options, UniqueFd fd, Deadline deadline) {
  watch_peer(fd.get());
  std::string hello = Json::object()
                          .set("job", job_)
                          .set("world", int64_t{world_})
                          .set("rank", int64_t{rank_})
                          .set("pid", int64_t{getpid()})
                          .set("host", host_name())
                          .dump() +
                      "\n";
  if (send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello.size())) return false;
  std::string text = hear(fd.get(), Deadline::after(std::min(kAnswer, deadline.left())));
  Json answer;
  try {
    answer = Json::parse(text, place_);
  } catch (const Error&) {
    return false;  // not one of us
  }
  if (answer.get_string("job", "") != job_) return false;
  std::string refused = answer.get_string("refused", "");
  SF_CHECK(refused.empty(), Exit::kProtocol, "rank {} of {} ranks was refused by rank 0 at {}: {}", options.rank,
           options.world, place_, refused);
  if (address_.empty()) address_ = own_address(fd.get());
  shm::RankSlot& first = board_->slot(0);
  first.life.store(shm::Life::kAlive);
  first.since_ns.store(shm::now_ns());
  lines_.push_back(
      std::make_unique<Line>(Line{.fd = std::move(fd), .rank = 0, .greeting = Deadline::after(Seconds(0))}));
  return true;
}

void Meeting::find_rank_0(const MeetingOptions& options, Deadline deadline) {
  int last = std::min(options.port + kMorePorts, 65535);
  std::string from = options.interface.empty() ? "" : address_;
  while (true) {
    std::vector<std::string> addresses = addresses_of(options.host);
    for (int port = options.port; port <= last; ++port) {
      for (const std::string& address : addresses) {
        place_ = fmt::format("{}:{}", address, port);
        UniqueFd fd = connect_to(address, port, from, Deadline::after(std::min(kAnswer, deadline.left())));
        if (fd.valid() && greet(options, std::move(fd), deadline)) return;
      }
    }
    stop_if_orphan();
    SF_CHECK(!deadline.passed(), Exit::kUnavailable,
             "rank {} found no rank 0 of \"{}\" on {} at ports {} to {} before the deadline", rank_, job_, options.host,
             options.port, last);
    usleep(static_cast<useconds_t>(kRetry.count() * 1e6));
  }
}

void Meeting::stop_if_orphan() const {
  SF_CHECK(supervisor_ == 0 || getppid() == supervisor_, Exit::kUnavailable,
           "rank {} of {} has not met the others: its supervisor (pid {}) is gone", rank_, world_, supervisor_);
}

void Meeting::await_all(Deadline deadline) {
  std::unique_lock lock(mutex_);
  auto joined = [&] { return joined_ == world_ - 1; };
  while (!changed_.wait_for(lock, std::min(kLook, deadline.left()), joined) && !deadline.passed()) stop_if_orphan();
  bool all = joined();
  std::string missing;
  for (int rank = 1; rank < world_; ++rank) {
    if (board_->slot(rank).life.load() == shm::Life::kAbsent)
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  lock.unlock();
  if (all) return;
  std::string why = fmt::format("rank 0 waited at {} in vain for rank {} of {}", place_, missing, world_);
  shm::end_rank(*board_, 0, shm::Life::kFailed, why);
  throw Error(Exit::kUnavailable, why);
}

std::shared_ptr<Meeting> Meeting::join(const MeetingOptions& options, Deadline deadline) {
  std::shared_ptr<Meeting> meeting(new Meeting(options));
  if (options.rank == 0) {
    if (options.world > 1) meeting->listen(options);
  } else {
    meeting->find_rank_0(options, deadline);
  }
  meeting->thread_ = std::jthread([raw = meeting.get()](const std::stop_token& stop) { raw->run(stop); });
  pthread_setname_np(meeting->thread_.native_handle(), "sf-meet");
  if (options.rank == 0) meeting->await_all(deadline);
  if (meeting->address_.empty()) meeting->address_ = "127.0.0.1";  // alone
  return meeting;
}

}  // namespace sf::comm
