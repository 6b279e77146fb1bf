// SPDX-License-Identifier: Apache-2.0
// What a fuzzer of hostile bytes is made of. With clang's -fsanitize=fuzzer LLVMFuzzerTestOneInput is all it needs;
// else fuzz_main.cpp runs a corpus and seeded mutations of it, as a plain test.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace sf::fuzz {

// Hostile bytes may be refused as data or as another protocol; any other end is a fault of ours.
inline bool refused(const std::function<void()>& read) {
  try {
    read();
    return false;
  } catch (const Error& error) {
    if (error.code() != Exit::kData && error.code() != Exit::kProtocol) throw;
    return true;
  }
}

}  // namespace sf::fuzz
