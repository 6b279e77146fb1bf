// SPDX-License-Identifier: Apache-2.0
#include "ckpt/safetensors.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mmap.h"

namespace sf::ckpt {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;

struct DtypeBits {
  std::string_view name;
  uint64_t bits;
};
// Every type of the format, so that sizes are checked before a type is refused.
constexpr DtypeBits kDtypes[] = {{"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
                                 {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
                                 {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
                                 {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
                                 {"I64", 64},        {"U64", 64}};

// Hostile text is cut before it enters a message.
std::string shown(std::string text) {
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

const DtypeBits& row_of(const std::string& dtype) {
  for (const DtypeBits& row : kDtypes)
    if (row.name == dtype) return row;
  fail(Exit::kData, "unknown dtype \"{}\"", shown(dtype));
}

uint64_t as_unsigned(const Json& value, std::string_view what) {
  SF_CHECK(value.is_int() && value.as_int() >= 0, Exit::kData, "{} must be integers of 0 to 2^63 - 1, found {}", what,
           shown(value.dump()));
  return static_cast<uint64_t>(value.as_int());
}

// One header entry, checked; offsets are still relative to the data.
TensorInfo checked(std::string name, const std::string& dtype, Shape shape, uint64_t begin, uint64_t end) {
  SF_CHECK(!name.empty() && name.find('\0') == std::string::npos, Exit::kData, "the name is empty or holds a NUL byte");
  const DtypeBits& row = row_of(dtype);
  uint64_t elements = 1, bits = row.bits;
  for (int64_t extent : shape)
    SF_CHECK(!__builtin_mul_overflow(elements, static_cast<uint64_t>(extent), &elements), Exit::kData,
             "shape {} overflows", shown(to_string(shape)));
  SF_CHECK(begin <= end, Exit::kData, "data_offsets [{}, {}] run backwards", begin, end);
  SF_CHECK(!__builtin_mul_overflow(elements, bits, &bits), Exit::kData, "shape {} of {} overflows",
           shown(to_string(shape)), dtype);
  SF_CHECK(bits % 8 == 0, Exit::kData, "shape {} of {} is not a whole number of bytes", shown(to_string(shape)), dtype);
  SF_CHECK(end - begin == bits / 8, Exit::kData, "data_offsets [{}, {}] hold {} bytes, shape {} of {} wants {}", begin,
           end, end - begin, shown(to_string(shape)), dtype, bits / 8);
  std::optional<Dtype> known = dtype_from_name(dtype);
  if (!known && row.bits == 8) known = Dtype::kU8;
  SF_CHECK(known, Exit::kData, "dtype {} is not supported; convert it to F32, F16 or BF16", dtype);
  return {std::move(name), *known, std::move(shape), begin, end, row.name};
}

TensorInfo read_entry(const std::string& name, const Json& entry) {
  SF_CHECK(entry.is_object(), Exit::kData, "wanted an object with dtype, shape and data_offsets, found {}",
           entry.type_name());
  Shape shape;
  for (const Json& extent : entry.at("shape").as_array())
    shape.push_back(static_cast<int64_t>(as_unsigned(extent, "extents of a shape")));
  const Json::Array& offsets = entry.at("data_offsets").as_array();
  SF_CHECK(offsets.size() == 2, Exit::kData, "data_offsets must be two numbers, found {}", offsets.size());
  return checked(name, entry.at("dtype").as_string(), std::move(shape), as_unsigned(offsets[0], "data_offsets"),
                 as_unsigned(offsets[1], "data_offsets"));
}

struct Header {
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
};

// Entries in the form that every writer of the format uses, without blanks and escapes:
//   "NAME":{"dtype":"D","shape":[n,m],"data_offsets":[a,b]}
// A header of ten thousand tensors is read in milliseconds so. Anything else, and anything wrong, is left to the parser
// of JSON, which knows all forms and says what is wrong.
class PlainHeader {
 public:
  explicit PlainHeader(std::string_view text) : left_(text) {}

  bool read(Header& header) {
    while (!left_.empty() && left_.back() == ' ') left_.remove_suffix(1);
    if (!take("{")) return false;
    do {
      std::optional<std::string_view> name = text();
      if (!name || !take(":{") || !(*name == "__metadata__" ? pairs(header.metadata) : entry(*name, header)))
        return false;
    } while (take(","));
    return take("}") && left_.empty();
  }

 private:
  bool take(std::string_view wanted) {
    if (!left_.starts_with(wanted)) return false;
    left_.remove_prefix(wanted.size());
    return true;
  }
  bool pairs(std::map<std::string, std::string>& out) {
    do {
      std::optional<std::string_view> key = text(), value;
      if (!key || !take(":") || !(value = text()) || !out.emplace(*key, *value).second) return false;
    } while (take(","));
    return take("}");
  }
  bool entry(std::string_view name, Header& header) {
    std::optional<std::string_view> dtype;
    Shape shape, offsets;
    if (!take("\"dtype\":") || !(dtype = text()) || !take(",\"shape\":") || !numbers(shape)) return false;
    if (!take(",\"data_offsets\":") || !numbers(offsets) || !take("}") || offsets.size() != 2) return false;
    try {
      header.tensors.push_back(checked(std::string(name), std::string(*dtype), std::move(shape),
                                       static_cast<uint64_t>(offsets[0]), static_cast<uint64_t>(offsets[1])));
    } catch (const Error&) {
      return false;
    }
    return true;
  }
  // Between quotes, of printable ASCII without backslash.
  std::optional<std::string_view> text() {
    if (!take("\"")) return std::nullopt;
    size_t end = 0;
    while (end < left_.size() && left_[end] >= ' ' && left_[end] < 0x7f && left_[end] != '"' && left_[end] != '\\')
      ++end;
    if (end == left_.size() || left_[end] != '"') return std::nullopt;
    std::string_view found = left_.substr(0, end);
    left_.remove_prefix(end + 1);
    return found;
  }
  bool numbers(Shape& out) {
    if (!take("[")) return false;
    while (!take("]")) {
      if (!out.empty() && !take(",")) return false;
      int64_t value = -1;
      bool digit = !left_.empty() && left_[0] >= '0' && left_[0] <= '9';
      bool zero_first = left_.size() > 1 && left_[0] == '0' && left_[1] >= '0' && left_[1] <= '9';
      auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), value);
      if (!digit || zero_first || error != std::errc()) return false;
      left_.remove_prefix(static_cast<size_t>(end - left_.data()));
      out.push_back(value);
    }
    return true;
  }

  std::string_view left_;
};

void read_metadata(const Json& value, std::map<std::string, std::string>& metadata) {
  for (const auto& [key, text] : value.as_object()) {
    SF_CHECK(text.is_string(), Exit::kData, "value of \"{}\" must be a string, found {}", shown(key), text.type_name());
    metadata[key] = text.as_string();
  }
}

template <typename Body>
void in_context(const std::string& where, Body body) {
  try {
    body();
  } catch (Error& error) {
    error.add_context(where);
    throw;
  }
}

// Sorted by offset, tensors must tile the data exactly: no hole, no overlap, no trailing byte.
void check_tiling(std::vector<TensorInfo>& tensors, uint64_t data_bytes) {
  auto before = [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  };
  if (!std::is_sorted(tensors.begin(), tensors.end(), before)) std::stable_sort(tensors.begin(), tensors.end(), before);
  uint64_t at = 0;
  for (const TensorInfo& info : tensors) {
    SF_CHECK(info.begin == at, Exit::kData, "tensor \"{}\": data_offsets begin at {}, wanted {}: {} in the data",
             shown(info.name), info.begin, at, info.begin > at ? "a hole" : "an overlap");
    at = info.end;
  }
  SF_CHECK(at <= data_bytes, Exit::kData, "the header lists {} bytes of data, the file holds {}: it is truncated", at,
           data_bytes);
  SF_CHECK(at == data_bytes, Exit::kData,
           "the header lists {} bytes of data, the file holds {}: bytes trail the last tensor", at, data_bytes);
}

Header parse_header(std::string_view text) {
  Header header;
  Json json = Json::parse(text, "header");
  SF_CHECK(json.is_object(), Exit::kData, "the header is not a JSON object");
  for (const auto& [name, entry] : json.as_object()) {
    if (name == "__metadata__")
      in_context("__metadata__", [&, &value = entry] { read_metadata(value, header.metadata); });
    else
      in_context(fmt::format("tensor \"{}\"", shown(name)),
                 [&, &key = name, &value = entry] { header.tensors.push_back(read_entry(key, value)); });
  }
  return header;
}

Header read_header(std::span<const std::byte> file) {
  SF_CHECK(file.size() >= 8, Exit::kData, "{} bytes long, shorter than the 8 bytes that hold the header's length",
           file.size());
  uint64_t length;
  std::memcpy(&length, file.data(), 8);
  SF_CHECK(file.size() == 8 || file[8] == std::byte{'{'}, Exit::kData,
           "not a safetensors file: what would be its header does not start with '{{'");
  SF_CHECK(length <= kMaxHeader, Exit::kData, "a header of {} bytes is announced, at most {} are allowed", length,
           kMaxHeader);
  SF_CHECK(length <= file.size() - 8, Exit::kData,
           "a header of {} bytes is announced, {} are there: the file is truncated", length, file.size() - 8);
  std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  SF_CHECK(!text.empty(), Exit::kData, "an empty header, which does not start with '{{'");
  Header header;
  if (!PlainHeader(text).read(header)) header = parse_header(text);
  check_tiling(header.tensors, file.size() - 8 - length);
  for (TensorInfo& info : header.tensors) info.begin += 8 + length, info.end += 8 + length;
  return header;
}

}  // namespace

struct SafetensorsFile::Mapping {
  MappedFile file;
  UniqueFd fd;
  std::atomic<uint64_t> bytes_read{0};
  std::mutex mutex;
  std::map<uint64_t, HostTensor> realigned;  // by first byte: tensors that the file stores misaligned
};

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile opened;
  opened.path_ = path;
  opened.mapping_ = std::make_shared<Mapping>();
  opened.mapping_->file = MappedFile::open(path);
  opened.mapping_->fd = open_read(path);
  in_context(path.string(), [&] {
    Header header = read_header(opened.mapping_->file.bytes());
    opened.tensors_ = std::move(header.tensors);
    opened.metadata_ = std::move(header.metadata);
  });
  for (size_t i = 0; i < opened.tensors_.size(); ++i) {
    size_t known = opened.index_.size();
    opened.index_.emplace_hint(opened.index_.end(), opened.tensors_[i].name, i);
    SF_CHECK(opened.index_.size() > known, Exit::kData, "{}: tensor \"{}\" occurs twice", path.string(),
             shown(opened.tensors_[i].name));
  }
  return opened;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

TensorView SafetensorsFile::view(std::string_view name) const {
  const TensorInfo* info = find(name);
  SF_CHECK(info, Exit::kData, "{}: no tensor \"{}\"", path_.string(), name);
  return view(*info);
}

TensorView SafetensorsFile::view(const TensorInfo& info) const {
  TensorView direct{mapping_->file.bytes().data() + info.begin, info.dtype, info.shape};
  if (info.begin % size_of(info.dtype) == 0 || info.begin == info.end) return direct;
  std::lock_guard lock(mapping_->mutex);
  auto found = mapping_->realigned.find(info.begin);
  if (found == mapping_->realigned.end())
    found = mapping_->realigned.emplace(info.begin, HostTensor::copy_of(direct)).first;
  return found->second.view();
}

void SafetensorsFile::read(const TensorInfo& info, uint64_t offset, std::span<std::byte> to) const {
  SF_ASSERT(offset <= info.bytes() && to.size() <= info.bytes() - offset);
  pread_exact(mapping_->fd.get(), to, info.begin + offset, path_);
  mapping_->bytes_read += to.size();
}

void SafetensorsFile::stream(const TensorInfo& info, const std::function<void(const Piece&)>& sink) const {
  std::vector<std::byte> buffer(std::min<uint64_t>(info.bytes(), kBounceBytes));
  for (uint64_t at = 0; at < info.bytes(); at += buffer.size()) {
    std::span<std::byte> part(buffer.data(), std::min<uint64_t>(buffer.size(), info.bytes() - at));
    read(info, at, part);
    sink({part, mapping_->fd.get(), info.begin + at});
  }
}

uint64_t SafetensorsFile::bytes_read() const {
  return mapping_->bytes_read;
}

}  // namespace sf::ckpt
