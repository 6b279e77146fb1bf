// SPDX-License-Identifier: Apache-2.0
// The one exception of ShardForge: an exit status, a message, and the context it passed through on its way up.
#pragma once
#include <fmt/core.h>

#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace sf {

// Exit statuses of all commands (sysexits; man page shardforge(7)).
enum class Exit : int {
  kOk = 0,            // done
  kNo = 1,            // asked, and the answer is no
  kUsage = 64,        // command line
  kData = 65,         // bad data
  kNoInput = 66,      // missing input
  kUnavailable = 69,  // a peer, device or backend is gone, or a deadline passed
  kSoftware = 70,     // our own fault
  kOs = 71,           // the system refused (fork, mmap, limits)
  kCantCreate = 73,   // output cannot be created, or is in use
  kIo = 74,           // disk full, broken pipe
  kAgain = 75,        // stopped by request; what was done is kept: run me again
  kProtocol = 76,     // contract, version or digest differs
  kNoPermission = 77,
  kConfig = 78,  // configuration
};

// Says what was wanted, what was found, where, and what to do. Callers prepend context; nobody re-words.
class Error : public std::exception {
 public:
  Error(Exit code, std::string message);
  ~Error() override;  // key function: one type_info in libshardforge, so the class crosses dlopen borders

  Exit code() const { return code_; }
  const std::string& message() const { return message_; }               // without context
  const char* what() const noexcept override { return full_.c_str(); }  // "outer: inner: message"
  void add_context(std::string_view where);                             // prepends

 private:
  Exit code_;
  std::string message_;
  std::string full_;
};

template <typename... Args>
[[noreturn]] void fail(Exit code, fmt::format_string<Args...> form, Args&&... args) {
  throw Error(code, fmt::format(form, std::forward<Args>(args)...));
}

// The errno text that belongs to `number`, e.g. "No space left on device".
std::string errno_text(int number);
// kIo for ENOSPC, EPIPE, EIO; kNoPermission for EACCES, EPERM; kNoInput for ENOENT; else `otherwise`.
Exit exit_of_errno(int number, Exit otherwise);

}  // namespace sf

// A condition that hostile input, users or the system can break: always checked.
#define SF_CHECK(condition, code, ...)                 \
  do {                                                 \
    if (!(condition)) ::sf::fail((code), __VA_ARGS__); \
  } while (0)
// A condition that only our own fault can break: exit 70 with file and line.
#define SF_ASSERT(condition)                                                                            \
  do {                                                                                                  \
    if (!(condition))                                                                                   \
      ::sf::fail(::sf::Exit::kSoftware, "{}:{}: assertion failed: {}", __FILE__, __LINE__, #condition); \
  } while (0)
