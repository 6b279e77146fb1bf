// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <cerrno>
#include <cstring>

namespace sf {

namespace {

// what() ends at a NUL, and data may hold some.
std::string without_nul(std::string text) {
  for (size_t at = text.find('\0'); at != std::string::npos; at = text.find('\0', at)) text.replace(at, 1, "\\x00");
  return text;
}

}  // namespace

Error::Error(Exit code, std::string message)
    : code_(code), message_(without_nul(std::move(message))), full_(message_) {}
Error::~Error() = default;

void Error::add_context(std::string_view where) {
  full_ = without_nul(fmt::format("{}: {}", where, full_));
}

std::string errno_text(int number) {
  char buffer[128];
  return strerror_r(number, buffer, sizeof buffer);
}

Exit exit_of_errno(int number, Exit otherwise) {
  // An output that the system refuses is one that cannot be created, whatever the reason; only a full disk is not.
  const bool creates = otherwise == Exit::kCantCreate;
  switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EPIPE:
    case EIO:
    case EFBIG:
      return Exit::kIo;
    case EACCES:
    case EPERM:
    case EROFS:
      return creates ? otherwise : Exit::kNoPermission;
    case ENOENT:
    case ENOTDIR:
      return creates ? otherwise : Exit::kNoInput;
    default:
      return otherwise;
  }
}

}  // namespace sf
