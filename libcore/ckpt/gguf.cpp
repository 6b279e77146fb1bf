// SPDX-License-Identifier: Apache-2.0
#include "ckpt/gguf.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/mmap.h"
#include "ckpt/gguf_types.h"

namespace sf::ckpt {
namespace {

constexpr uint64_t kMaxArrayElements = uint64_t{1} << 24;  // of one file; the largest vocabularies have 2^18 tokens
constexpr uint64_t kMaxName = 256, kMaxDims = 4, kMaxDepth = 3;
constexpr uint64_t kLeastTensorInfo = 8 + 1 + 4 + 8 + 4 + 8;  // one letter, one dimension
constexpr uint64_t kLeastKey = 8 + 1 + 4 + 1;

enum Value : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

uint64_t least_bytes(uint32_t type) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  SF_CHECK(type < std::size(kBytes), Exit::kData, "value type {} is unknown; known: 0 to 12", type);
  return kBytes[type];
}

// Reads little-endian fields in order; says where the file ends too early.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  std::string_view take(uint64_t count) {
    SF_CHECK(count <= left(), Exit::kData, "{} bytes are wanted at byte {}, {} are left: the file is truncated", count,
             at_, left());
    const char* from = reinterpret_cast<const char*>(bytes_.data()) + at_;
    at_ += count;
    return {from, count};
  }

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string text(uint64_t limit) {
    uint64_t length = number<uint64_t>();
    SF_CHECK(length <= limit, Exit::kData, "a string of {} bytes at byte {}, at most {} are allowed here", length, at_,
             limit);
    return std::string(take(length));
  }

  // A count of things of at least `least` bytes each, bounded by what is left.
  uint64_t count(uint64_t least, std::string_view what) {
    uint64_t value = number<uint64_t>();
    SF_CHECK(value <= left() / least, Exit::kData,
             "{} {} are announced, which {} bytes cannot hold: the file is truncated or"
             " not GGUF",
             value, what, left());
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes), in_(bytes) {}

  void read() {
    SF_CHECK(in_.left() >= 24 && in_.take(4) == "GGUF", Exit::kData, "not a GGUF file: the magic bytes are missing");
    uint32_t version = in_.number<uint32_t>();
    SF_CHECK(version == 2 || version == 3, Exit::kData, "GGUF version {} is not supported, only 2 and 3", version);
    uint64_t tensor_count = in_.number<uint64_t>();
    uint64_t key_count = in_.count(kLeastKey, "keys");
    for (uint64_t i = 0; i < key_count; ++i) read_key();
    SF_CHECK(tensor_count <= in_.left() / kLeastTensorInfo, Exit::kData,
             "{} tensors are announced, which {} bytes cannot hold", tensor_count, in_.left());
    for (uint64_t i = 0; i < tensor_count; ++i) read_tensor();
    place_tensors();
  }

  Json metadata = Json::object();
  std::vector<GgufTensor> tensors;

 private:
  Json value(uint32_t type, uint64_t depth) {
    switch (type) {
      case kU8:
        return static_cast<int64_t>(in_.number<uint8_t>());
      case kI8:
        return static_cast<int64_t>(in_.number<int8_t>());
      case kU16:
        return static_cast<int64_t>(in_.number<uint16_t>());
      case kI16:
        return static_cast<int64_t>(in_.number<int16_t>());
      case kU32:
        return static_cast<int64_t>(in_.number<uint32_t>());
      case kI32:
        return static_cast<int64_t>(in_.number<int32_t>());
      case kF32:
        return static_cast<double>(in_.number<float>());
      case kBool:
        return in_.number<uint8_t>() != 0;
      case kString:
        return in_.text(bytes_.size());
      case kArray:
        return array(depth + 1);
      case kU64: {
        uint64_t wide = in_.number<uint64_t>();
        SF_CHECK(wide <= static_cast<uint64_t>(INT64_MAX), Exit::kData, "{} exceeds 2^63 - 1", wide);
        return static_cast<int64_t>(wide);
      }
      case kI64:
        return in_.number<int64_t>();
      case kF64:
        return in_.number<double>();
      default:
        least_bytes(type);
        return {};
    }
  }

  Json array(uint64_t depth) {
    SF_CHECK(depth <= kMaxDepth, Exit::kData, "arrays are nested deeper than {}", kMaxDepth);
    uint32_t type = in_.number<uint32_t>();
    uint64_t count = in_.count(least_bytes(type), "array elements");
    elements_ += count;
    SF_CHECK(elements_ <= kMaxArrayElements, Exit::kData, "the arrays hold {} elements, at most {} are allowed",
             elements_, kMaxArrayElements);
    Json::Array items;
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) items.push_back(value(type, depth));
    return Json(std::move(items));
  }

  void read_key() {
    std::string key = in_.text(kMaxName);
    SF_CHECK(keys_.insert(key).second, Exit::kData, "key \"{}\" occurs twice", key);
    try {
      uint32_t type = in_.number<uint32_t>();
      Json read = value(type, 0);
      metadata.as_object().emplace_back(key, std::move(read));
    } catch (Error& error) {
      error.add_context(fmt::format("key \"{}\"", key));
      throw;
    }
  }

  void read_tensor() {
    GgufTensor tensor;
    tensor.name = in_.text(kMaxName);
    SF_CHECK(names_.insert(tensor.name).second, Exit::kData, "tensor \"{}\" occurs twice", tensor.name);
    try {
      uint32_t dims = in_.number<uint32_t>();
      SF_CHECK(dims <= kMaxDims, Exit::kData, "{} dimensions, at most {} are possible", dims, kMaxDims);
      for (uint32_t i = 0; i < dims; ++i) {
        uint64_t extent = in_.number<uint64_t>();
        SF_CHECK(extent >= 1 && extent <= uint64_t{1} << 40, Exit::kData, "extent {} is out of range", extent);
        tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
      }
      tensor.type = supported_type(in_.number<uint32_t>());
      tensor.begin = in_.number<uint64_t>();
      GgufBlock block = block_of(tensor.type);
      uint64_t values = static_cast<uint64_t>(numel(tensor.shape)), row = dims ? tensor.shape.back() : 1;
      SF_CHECK(row % block.values == 0, Exit::kData, "rows of {} values are not whole blocks of {}", row, block.values);
      SF_CHECK(!__builtin_mul_overflow(values / block.values, block.bytes, &tensor.bytes), Exit::kData,
               "shape {} is too large", to_string(tensor.shape));
    } catch (Error& error) {
      error.add_context(fmt::format("tensor \"{}\"", tensor.name));
      throw;
    }
    tensors.push_back(std::move(tensor));
  }

  // Offsets count from the aligned end of the infos; no two tensors may share bytes.
  void place_tensors() {
    int64_t alignment = metadata.get_int("general.alignment", 32);
    SF_CHECK(alignment >= 1 && alignment <= 1 << 20 && (alignment & (alignment - 1)) == 0, Exit::kData,
             "general.alignment = {} is not a power of two up to 2^20", alignment);
    uint64_t align = static_cast<uint64_t>(alignment), start = (in_.at() + align - 1) / align * align;
    for (GgufTensor& tensor : tensors) {
      uint64_t room = bytes_.size() > start ? bytes_.size() - start : 0;
      SF_CHECK(
          tensor.begin % align == 0 && tensor.begin <= room && tensor.bytes <= room - tensor.begin, Exit::kData,
          "tensor \"{}\" of {} bytes at offset {} does not fit the {} bytes of data: the file is truncated or wrong",
          tensor.name, tensor.bytes, tensor.begin, room);
      tensor.begin += start;
    }
    std::vector<const GgufTensor*> order;
    for (const GgufTensor& tensor : tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
    for (size_t i = 1; i < order.size(); ++i)
      SF_CHECK(order[i - 1]->begin + order[i - 1]->bytes <= order[i]->begin, Exit::kData,
               "tensors \"{}\" and \"{}\" overlap", order[i - 1]->name, order[i]->name);
  }

  std::span<const std::byte> bytes_;
  Cursor in_;
  uint64_t elements_ = 0;
  std::set<std::string> keys_, names_;
};

}  // namespace

GgufFile GgufFile::open(const std::filesystem::path& path) {
  GgufFile opened;
  opened.path_ = path;
  MappedFile file = MappedFile::open(path);
  opened.file_ = std::make_shared<UniqueFd>(open_read(path));
  Reader reader(file.bytes());
  try {
    reader.read();
  } catch (Error& error) {
    error.add_context(path.string());
    throw;
  }
  opened.metadata_ = std::move(reader.metadata);
  opened.tensors_ = std::move(reader.tensors);
  for (size_t i = 0; i < opened.tensors_.size(); ++i) opened.index_.emplace(opened.tensors_[i].name, i);
  return opened;
}

bool GgufFile::is_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) || std::filesystem::file_size(path, ignored) < 4) return false;
  char magic[4];
  pread_exact(open_read(path).get(), std::as_writable_bytes(std::span(magic)), 0, path);
  return std::memcmp(magic, "GGUF", 4) == 0;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void GgufFile::read(const GgufTensor& tensor, uint64_t first, std::span<float> to) const {
  GgufBlock block = block_of(tensor.type);
  SF_ASSERT(first % block.values == 0 && to.size() % block.values == 0);
  SF_ASSERT(first + to.size() <= static_cast<uint64_t>(numel(tensor.shape)));
  std::vector<std::byte> blocks(to.size() / block.values * block.bytes);
  pread_exact(file_->get(), blocks, tensor.begin + first / block.values * block.bytes, path_);
  dequantise(tensor.type, blocks, to);
}

}  // namespace sf::ckpt
