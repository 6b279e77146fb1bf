// SPDX-License-Identifier: Apache-2.0
#include "stream/handle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "stream/fields.h"
#include "stream/frame.h"

namespace sf::stream {
namespace {

// Where a trainer can connect to.
std::string address(const Json& endpoint, std::string_view key) {
  std::string text = text_field(endpoint, key, 256);
  constexpr std::string_view kTcp = "tcp://";
  const size_t colon = text.rfind(':');
  const char* end = text.data() + text.size();
  int port = 0;
  const bool reachable = text.starts_with(kTcp) && colon > kTcp.size() &&
                         std::from_chars(text.data() + colon + 1, end, port).ptr == end && port >= 1 && port <= 65535;
  SF_CHECK(reachable, Exit::kData, "endpoint {}: wanted tcp://HOST:PORT with a port of 1 to 65535, found \"{}\"", key,
           text);
  return text;
}

Contract contract_in(const Json& json) {
  try {
    return Contract::from_json(json.at("contract"));
  } catch (Error& error) {
    error.add_context("contract");
    throw;
  }
}

Handle from_json(const Json& json) {
  SF_CHECK(json.is_object() && json.get_string("kind", "") == "stream", Exit::kData,
           "not a stream handle (kind \"stream\" wanted)");
  Handle handle;
  const int64_t version = whole_field(json, "v");
  SF_CHECK(version == kWireVersion, Exit::kProtocol,
           "wire version: wanted {}, found {}; use the same ShardForge on both sides", kWireVersion, version);
  handle.id = text_field(json, "id", 64);
  const Json::Array& endpoints = list_field(json, "endpoints", kMaxEndpoints);
  SF_CHECK(!endpoints.empty(), Exit::kData, "field endpoints: wanted at least one, found none");
  for (const Json& item : endpoints) {
    handle.endpoints.push_back({address(item, "data"), address(item, "control")});
  }
  handle.contract = contract_in(json);
  std::string digest = text_field(json, "contract_digest", 64);
  SF_CHECK(digest == handle.contract.digest(), Exit::kProtocol,
           "contract_digest: wanted {} (of the contract in the handle), found {}", handle.contract.digest(), digest);
  handle.pid = whole_field(json, "pid");
  handle.host = text_field(json, "host", 256);
  handle.token = text_field(json, "token", 128);
  handle.code = text_field(json, "code", 128);
  if (const Json* keys = json.find("encryption")) {
    auto key = [&](const char* name) {
      std::string text = text_field(*keys, name, kKeyLetters);
      SF_CHECK(is_key(text), Exit::kData, "encryption: {} is not a key of {} letters", name, kKeyLetters);
      return text;
    };
    handle.encryption = Encryption{key("server"), {key("client"), key("client_secret")}};
  }
  return handle;
}

}  // namespace

Json Handle::to_json() const {
  Json list = Json::array();
  for (const Endpoint& endpoint : endpoints) {
    Json item = Json::object();
    item.set("data", endpoint.data).set("control", endpoint.control);
    list.push(std::move(item));
  }
  Json json = Json::object();
  json.set("kind", "stream").set("v", version).set("id", id).set("endpoints", std::move(list));
  json.set("contract", contract.to_json()).set("contract_digest", contract.digest());
  json.set("pid", pid).set("host", host).set("code", code).set("token", token);
  if (encryption) {
    Json keys = Json::object();
    keys.set("server", encryption->server).set("client", encryption->client.open);
    keys.set("client_secret", encryption->client.secret);
    json.set("encryption", std::move(keys));
  }
  return json;
}

std::string Handle::line() const {
  return to_json().dump() + "\n";
}

std::string Handle::shown() const {
  Json json = to_json();
  json.set("token", "********");
  if (encryption) json.set("encryption", "********");
  return json.dump(2) + "\n";
}

std::string Handle::who() const {
  return fmt::format("producer {} on {}", pid, host);
}

Handle Handle::parse(std::string_view text, std::string_view origin) {
  SF_CHECK(text.size() <= kMaxHandleBytes, Exit::kData, "{}: a handle has at most {} bytes", origin, kMaxHandleBytes);
  Json json = Json::parse(text, origin);
  try {
    return from_json(json);
  } catch (Error& error) {
    error.add_context(origin);
    throw;
  }
}

std::string random_hex(size_t bytes) {
  std::vector<unsigned char> raw(bytes);
  SF_CHECK(getrandom(raw.data(), bytes, 0) == static_cast<ssize_t>(bytes), Exit::kOs, "getrandom: {}",
           errno_text(errno));
  std::string text;
  for (unsigned char byte : raw) text += fmt::format("{:02x}", byte);
  return text;
}

void write_handle_file(const std::filesystem::path& path, const Handle& handle) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    return write_atomic(path, handle.line());  // a FIFO
  refuse_to_replace(path);
  std::filesystem::path fresh = path;
  fresh += "." + random_hex(4);
  UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  SF_CHECK(fd.get() >= 0, Exit::kCantCreate, "cannot create {}: {}", fresh.string(), errno_text(errno));
  try {
    write_all(fd.get(), handle.line(), fresh);
    sync_fd(fd.get(), fresh);
    std::filesystem::rename(fresh, path);
  } catch (...) {
    std::filesystem::remove(fresh, ignored);
    throw;
  }
  sync_dir(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
}

Handle read_handle_file(const std::filesystem::path& path) {
  Handle handle = Handle::parse(read_file(path, kMaxHandleBytes), path.string());
  struct stat info {};
  if (handle.encryption && ::stat(path.c_str(), &info) == 0)
    SF_CHECK((info.st_mode & 077) == 0, Exit::kNoPermission,
             "{} holds the keys of a stream and others may read it (mode {:04o}); make a new one with --handle-file",
             path.string(), info.st_mode & 07777);
  return handle;
}

void remove_handle_file(const std::filesystem::path& path, std::string_view id) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;  // a FIFO has been read
  if (Handle::parse(read_file(path, kMaxHandleBytes), path.string()).id == id) std::filesystem::remove(path, ignored);
}

Handle read_handle(int fd, Deadline deadline) {
  std::string text;
  while (text.empty() || text.back() != '\n') {
    SF_CHECK(text.size() < kMaxHandleBytes, Exit::kData, "standard input: no handle in the first {} bytes",
             kMaxHandleBytes);
    pollfd waiting{fd, POLLIN, 0};
    int ready = ::poll(&waiting, 1, deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    SF_CHECK(ready > 0, Exit::kUnavailable,
             "no stream handle came over the pipe before the deadline; does sf-capture run?");
    char letter;  // one byte a read: what follows the line is the pipe's life, not ours to take
    ssize_t got = ::read(fd, &letter, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    SF_CHECK(got >= 0, Exit::kIo, "standard input: {}", errno_text(errno));
    SF_CHECK(got > 0, Exit::kNoInput, "the pipe ended {}; see the message of sf-capture",
             text.empty() ? "before a stream handle came" : "in the middle of the stream handle");
    text += letter;
  }
  return Handle::parse(text, "standard input");
}

Handle wait_for_handle_file(const std::filesystem::path& path, Deadline deadline) {
  for (;;) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return read_handle_file(path);
    SF_CHECK(!deadline.passed(), Exit::kUnavailable, "no handle file {} appeared before the deadline", path.string());
    std::this_thread::sleep_for(std::min(deadline.left(), Seconds(0.05)));
  }
}

}  // namespace sf::stream
