// SPDX-License-Identifier: Apache-2.0
#include "ckpt/zip.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace sf::ckpt {
namespace {

constexpr uint32_t kEnd = 0x06054b50, kEnd64Locator = 0x07064b50, kEnd64 = 0x06064b50, kEntry = 0x02014b50,
                   kLocal = 0x04034b50;
constexpr uint64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46, kLocalBytes = 30;
constexpr uint64_t kMaxComment = 65535, kMaxMembers = uint64_t{1} << 20;
constexpr uint32_t kIn64 = 0xffffffff;  // the value stands in the 64-bit extra field

// Little-endian fields at checked places.
class Bytes {
 public:
  explicit Bytes(std::span<const std::byte> file) : file_(file) {}
  uint64_t size() const { return file_.size(); }

  template <typename T>
  T at(uint64_t offset) const {
    need(offset, sizeof(T));
    T value;
    std::memcpy(&value, file_.data() + offset, sizeof value);
    return value;
  }
  std::string text(uint64_t offset, uint64_t length) const {
    need(offset, length);
    return {reinterpret_cast<const char*>(file_.data()) + offset, length};
  }
  void need(uint64_t offset, uint64_t length) const {
    SF_CHECK(offset <= size() && length <= size() - offset, Exit::kData,
             "{} bytes are wanted at byte {} of {}: the archive is truncated or wrong", length, offset, size());
  }

 private:
  std::span<const std::byte> file_;
};

constexpr size_t kAtOnce = 8;  // bytes that one step takes

// tables[k][b]: what byte b, followed by k zero bytes, adds.
constexpr std::array<std::array<uint32_t, 256>, kAtOnce> kCrc = [] {
  std::array<std::array<uint32_t, 256>, kAtOnce> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t rest = b;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0xedb88320u : 0u);
    tables[0][b] = rest;
  }
  for (size_t k = 1; k < kAtOnce; ++k)
    for (size_t b = 0; b < 256; ++b) tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 0xff];
  return tables;
}();

struct Directory {
  uint64_t begin = 0, bytes = 0, count = 0;
};

Directory find_directory(const Bytes& in) {
  SF_CHECK(in.size() >= kEndBytes, Exit::kData, "{} bytes are no zip archive", in.size());
  uint64_t lowest = in.size() - std::min(in.size(), kEndBytes + kMaxComment), at = in.size() - kEndBytes;
  while (in.at<uint32_t>(at) != kEnd) {
    SF_CHECK(at > lowest, Exit::kData,
             "no zip archive: its end record is missing; a file of torch before 1.6, or torn?");
    --at;
  }
  Directory found{in.at<uint32_t>(at + 16), in.at<uint32_t>(at + 12), in.at<uint16_t>(at + 10)};
  if (at >= kLocatorBytes && in.at<uint32_t>(at - kLocatorBytes) == kEnd64Locator) {
    uint64_t wide = in.at<uint64_t>(at - kLocatorBytes + 8);
    in.need(wide, kEnd64Bytes);
    SF_CHECK(in.at<uint32_t>(wide) == kEnd64, Exit::kData, "the 64-bit end record is not at byte {}", wide);
    found = {in.at<uint64_t>(wide + 48), in.at<uint64_t>(wide + 40), in.at<uint64_t>(wide + 32)};
  }
  SF_CHECK(found.count <= kMaxMembers, Exit::kData, "{} members, at most {} are allowed", found.count, kMaxMembers);
  in.need(found.begin, found.bytes);
  return found;
}

// Sizes and offset that did not fit 32 bits, in their fixed order.
void read_wide(const Bytes& in, uint64_t extra, uint64_t end, uint64_t& full, uint64_t& packed, uint64_t& offset) {
  while (extra + 4 <= end) {
    uint64_t kind = in.at<uint16_t>(extra), stop = extra + 4 + in.at<uint16_t>(extra + 2);
    SF_CHECK(stop <= end, Exit::kData, "an extra field passes its entry");
    uint64_t at = extra + 4;
    for (uint64_t* field : {&full, &packed, &offset}) {
      if (kind != 1 || *field != kIn64) continue;
      SF_CHECK(at + 8 <= stop, Exit::kData, "a 64-bit extra field is too short");
      *field = in.at<uint64_t>(at);
      at += 8;
    }
    extra = stop;
  }
}

// The entry at `at`, which moves behind it.
std::pair<std::string, ZipMember> read_entry(const Bytes& in, uint64_t& at) {
  in.need(at, kEntryBytes);
  SF_CHECK(in.at<uint32_t>(at) == kEntry, Exit::kData, "no directory entry at byte {}", at);
  uint64_t name_length = in.at<uint16_t>(at + 28), extra = in.at<uint16_t>(at + 30), comment = in.at<uint16_t>(at + 32);
  std::string name = in.text(at + kEntryBytes, name_length);
  uint64_t packed = in.at<uint32_t>(at + 20), full = in.at<uint32_t>(at + 24), offset = in.at<uint32_t>(at + 42);
  uint16_t flags = in.at<uint16_t>(at + 8), method = in.at<uint16_t>(at + 10);
  SF_CHECK(!(flags & 1), Exit::kData, "member \"{}\" is encrypted", name);
  read_wide(in, at + kEntryBytes + name_length, at + kEntryBytes + name_length + extra, full, packed, offset);
  SF_CHECK(method == 0 && packed == full, Exit::kData, "member \"{}\" is compressed (method {}); torch stores", name,
           method);
  in.need(offset, kLocalBytes);
  SF_CHECK(in.at<uint32_t>(offset) == kLocal, Exit::kData, "member \"{}\" does not begin at byte {}", name, offset);
  uint64_t local_name = in.at<uint16_t>(offset + 26);
  SF_CHECK(in.text(offset + kLocalBytes, local_name) == name, Exit::kData, "member \"{}\" has another name inside",
           name);
  uint64_t begin = offset + kLocalBytes + local_name + in.at<uint16_t>(offset + 28);
  in.need(begin, full);
  const uint64_t entry = at;
  at += kEntryBytes + name_length + extra + comment;
  return {name, {begin, full, in.at<uint32_t>(entry + 16)}};
}

void check_apart(const std::map<std::string, ZipMember>& members) {
  std::vector<ZipMember> order;
  for (const auto& [name, member] : members)
    if (member.bytes > 0) order.push_back(member);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < order.size(); ++i)
    SF_CHECK(order[i - 1].begin + order[i - 1].bytes <= order[i].begin, Exit::kData, "members overlap at byte {}",
             order[i].begin);
}

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  for (; bytes.size() >= kAtOnce; bytes = bytes.subspan(kAtOnce)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < kAtOnce; ++k) crc ^= kCrc[kAtOnce - 1 - k][word >> 8 * k & 0xff];
  }
  for (std::byte byte : bytes) crc = crc >> 8 ^ kCrc[0][(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

std::map<std::string, ZipMember> read_zip(std::span<const std::byte> file) {
  Bytes in(file);
  Directory directory = find_directory(in);
  std::map<std::string, ZipMember> members;
  uint64_t at = directory.begin;
  for (uint64_t i = 0; i < directory.count; ++i) {
    auto [name, member] = read_entry(in, at);
    SF_CHECK(members.emplace(name, member).second, Exit::kData, "member \"{}\" occurs twice", name);
  }
  check_apart(members);
  return members;
}

}  // namespace sf::ckpt
