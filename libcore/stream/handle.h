// SPDX-License-Identifier: Apache-2.0
// The handle: one JSON line that names a stream. It travels over the pipe (`sf-capture ... | sf-train --from -`) or in
// a handle file (`--handle-file F`, `--from F`); after the line the pipe carries nothing but its own life.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "stream/sample.h"
#include "stream/socket.h"

namespace sf::stream {

inline constexpr size_t kMaxHandleBytes = size_t{64} << 10;
inline constexpr size_t kMaxEndpoints = 64;

struct Endpoint {
  std::string data, control;  // "tcp://127.0.0.1:43817"
};

struct Encryption {
  std::string server;  // open key
  KeyPair client;
};

struct Handle {
  int version = 1;                  // wire version
  std::string id;                   // 16 hex digits, new for every producer process
  std::vector<Endpoint> endpoints;  // one a producer
  Contract contract;
  int64_t pid = 0;
  std::string host;
  std::string token;  // whoever knows it may join
  // Of an encrypted stream: its own open key, and the pair of whoever may join. A file with them is its owner's alone.
  std::optional<Encryption> encryption;
  std::string code;  // code version of the producer: recorded, a difference is said, never refused

  Json to_json() const;
  std::string line() const;   // one line, newline at its end
  std::string shown() const;  // for people: pretty, token and secret key masked
  std::string who() const;    // "producer 1234 on host"
  // kData: not a handle. kProtocol: another wire version, or the contract does not match its digest.
  static Handle parse(std::string_view text, std::string_view origin);
};

// Random hex digits from the kernel: ids and tokens.
std::string random_hex(size_t bytes);

void write_handle_file(const std::filesystem::path& path, const Handle& handle);  // atomic, mode 0600
// kNoPermission: it holds keys and may be read by others.
Handle read_handle_file(const std::filesystem::path& path);
// Removes the file if it still names this stream.
void remove_handle_file(const std::filesystem::path& path, std::string_view id);

// One line from a pipe. kNoInput: it ended before a whole line came; kUnavailable: the deadline passed.
Handle read_handle(int fd, Deadline deadline);
// Waits until the file exists and holds a handle. kUnavailable: the deadline passed.
Handle wait_for_handle_file(const std::filesystem::path& path, Deadline deadline);

}  // namespace sf::stream
