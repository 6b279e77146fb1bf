// SPDX-License-Identifier: Apache-2.0
// The directory of a zip archive whose members are stored, not compressed, as torch.save writes it. Every field is
// hostile: offsets and sizes are checked against the file before they are used. Private to this room.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace sf::ckpt {

struct ZipMember {
  uint64_t begin = 0, bytes = 0;  // in the file
  uint32_t crc = 0;               // CRC-32 of these bytes; 0: torch was told not to compute it
};

// CRC-32 of zip (polynomial 0xedb88320, reflected) of what follows bytes whose CRC-32 is `before`.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t before = 0);

// Members by name, none overlapping another. kData naming what is wrong: no archive, truncated, compressed, encrypted,
// a name given twice, members that share bytes. 64-bit archives are read too.
std::map<std::string, ZipMember> read_zip(std::span<const std::byte> file);

}  // namespace sf::ckpt
