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
constexpr size_t kMaxValues = size_t{1} << 20, kMaxName = 256, kMaxDims = 16;

// Names that a stream may say. Everything else could be code.
const std::set<std::string_view> kStorages = {"FloatStorage", "HalfStorage", "BFloat16Storage", "DoubleStorage",
                                              "LongStorage",  "IntStorage",  "ShortStorage",    "CharStorage",
                                              "ByteStorage",  "BoolStorage"};
constexpr std::string_view kOrderedDict = "collections OrderedDict", kTensor = "torch._utils _rebuild_tensor_v2",
                           kParameter = "torch._utils _rebuild_parameter", kSize = "torch Size";

std::string known_name(const std::string& module, const std::string& name, size_t at) {
  std::string full = module + " " + name;
  bool known = full == kOrderedDict || full == kTensor || full == kParameter || full == kSize ||
               (module == "torch" && kStorages.contains(name));
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
    const PickleValue id = values_[pop()];
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
    const PickleValue arguments = values_[pop()];
    const PickleValue callable = values_[pop()];
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
    SF_CHECK(callable.text == kSize, Exit::kData, "byte {}: {} is called, which is no tensor", at_, callable.text);
    item(arguments, 0, Kind::kTuple, "a size");
    stack_.push_back(arguments.items[0]);
  }

  void set_items(std::vector<size_t> items) {
    SF_CHECK(items.size() % 2 == 0, Exit::kData, "byte {}: a key without a value", at_);
    PickleValue& dict = top(Kind::kDict, "dictionary");
    dict.items.insert(dict.items.end(), items.begin(), items.end());
  }

  // What a state dictionary carries besides its items (versions of modules) is dropped.
  void build() {
    pop();
    top(Kind::kDict, "dictionary");
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
