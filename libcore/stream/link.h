// SPDX-License-Identifier: Apache-2.0
// One producer as a trainer rank sees it: its handle, where another handle may appear, and the sockets to it.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "stream/handle.h"
#include "stream/roster.h"
#include "stream/socket.h"

namespace sf::stream {

// A rank's name for itself, new for each connection.
std::string routing_id(int rank);

struct Link {
  // Two sockets to one producer; a shared one would go on feeding the dead.
  struct Channel {
    Sockets sockets;
    Socket data, control;
    Channel(const Handle& handle, const std::string& id, int linger_ms);
  };

  std::filesystem::path file;    // where a restarted or late producer publishes its handle; empty behind a pipe
  std::optional<Handle> handle;  // of the producer we talk to, or talked to last
  std::unique_ptr<Channel> channel;
  bool welcomed = false, stopping = false, bye = false, bye_acked = false;
  bool lost = false;  // it was there and is gone; said once
  double heard = 0, next_beat = 0, lost_at = 0, next_reread = 0;
  std::string doing;      // what its last heartbeat said
  uint64_t produced = 0;  // samples, and the seconds it took, as it says
  double busy_s = 0;

  std::string who() const { return handle ? handle->who() : "the producer of " + file.string(); }
  bool live() const { return channel && welcomed; }
  void open(int rank, double now);
  void close();
  // A handle in `file` that we have not talked to yet; nullopt: none. Errors of Handle::parse.
  std::optional<Handle> another(double now);
};

// Tells a producer why it will not be asked. Best effort: who does not answer finds the pipe closed instead.
void refuse(const Handle& producer, Hello hello, const Error& why);

}  // namespace sf::stream
