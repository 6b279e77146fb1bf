// SPDX-License-Identifier: Apache-2.0
// The capture side of a stream. Trainer ranks ask for positions; a callback computes them on the thread of serve(), so
// LibTorch stays on one thread; sockets live on a thread of their own that never computes. Nothing here is worth
// saving.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "stream/handle.h"
#include "stream/sample.h"

namespace sf::stream {

struct ProducerOptions {
  Contract contract;
  std::string bind = "tcp://127.0.0.1:*";   // beyond loopback the stream is encrypted
  bool encrypt = false;                     // on loopback, too
  std::string code;                         // code version, said to trainers
  size_t credit_bytes = size_t{256} << 20;  // most bytes in flight to one rank (and at most what the rank grants)
  size_t cache_bytes = size_t{1} << 30;     // finished samples kept for later epochs
  double heartbeat_s = 1;
  double silent_s = 15;  // a rank not heard for so long has left
  double stop_s = 60;    // after stop: how long BYE is waited for
  double join_s = 600;   // how long the first rank is waited for
  double rejoin_s = 60;  // after all ranks are gone without BYE: how long a restarted trainer is waited for
  double explain_s = 0;  // between two lines that explain the pipe; 0: none
  int life_fd = -1;      // the pipe that carried the handle: its reader's death is seen here
  std::function<void(const std::string&)> report;  // what happens, one line each; called on the thread of serve()
};

// How serve() ended, and the exit status it maps to.
enum class Ending {
  kBye,             // every rank said BYE                          0
  kStopDeadline,    // told to stop, BYE did not come in time       69
  kStoppedUnasked,  // told to stop before any trainer joined       75
  kReaderGone,      // the reader of the pipe died without BYE      69
  kTrainersGone,    // no rank left, at least one without BYE       69
  kNobodyCame,      // join_s passed                                69
};
Exit exit_of(Ending ending);
std::string message_of(Ending ending);

struct ProducerCounts {
  uint64_t computed = 0;    // calls of the callback
  uint64_t cached = 0;      // answered from the cache
  uint64_t sent = 0;        // samples handed to the wire
  uint64_t sent_bytes = 0;  // tensor bytes of those
  uint64_t voids = 0;       // of `sent`
  uint64_t bad_messages = 0;
  size_t peak_in_flight = 0;  // bytes to one rank
  double busy_s = 0;          // spent making samples
};

class Producer {
 public:
  // Position -> sample. Its row must be that of place_of(position); its position is set by the producer.
  using Compute = std::function<Sample(uint64_t position)>;
  // Several at once: the samples of the first of these positions, in order; at least one.
  using ComputeMany = std::function<std::vector<Sample>(std::span<const uint64_t> positions)>;

  // Binds and starts the thread of the sockets; trainers may join from now on. Of an encrypted stream only holders of
  // its handle are let in. kUnavailable: the address cannot be bound.
  Producer(ProducerOptions options, Compute compute);
  Producer(ProducerOptions options, ComputeMany compute, size_t most);  // positions at once
  ~Producer();
  Producer(const Producer&) = delete;

  const Handle& handle() const;
  // Computes what is asked, lowest position first, until an ending. `stop` is looked at between samples and every
  // 20 ms. An error of the callback is told to every trainer, then thrown. kProtocol: the trainer behind the pipe
  // refused this stream, with its reason; behind a handle file that is only reported, as others may come.
  Ending serve(const std::function<bool()>& stop);
  ProducerCounts counts() const;
  std::string explain() const;  // the line that explains the pipe, as this side sees it

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sf::stream
