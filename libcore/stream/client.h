// SPDX-License-Identifier: Apache-2.0
// The trainer side of a stream: one StreamSource a rank, fed by any number of producers. A thread of its own owns the
// sockets, puts samples together, checks every chunk and keeps the heartbeat, so a rank that computes for minutes still
// lives and still prefetches.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "stream/asking.h"
#include "stream/handle.h"
#include "stream/source.h"

namespace sf::stream {

// Where a producer is found: the text of its handle, and the file in which a restarted or late one publishes its own.
struct From {
  std::string handle;          // empty: it has not come yet
  std::filesystem::path file;  // empty behind a pipe
};

struct StreamOptions {
  Contract wanted;  // fields left empty are not compared (Contract::unmet_by)
  int rank = 0, world = 1;
  std::string code;  // our code version
  Marks marks;       // `bound` comes from the contract
  double heartbeat_s = 1;
  double silent_s = 15;   // a producer not heard for so long is lost
  double retry_s = 5;     // a position of which nothing came for so long is asked again
  double connect_s = 30;  // how long the first answer is waited for; behind a handle file at least rejoin_s
  double finish_s = 5;    // how long the answer to BYE is waited for
  double rejoin_s = 0;    // how long a run without any producer waits for one behind a handle file
  double explain_s = 0;   // between two lines of rank 0 that explain the pipe; 0: none
  int life_fd = -1;       // the pipe a handle came through (rank 0): its end is that producer's death
  // What happens, one line each. Called on the socket thread: must be safe there and must not call back.
  std::function<void(const std::string&)> report;
};

struct Served {
  std::string who;
  ProducerTally tally;
};

struct StreamCounts {
  Tally tally;
  std::vector<Served> producers;  // by place in the list given to connect(); those that came and went are one
  uint64_t received = 0;          // samples, void ones included
  uint64_t received_bytes = 0;
  uint64_t corrupt = 0;   // chunks and headers that failed their hash
  uint64_t repeated = 0;  // chunks that came twice
  uint64_t rejoined = 0;  // restarted and late producers
  uint64_t bad_messages = 0;
  uint64_t peak_held = 0;              // bytes received and not trained
  double elapsed_s = 0, waited_s = 0;  // since the first answer; of it, in get()
  double supply_per_s = 0;             // samples that the producers can make, as they say
};

// The line that explains the pipe; `ranks`: whose counts these are, of `world` that take from it.
std::string explain(const StreamCounts& counts, int ranks, int world);

class StreamSource : public Source {
 public:
  // Compares wire version and contract (kProtocol naming the field; rank 0 tells the producer why), then joins every
  // producer that is there (kUnavailable if none answers in time, or with its own reason if it refuses).
  static std::unique_ptr<StreamSource> connect(std::vector<From> from, StreamOptions options);
  static std::unique_ptr<StreamSource> connect(std::string handle, StreamOptions options);  // one, behind a pipe
  ~StreamSource() override;  // without finish(): leaves without BYE, as a crash would

  const Contract& contract() const override;
  void want(std::span<const uint64_t> positions) override;
  // Throws kProtocol if a chunk came damaged three times; kUnavailable if no producer is left (who, since when) or it
  // said why it ends; both are thrown again by every later call.
  Sample get(uint64_t position, Deadline deadline) override;
  // Counted as trained. kSoftware if the counters do not add up.
  void trained(uint64_t end) override;
  // Says BYE and waits for the answers. Never throws: whatever the rank did is already safe; a missing answer is
  // reported.
  void finish() override;

  // Tells the producers that their samples are not those wanted, as connect() does of a contract; rank 0's part.
  void refuse(const Error& why) const;

  // Every producer was told to stop: they go on serving until BYE or their deadline. Time to finish the step and
  // publish. One of several that is told to stop is left, and the others are asked.
  bool producer_stopping() const;
  StreamCounts counts() const;

 private:
  struct Impl;
  explicit StreamSource(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sf::stream
