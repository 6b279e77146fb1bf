// SPDX-License-Identifier: Apache-2.0
// How ranks of several hosts find each other, and know of each other while they run. Rank 0 listens; every other rank
// keeps one connection to it. Over it go: values put by name (to build a group), and who lives and who waits where
// since when, a few times a second and at once when a rank ends. Each rank holds a board of all (base/shm_control.h),
// so reports are the same as on one host. A connection that ends without a word is a dead rank.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/file.h"
#include "base/shm_control.h"

namespace sf::comm {

struct MeetingOptions {
  int rank = 0, world = 1;
  std::string host;       // of rank 0: name or numeric address
  int port = 0;           // the first of 17 that rank 0 may listen on
  std::string job;        // a stranger's meeting on the same port says another one
  std::string interface;  // name or address to use; "": the route to rank 0
  int supervisor = 0;     // whose end ends the joining; 0: none
  int listener = -1;      // rank 0: an inherited socket that listens already, instead of port
};

class Meeting {
 public:
  // Returns when this rank is in; rank 0, when all are. kUnavailable at the deadline, naming who is missing; kProtocol
  // if rank 0 knows another world, or has this rank already.
  static std::shared_ptr<Meeting> join(const MeetingOptions& options, Deadline deadline);
  ~Meeting();  // tells the others how this rank ended, as the board says
  Meeting(const Meeting&) = delete;

  const std::shared_ptr<shm::Region>& board() const { return board_; }
  const std::string& address() const { return address_; }  // this rank's, as others reach it
  const std::string& place() const { return place_; }      // rank 0's, "ADDRESS:PORT"

  void put(const std::string& key, const std::vector<uint8_t>& value);  // on every rank, soon
  std::optional<std::vector<uint8_t>> find(const std::string& key) const;
  // Returns when something changed (a value, an end), or `span` is over.
  void wait_change(Seconds span) const;
  void tell_now();  // what this rank's own line of the board says has changed

 private:
  struct Line {  // one connection; rank -1: has not said who it is
    UniqueFd fd;
    int rank = -1;
    std::string in, out;
    Deadline greeting;
  };
  struct Told {  // the last of a rank's line that was passed on
    uint32_t life = 0, in_call = 0;
    uint64_t calls = 0;
  };
  explicit Meeting(const MeetingOptions& options);
  void listen(const MeetingOptions& options);
  void find_rank_0(const MeetingOptions& options, Deadline deadline);
  bool greet(const MeetingOptions& options, UniqueFd fd, Deadline deadline);
  void await_all(Deadline deadline);
  void stop_if_orphan() const;

  void run(const std::stop_token& stop);
  void wait_for_events();
  void accept_lines();
  void read_line(Line& line);
  void take(Line& line, std::string_view text);
  void welcome(Line& line, std::string_view text);
  void lost(Line& line);
  void pass_on(bool only_ends);
  std::string news(bool only_ends);
  void send_all(const std::string& text, int but);
  void flush(Line& line);
  void farewell();

  int rank_, world_, supervisor_;
  std::string job_, address_, place_;
  std::shared_ptr<shm::Region> board_;
  UniqueFd listener_, wake_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable changed_;
  std::vector<std::unique_ptr<Line>> lines_;
  std::map<std::string, std::vector<uint8_t>> values_;
  std::vector<Told> told_;
  int joined_ = 0;
  double last_news_ = 0;
  std::jthread thread_;
};

}  // namespace sf::comm
