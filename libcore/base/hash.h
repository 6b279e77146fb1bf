// SPDX-License-Identifier: Apache-2.0
// XXH3 for content (fast, not against forgery), SHA-256 for identities that people and machines compare.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sf {

uint64_t xxh3_64(std::span<const std::byte> bytes);
uint64_t xxh3_64(std::string_view text);

// Incremental XXH3-64 of content that passes by in pieces.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(Xxh3&&) noexcept;
  void update(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hex64(uint64_t value);                         // 16 digits
std::string sha256_hex(std::span<const std::byte> bytes);  // 64 digits
std::string sha256_hex(std::string_view text);

}  // namespace sf
