// SPDX-License-Identifier: Apache-2.0
#include "ckpt/pickle.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"

namespace sf::ckpt {
namespace {

using Kind = PickleValue::Kind;
constexpr size_t kMaxValues = size_t{1} << 20, kMaxName = 256, kMaxDims = 16, kMaxParts = 64;

// Names that a stream may say. Everything else could be code.
const std::set<std::string_view> kStorages = {"FloatStorage", "HalfStorage", "BFloat16Storage", "DoubleStorage",
                                              "LongStorage",  "IntStorage",  "ShortStorage",    "CharStorage",
                                              "ByteStorage",  "BoolStorage"};
constexpr std::string_view kOrderedDict = "collections OrderedDict", kTensor = "torch._utils _rebuild_tensor_v2",
                           kParameter = "torch._utils _rebuild_parameter", kSize = "torch Size";

// Of a distributed tensor: what rebuilds it, and the records that say how it is cut. An instance is its name and what
// is stored for it, never an object.
constexpr std::string_view kFromType = "torch._tensor _rebuild_from_type_v2",
                           kWrapper = "torch._utils _rebuild_wrapper_subclass",
                           kLayout = "torch.serialization _get_layout", kDevice = "torch device";
constexpr std::string_view kDistributed = "torch.distributed.tensor DTensor";
const std::set<std::string_view> kRecords = {"torch.distributed.device_mesh DeviceMesh",
                                             "torch.distributed._mesh_layout _MeshLayout",
                                             "torch.distributed.tensor._dtensor_spec DTensorSpec",
                                             "torch.distributed.tensor._dtensor_spec TensorMeta",
                                             "torch.distributed.tensor._dtensor_spec ShardOrderEntry",
                                             "torch.distributed.tensor.placement_types Shard",
                                             "torch.distributed.tensor.placement_types Replicate"};
const std::set<std::string_view> kTypes = {"float32", "float16", "bfloat16", "float64", "int64",
                                           "int32",   "int16",   "int8",     "uint8",   "bool"};

bool is_inert(std::string_view full) {
  return full == kOrderedDict || full == kTensor || full == kParameter || full == kSize || full == kFromType ||
         full == kWrapper || full == kLayout || full == kDevice || full == kDistributed || kRecords.contains(full);
}

std::string known_name(const std::string& module, const std::string& name, size_t at) {
  std::string full = module + " " + name;
  bool known = is_inert(full) || (module == "torch" && (kStorages.contains(name) || kTypes.contains(name)));
  SF_CHECK(known, Exit::kData,
           "byte {}: the pickle asks for {}.{}, which is no tensor: it is refused, for it could run code", at, module,
           name);
  return full;
}

class Machine {
 public:
  explicit Machine(std::string_view bytes) : in_(bytes) {}

  Pickle run() {
    while (!done_) step();
    SF_CHECK(stack_.size() == 1, Exit::kData, "the pickle leaves {} values, wanted one", stack_.size());
    return {std::move(values_), stack_.back()};
  }

 private:
  std::string_view take(size_t count) {
    SF_CHECK(count <= in_.size() - at_, Exit::kData, "byte {}: {} bytes are wanted, {} are left", at_, count,
             in_.size() - at_);
    at_ += count;
    return in_.substr(at_ - count, count);
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string line() {
    size_t end = in_.find('\n', at_);
    SF_CHECK(end != std::string_view::npos && end - at_ <= kMaxName, Exit::kData, "byte {}: a name has no end", at_);
    std::string text(in_.substr(at_, end - at_));
    at_ = end + 1;
    return text;
  }

  size_t make(PickleValue value) {
    SF_CHECK(values_.size() < kMaxValues, Exit::kData, "more than {} values", kMaxValues);
    values_.push_back(std::move(value));
    return values_.size() - 1;
  }
  void push(PickleValue value) { stack_.push_back(make(std::move(value))); }
  void push_text(std::string_view text) { push({.kind = Kind::kText, .text = std::string(text)}); }
  void push_int(int64_t value) { push({.kind = Kind::kInt, .whole = value}); }

  size_t pop() {
    SF_CHECK(!stack_.empty() && (marks_.empty() || stack_.size() > marks_.back()), Exit::kData,
             "byte {}: the stack is empty", at_);
    size_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  PickleValue& top(Kind kind, std::string_view what) {
    SF_CHECK(!stack_.empty() && values_[stack_.back()].kind == kind, Exit::kData, "byte {}: no {} to fill", at_, what);
    return values_[stack_.back()];
  }
  std::vector<size_t> to_mark() {
    SF_CHECK(!marks_.empty(), Exit::kData, "byte {}: no mark", at_);
    std::vector<size_t> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  // One that is copied or searched for a fixed purpose: remembered once and asked for often, a large one would cost
  // time without end.
  const PickleValue& few(size_t index) const {
    const PickleValue& value = values_[index];
    SF_CHECK(value.items.size() <= kMaxParts, Exit::kData, "byte {}: {} parts, at most {} are allowed here", at_,
             value.items.size(), kMaxParts);
    return value;
  }
  const PickleValue& item(const PickleValue& tuple, size_t index, Kind kind, std::string_view what) const {
    SF_CHECK(index < tuple.items.size() && values_[tuple.items[index]].kind == kind, Exit::kData,
             "byte {}: {} is not what torch writes", at_, what);
    return values_[tuple.items[index]];
  }
  std::vector<int64_t> wholes(const PickleValue& tuple, std::string_view what) const {
    SF_CHECK(tuple.items.size() <= kMaxDims, Exit::kData, "byte {}: {} dimensions, at most {} are allowed", at_,
             tuple.items.size(), kMaxDims);
    std::vector<int64_t> out;
    for (size_t i = 0; i < tuple.items.size(); ++i) out.push_back(item(tuple, i, Kind::kInt, what).whole);
    return out;
  }

  void tuple(size_t count) {
    std::vector<size_t> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push({.kind = Kind::kTuple, .items = std::move(items)});
  }
  void memoize(size_t key) {
    SF_CHECK(!stack_.empty(), Exit::kData, "byte {}: nothing to remember", at_);
    memo_[key] = stack_.back();
  }
  void recall(size_t key) {
    auto found = memo_.find(key);
    SF_CHECK(found != memo_.end(), Exit::kData, "byte {}: nothing is remembered as {}", at_, key);
    stack_.push_back(found->second);
  }

  // ("storage", torch.FloatStorage, key, device, elements)
  void storage() {
    const PickleValue id = few(pop());
    SF_CHECK(id.kind == Kind::kTuple && id.items.size() == 5 && item(id, 0, Kind::kText, "a storage").text == "storage",
             Exit::kData, "byte {}: a persistent id that is no storage", at_);
    std::string_view type = item(id, 1, Kind::kName, "a storage's type").text;
    SF_CHECK(type.starts_with("torch ") && kStorages.contains(type.substr(6)), Exit::kData,
             "byte {}: \"{}\" is no storage", at_, type);
    push({.kind = Kind::kStorage,
          .text = item(id, 2, Kind::kText, "a storage's key").text,
          .storage = std::string(type.substr(6)),
          .elements = item(id, 4, Kind::kInt, "a storage's size").whole});
  }

  // (storage, offset, shape, strides, requires_grad, hooks[, metadata])
  void rebuild_tensor(const PickleValue& arguments) {
    const PickleValue& from = item(arguments, 0, Kind::kStorage, "a tensor's storage");
    PickleValue tensor{.kind = Kind::kTensor, .text = from.text, .storage = from.storage, .elements = from.elements};
    tensor.whole = item(arguments, 1, Kind::kInt, "a tensor's offset").whole;
    tensor.shape = wholes(item(arguments, 2, Kind::kTuple, "a tensor's shape"), "a shape");
    tensor.strides = wholes(item(arguments, 3, Kind::kTuple, "a tensor's strides"), "strides");
    push(std::move(tensor));
  }

  void reduce() {
    const PickleValue arguments = few(pop());
    const PickleValue callable = few(pop());
    SF_CHECK(callable.kind == Kind::kName && arguments.kind == Kind::kTuple, Exit::kData,
             "byte {}: a call of something that has no name", at_);
    if (callable.text == kTensor) return rebuild_tensor(arguments);
    if (callable.text == kParameter) {
      item(arguments, 0, Kind::kTensor, "a parameter");
      return stack_.push_back(arguments.items[0]);
    }
    if (callable.text == kOrderedDict) {
      SF_CHECK(arguments.items.empty(), Exit::kData, "byte {}: an OrderedDict is made with arguments", at_);
      return push({.kind = Kind::kDict});
    }
    if (callable.text == kFromType) return rebuild_distributed(arguments);
    if (callable.text == kLayout || callable.text == kDevice) return push({});
    SF_CHECK(callable.text == kSize, Exit::kData, "byte {}: {} is called, which is no tensor", at_, callable.text);
    item(arguments, 0, Kind::kTuple, "a size");
    stack_.push_back(arguments.items[0]);
  }

  // cls.__new__(cls, *arguments): the name and the arguments.
  void new_record() {
    const PickleValue arguments = few(pop()), type = few(pop());
    SF_CHECK(type.kind == Kind::kName && kRecords.contains(type.text) && arguments.kind == Kind::kTuple, Exit::kData,
             "byte {}: {} is made, which is no part of a tensor", at_,
             type.kind == Kind::kName ? type.text : "a value");
    push({.kind = Kind::kRecord, .text = type.text, .items = arguments.items});
  }

  // The value of a key of a dictionary; null if there is none.
  const PickleValue* member(const PickleValue& dict, std::string_view key) const {
    if (dict.kind != Kind::kDict || dict.items.size() > kMaxParts) return nullptr;
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2)
      if (const PickleValue& found = values_[dict.items[i]]; found.kind == Kind::kText && found.text == key)
        return &values_[dict.items[i + 1]];
    return nullptr;
  }
  // What was stored for a record under a name, wherever its dictionary stands among what it is made of.
  const PickleValue* field(const PickleValue& record, std::string_view key) const {
    if (record.kind != Kind::kRecord) return nullptr;
    for (size_t index : record.items)
      if (const PickleValue* found = member(values_[index], key)) return found;
    return nullptr;
  }
  const PickleValue& wanted(const PickleValue* value, Kind kind, std::string_view what) const {
    SF_CHECK(value && value->kind == kind, Exit::kData, "byte {}: {} is not what torch writes", at_, what);
    return *value;
  }

  // A mesh says its extents as a layout, or (before torch 2.10) by the shape of the tensor of its ranks.
  std::vector<int64_t> mesh_extents(const PickleValue& mesh) const {
    const PickleValue* layout = field(mesh, "_layout");
    const PickleValue* shape = layout ? field(*layout, "shape") : nullptr;
    if (shape && shape->kind == Kind::kInt) return {shape->whole};
    if (shape) return wholes(wanted(shape, Kind::kTuple, "a mesh's shape"), "a mesh's shape");
    return wanted(field(mesh, "mesh"), Kind::kTensor, "a mesh").shape;
  }

  Placement placement_of(const PickleValue& spec) const {
    Placement out;
    out.mesh = mesh_extents(wanted(field(spec, "mesh"), Kind::kRecord, "a mesh"));
    const PickleValue& meta = wanted(field(spec, "tensor_meta"), Kind::kRecord, "a tensor's meta data");
    out.shape = wholes(item(meta, 0, Kind::kTuple, "the shape of the whole"), "the shape of the whole");
    const PickleValue& placements = wanted(field(spec, "placements"), Kind::kTuple, "placements");
    for (size_t i = 0; i < placements.items.size(); ++i) {
      const PickleValue& each = item(placements, i, Kind::kRecord, "a placement");
      bool cut = each.text.ends_with(" Shard");
      SF_CHECK(cut || each.text.ends_with(" Replicate"), Exit::kData, "byte {}: a placement {}", at_, each.text);
      out.cuts.push_back(cut ? wanted(field(each, "dim"), Kind::kInt, "a placement's dimension").whole : -1);
      bool inside = !cut || (out.cuts.back() >= 0 && out.cuts.back() < std::ssize(out.shape));
      SF_CHECK(inside, Exit::kData, "byte {}: dimension {} of {} is cut", at_, out.cuts.back(), out.shape.size());
    }
    SF_CHECK(out.cuts.size() == out.mesh.size(), Exit::kData, "byte {}: {} placements over a mesh of {} dimensions",
             at_, out.cuts.size(), out.mesh.size());
    return out;
  }

  // (_rebuild_wrapper_subclass, DTensor, arguments, state); the state is a dictionary, or (None, dictionary).
  void rebuild_distributed(const PickleValue& arguments) {
    bool ours = item(arguments, 0, Kind::kName, "a tensor's function").text == kWrapper &&
                item(arguments, 1, Kind::kName, "a tensor's type").text == kDistributed;
    SF_CHECK(ours && arguments.items.size() == 4, Exit::kData, "byte {}: a tensor of a type that is not read", at_);
    const PickleValue* state = &values_[arguments.items[3]];
    if (state->kind == Kind::kTuple) state = &item(*state, 1, Kind::kDict, "a tensor's state");
    PickleValue tensor = wanted(member(*state, "_local_tensor"), Kind::kTensor, "a rank's part of a tensor");
    tensor.placement = placement_of(wanted(member(*state, "_spec"), Kind::kRecord, "what says how a tensor is cut"));
    push(std::move(tensor));
  }

  void set_items(std::vector<size_t> items) {
    SF_CHECK(items.size() % 2 == 0, Exit::kData, "byte {}: a key without a value", at_);
    PickleValue& dict = top(Kind::kDict, "dictionary");
    dict.items.insert(dict.items.end(), items.begin(), items.end());
  }

  // What a state dictionary carries besides its items (versions of modules) is dropped; a record keeps it.
  void build() {
    size_t state = pop();
    if (!stack_.empty() && few(stack_.back()).kind == Kind::kRecord)
      return values_[stack_.back()].items.push_back(state);
    top(Kind::kDict, "dictionary or record");
  }

  void long_integer() {
    std::string_view bytes = take(number<uint8_t>());
    SF_CHECK(bytes.size() <= 8, Exit::kData, "byte {}: an integer of {} bytes", at_, bytes.size());
    uint64_t value = bytes.empty() || static_cast<int8_t>(bytes.back()) >= 0 ? 0 : UINT64_MAX;
    std::memcpy(&value, bytes.data(), bytes.size());
    push_int(static_cast<int64_t>(value));
  }

  void binary_float() {
    uint64_t bits = __builtin_bswap64(number<uint64_t>());
    PickleValue value{.kind = Kind::kFloat};
    std::memcpy(&value.real, &bits, sizeof bits);
    push(std::move(value));
  }

  void step() {
    auto code = static_cast<uint8_t>(take(1)[0]);
    if (!scalar(code) && !container(code) && !reference(code))
      fail(Exit::kData, "byte {}: opcode {:#04x} is refused: it makes no tensor", at_ - 1, code);
  }

  bool scalar(uint8_t code) {
    switch (code) {
      case 0x80:  // PROTO
        SF_CHECK(number<uint8_t>() <= 5, Exit::kData, "byte {}: an unknown protocol of pickle", at_);
        return true;
      case 0x95:  // FRAME
        number<uint64_t>();
        return true;
      case 'N':
        return push({}), true;
      case 0x88:
      case 0x89:
        return push({.kind = Kind::kBool, .whole = code == 0x88}), true;
      case 'J':
        return push_int(number<int32_t>()), true;
      case 'K':
        return push_int(number<uint8_t>()), true;
      case 'M':
        return push_int(number<uint16_t>()), true;
      case 0x8a:  // LONG1
        return long_integer(), true;
      case 'G':
        return binary_float(), true;
      case 'X':  // BINUNICODE
        return push_text(take(number<uint32_t>())), true;
      case 0x8c:  // SHORT_BINUNICODE
        return push_text(take(number<uint8_t>())), true;
      default:
        return false;
    }
  }

  bool container(uint8_t code) {
    switch (code) {
      case '(':
        return marks_.push_back(stack_.size()), true;
      case ')':
        return push({.kind = Kind::kTuple}), true;
      case ']':
        return push({.kind = Kind::kList}), true;
      case '}':
        return push({.kind = Kind::kDict}), true;
      case 't':
        return push({.kind = Kind::kTuple, .items = to_mark()}), true;
      case 0x85:
      case 0x86:
      case 0x87:
        return tuple(code - 0x84), true;
      case 'a': {
        size_t value = pop();
        return top(Kind::kList, "list").items.push_back(value), true;
      }
      case 'e': {
        std::vector<size_t> items = to_mark();
        PickleValue& list = top(Kind::kList, "list");
        return list.items.insert(list.items.end(), items.begin(), items.end()), true;
      }
      case 's': {
        size_t value = pop(), key = pop();
        return set_items({key, value}), true;
      }
      case 'u':
        return set_items(to_mark()), true;
      default:
        return false;
    }
  }

  bool reference(uint8_t code) {
    switch (code) {
      case 'c': {
        size_t at = at_ - 1;
        std::string module = line(), name = line();
        return push({.kind = Kind::kName, .text = known_name(module, name, at)}), true;
      }
      case 0x93: {  // STACK_GLOBAL
        const PickleValue name = values_[pop()], module = values_[pop()];
        return push({.kind = Kind::kName, .text = known_name(module.text, name.text, at_ - 1)}), true;
      }
      case 'Q':
        return storage(), true;
      case 'R':
        return reduce(), true;
      case 0x81:  // NEWOBJ
        return new_record(), true;
      case 'b':
        return build(), true;
      case 'q':
        return memoize(number<uint8_t>()), true;
      case 'r':
        return memoize(number<uint32_t>()), true;
      case 0x94:  // MEMOIZE
        return memoize(memo_.size()), true;
      case 'h':
        return recall(number<uint8_t>()), true;
      case 'j':
        return recall(number<uint32_t>()), true;
      case '.':
        return done_ = true;
      default:
        return false;
    }
  }

  std::string_view in_;
  size_t at_ = 0;
  bool done_ = false;
  std::vector<PickleValue> values_;
  std::vector<size_t> stack_, marks_;
  std::map<size_t, size_t> memo_;
};

}  // namespace

Pickle read_pickle(std::string_view bytes) {
  return Machine(bytes).run();
}

}  // namespace sf::ckpt
