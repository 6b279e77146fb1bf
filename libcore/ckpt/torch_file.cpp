// SPDX-License-Identifier: Apache-2.0
#include "ckpt/torch_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mmap.h"
#include "ckpt/pickle.h"
#include "ckpt/safetensors.h"
#include "ckpt/zip.h"

namespace sf::ckpt {
namespace {

constexpr uint64_t kMaxPickle = uint64_t{256} << 20;
constexpr size_t kMaxDepth = 16, kMaxVisits = size_t{1} << 22;

struct StorageType {
  std::string_view storage, type;
  Dtype dtype;
};
constexpr StorageType kTypes[] = {{"FloatStorage", "F32", Dtype::kF32},      {"HalfStorage", "F16", Dtype::kF16},
                                  {"BFloat16Storage", "BF16", Dtype::kBF16}, {"DoubleStorage", "F64", Dtype::kF64},
                                  {"LongStorage", "I64", Dtype::kI64},       {"IntStorage", "I32", Dtype::kI32},
                                  {"ShortStorage", "I16", Dtype::kI16},      {"CharStorage", "I8", Dtype::kI8},
                                  {"ByteStorage", "U8", Dtype::kU8},         {"BoolStorage", "BOOL", Dtype::kBool}};

const StorageType& type_of(std::string_view storage) {
  for (const StorageType& row : kTypes)
    if (row.storage == storage) return row;
  fail(Exit::kData, "{} is not supported", storage);
}

// The last element must lie in the storage, and the storage in its member. Fewer stored elements than the shape counts
// would let a small file ask for any amount of memory.
void check_extent(const TorchTensor& tensor, const PickleValue& value, const ZipMember& member) {
  int64_t count = 1, last = value.whole;
  bool overflow = value.whole < 0 || value.elements < 0 || tensor.shape.size() != tensor.strides.size();
  for (size_t d = 0; !overflow && d < tensor.shape.size(); ++d) {
    int64_t reach = 0;
    overflow = tensor.shape[d] < 0 || tensor.strides[d] < 0 || __builtin_mul_overflow(count, tensor.shape[d], &count) ||
               __builtin_mul_overflow(std::max<int64_t>(tensor.shape[d] - 1, 0), tensor.strides[d], &reach) ||
               __builtin_add_overflow(last, reach, &last);
  }
  SF_CHECK(!overflow, Exit::kData, "shape, strides or offset are out of range");
  uint64_t held = member.bytes / size_of(tensor.dtype);
  SF_CHECK(static_cast<uint64_t>(value.elements) <= held, Exit::kData, "a storage of {} elements has {} bytes",
           value.elements, member.bytes);
  SF_CHECK(count == 0 || (last < value.elements && count <= value.elements), Exit::kData,
           "shape {} from element {} on does not lie in a storage of {} elements", to_string(tensor.shape), value.whole,
           value.elements);
}

// Walks containers from the root; a reference back to one on the way is caught by the depth.
class Walk {
 public:
  Walk(const Pickle& pickle, const std::map<std::string, ZipMember>& members, std::string root)
      : pickle_(pickle), members_(members), root_(std::move(root)) {}

  std::vector<TorchTensor> tensors;
  Json values = Json::object();

  void visit(size_t index, const std::string& name, size_t depth) {
    SF_CHECK(depth <= kMaxDepth && ++visits_ <= kMaxVisits, Exit::kData,
             "containers are nested deeper than {}, or refer to each other without end", kMaxDepth);
    const PickleValue& value = pickle_[index];
    using Kind = PickleValue::Kind;
    if (value.kind == Kind::kTensor) return add(value, name);
    if (value.kind == Kind::kTuple || value.kind == Kind::kList) {
      for (size_t i = 0; i < value.items.size(); ++i) visit(value.items[i], join(name, std::to_string(i)), depth + 1);
    } else if (value.kind == Kind::kDict) {
      for (size_t i = 0; i < value.items.size(); i += 2)
        visit(value.items[i + 1], join(name, key_of(pickle_[value.items[i]])), depth + 1);
    } else if (!name.empty()) {
      note(value, name);
    }
  }

 private:
  static std::string join(const std::string& name, const std::string& key) {
    return name.empty() ? key : name + "/" + key;
  }
  static std::string key_of(const PickleValue& key) {
    if (key.kind == PickleValue::Kind::kText) return key.text;
    SF_CHECK(key.kind == PickleValue::Kind::kInt, Exit::kData, "a key is neither text nor a whole number");
    return std::to_string(key.whole);
  }
  void note(const PickleValue& value, const std::string& name) {
    using Kind = PickleValue::Kind;
    if (value.kind == Kind::kText) values.as_object().emplace_back(name, value.text);
    if (value.kind == Kind::kInt) values.as_object().emplace_back(name, value.whole);
    if (value.kind == Kind::kFloat) values.as_object().emplace_back(name, value.real);
    if (value.kind == Kind::kBool) values.as_object().emplace_back(name, value.whole != 0);
  }
  void add(const PickleValue& value, const std::string& name) {
    try {
      const StorageType& type = type_of(value.storage);
      auto member = members_.find(root_ + "data/" + value.text);
      SF_CHECK(member != members_.end(), Exit::kData, "the archive lacks the storage {}", value.text);
      TorchTensor tensor{name, type.dtype, type.type, value.shape, value.strides};
      if (value.placement) {
        tensor.whole = value.placement->shape;
        tensor.mesh = value.placement->mesh;
        tensor.cuts = value.placement->cuts;
      }
      check_extent(tensor, value, member->second);
      tensor.storage = member->second.begin;
      tensor.storage_bytes = member->second.bytes;
      tensor.crc = member->second.crc;
      tensor.begin = member->second.begin + static_cast<uint64_t>(value.whole) * size_of(type.dtype);
      tensors.push_back(std::move(tensor));
    } catch (Error& error) {
      error.add_context(fmt::format("tensor \"{}\"", name));
      throw;
    }
  }

  const Pickle& pickle_;
  const std::map<std::string, ZipMember>& members_;
  std::string root_;
  size_t visits_ = 0;
};

bool is_contiguous(const TorchTensor& tensor) {
  int64_t stride = 1;
  for (size_t d = tensor.shape.size(); d-- > 0; stride *= tensor.shape[d])
    if (tensor.shape[d] != 1 && tensor.strides[d] != stride) return false;
  return true;
}

void check_crc(uint32_t written, uint32_t found, std::string_view what) {
  SF_CHECK(written == 0 || written == found || fault("ckpt.any_crc"), Exit::kData,
           "{} is damaged: the CRC-32 of its bytes is {:08x}, the archive says {:08x}", what, found, written);
}

// The one "NAME/data.pkl" and what stands before it.
std::string root_of(const std::map<std::string, ZipMember>& members) {
  std::string root;
  int found = 0;
  for (const auto& [name, member] : members) {
    if (!name.ends_with("/data.pkl")) continue;
    root = name.substr(0, name.size() - std::string_view("data.pkl").size());
    ++found;
  }
  SF_CHECK(found == 1, Exit::kData, "{} members data.pkl, wanted one: not a file of torch.save", found);
  return root;
}

}  // namespace

struct TorchFile::Descriptor {
  UniqueFd fd;
  std::mutex lock;
  std::set<uint64_t> sound;  // storages whose bytes have been compared
};

TorchFile TorchFile::open(const std::filesystem::path& path) {
  TorchFile opened;
  opened.path_ = path;
  MappedFile file = MappedFile::open(path);
  try {
    std::map<std::string, ZipMember> members = read_zip(file.bytes());
    std::string root = root_of(members);
    auto text = [&](const std::string& name) {
      const ZipMember& member = members.at(name);
      check_crc(member.crc, crc32(file.bytes().subspan(member.begin, member.bytes)), name);
      return std::string_view(reinterpret_cast<const char*>(file.bytes().data()) + member.begin, member.bytes);
    };
    if (members.contains(root + "byteorder"))
      SF_CHECK(text(root + "byteorder") == "little", Exit::kData, "numbers are stored big endian");
    SF_CHECK(members.at(root + "data.pkl").bytes <= kMaxPickle, Exit::kData, "a pickle of {} bytes, at most {} allowed",
             members.at(root + "data.pkl").bytes, kMaxPickle);
    Pickle pickle = read_pickle(text(root + "data.pkl"));
    Walk walk(pickle, members, root);
    walk.visit(pickle.root, "", 0);
    opened.tensors_ = std::move(walk.tensors);
    opened.values_ = std::move(walk.values);
  } catch (Error& error) {
    error.add_context(path.string());
    throw;
  }
  std::sort(opened.tensors_.begin(), opened.tensors_.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (size_t i = 1; i < opened.tensors_.size(); ++i)
    SF_CHECK(opened.tensors_[i - 1].name != opened.tensors_[i].name, Exit::kData, "{}: tensor \"{}\" occurs twice",
             path.string(), opened.tensors_[i].name);
  opened.file_ = std::make_shared<Descriptor>();
  opened.file_->fd = open_read(path);
  return opened;
}

bool TorchFile::is_zip(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) || std::filesystem::file_size(path, ignored) < 4) return false;
  char magic[4];
  pread_exact(open_read(path).get(), std::as_writable_bytes(std::span(magic)), 0, path);
  return std::memcmp(magic, "PK\3\4", 4) == 0;
}

void TorchFile::check_storage(const TorchTensor& tensor) const {
  if (tensor.crc == 0) return;
  const std::lock_guard guard(file_->lock);
  if (file_->sound.contains(tensor.storage)) return;
  std::vector<std::byte> buffer(std::min<uint64_t>(tensor.storage_bytes, kBounceBytes));
  uint32_t crc = 0;
  for (uint64_t at = 0; at < tensor.storage_bytes; at += buffer.size()) {
    std::span<std::byte> part(buffer.data(), std::min<uint64_t>(buffer.size(), tensor.storage_bytes - at));
    pread_exact(file_->fd.get(), part, tensor.storage + at, path_);
    crc = crc32(part, crc);
  }
  check_crc(tensor.crc, crc, fmt::format("{}: the storage of tensor \"{}\"", path_.string(), tensor.name));
  file_->sound.insert(tensor.storage);
}

void TorchFile::read(const TorchTensor& tensor, uint64_t offset, std::span<std::byte> to) const {
  size_t size = size_of(tensor.dtype);
  SF_ASSERT(offset % size == 0 && to.size() % size == 0 && offset + to.size() <= tensor.bytes());
  check_storage(tensor);
  if (is_contiguous(tensor)) return pread_exact(file_->fd.get(), to, tensor.begin + offset, path_);
  // A view of another layout, which state dictionaries rarely hold: element by element.
  auto element = static_cast<int64_t>(offset / size), end = element + static_cast<int64_t>(to.size() / size);
  for (size_t at = 0; element < end; ++element, at += size) {
    uint64_t place = 0;
    int64_t rest = element;
    for (size_t d = tensor.shape.size(); d-- > 0; rest /= tensor.shape[d])
      place += static_cast<uint64_t>(rest % tensor.shape[d] * tensor.strides[d]);
    pread_exact(file_->fd.get(), to.subspan(at, size), tensor.begin + place * size, path_);
  }
}

}  // namespace sf::ckpt
