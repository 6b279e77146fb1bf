// SPDX-License-Identifier: Apache-2.0
// The trainer side of a stream: one StreamSource a rank. A thread of its own owns the sockets, puts samples together,
// checks every chunk and keeps the heartbeat, so a rank that computes for minutes still lives and still prefetches.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "stream/handle.h"
#include "stream/source.h"

namespace sf::stream {

struct StreamOptions {
  Contract wanted;  // fields left empty are not compared (Contract::unmet_by)
  int rank = 0, world = 1;
  std::string code;                         // our code version
  size_t credit_bytes = size_t{256} << 20;  // most bytes of samples received, or under way, and not yet taken by get()
  double heartbeat_s = 1;
  double silent_s = 15;               // a producer not heard for so long is dead
  double retry_s = 5;                 // a position of which nothing came for so long is asked again
  double connect_s = 30;              // how long the first answer is waited for
  double finish_s = 5;                // how long the answer to BYE is waited for
  double rejoin_s = 0;                // behind a handle file: how long a restarted producer is waited for
  std::filesystem::path handle_file;  // read again when the producer is lost; empty behind a pipe
  int life_fd = -1;                   // the pipe the handle came through (rank 0): its end is the producer's death
  // What happens, one line each. Called on the socket thread: must be safe there and must not call back.
  std::function<void(const std::string&)> report;
};

struct StreamCounts {
  uint64_t received = 0;  // samples, void ones included
  uint64_t received_bytes = 0;
  uint64_t voids = 0;
  uint64_t corrupt = 0;      // chunks and headers that failed their hash
  uint64_t repeated = 0;     // chunks that came twice
  uint64_t unasked = 0;      // frames of positions nobody waits for
  uint64_t asked_again = 0;  // positions
  uint64_t rejoined = 0;     // restarted producers
  uint64_t bad_messages = 0;
  size_t peak_held = 0;  // bytes received and not taken
  double waited_s = 0;   // time get() spent waiting
};

class StreamSource : public Source {
 public:
  // Compares wire version and contract (kProtocol naming the field; rank 0 tells the producer why), then joins the
  // producer (kUnavailable after connect_s, or with the producer's own reason if it refuses).
  static std::unique_ptr<StreamSource> connect(std::string_view handle_text, StreamOptions options);
  ~StreamSource() override;  // without finish(): leaves without BYE, as a crash would

  const Contract& contract() const override;
  void want(std::span<const uint64_t> positions) override;
  // Throws kProtocol if a chunk came damaged three times; kUnavailable if the producer died (who, since when) or said
  // why it ends; both are thrown again by every later call.
  Sample get(uint64_t position, Deadline deadline) override;
  // Says BYE and waits for the answer. Never throws: whatever the rank did is already safe; a missing answer is
  // reported.
  void finish() override;

  // Tells the producer that its samples are not those wanted, as connect() does of a contract; rank 0's part.
  void refuse(const Error& why) const;

  // The producer was told to stop: it goes on serving until BYE or its deadline. Time to finish the step and publish.
  bool producer_stopping() const;
  StreamCounts counts() const;

 private:
  struct Impl;
  explicit StreamSource(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sf::stream
