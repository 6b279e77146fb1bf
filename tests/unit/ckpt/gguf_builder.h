// SPDX-License-Identifier: Apache-2.0
// GGUF bytes written field by field, right or deliberately wrong.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace sf::ckpt {

class GgufBuilder {
 public:
  template <typename T>
  static std::string raw(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static std::string text(std::string_view value) { return raw(uint64_t{value.size()}) + std::string(value); }

  GgufBuilder& key(std::string_view name, uint32_t type, std::string_view value) {
    keys_ += text(name) + raw(type) + std::string(value);
    ++key_count_;
    return *this;
  }
  GgufBuilder& u32(std::string_view name, uint32_t value) { return key(name, 4, raw(value)); }
  GgufBuilder& f32(std::string_view name, float value) { return key(name, 6, raw(value)); }
  GgufBuilder& string(std::string_view name, std::string_view value) { return key(name, 8, text(value)); }
  GgufBuilder& strings(std::string_view name, const std::vector<std::string>& values) {
    std::string all = raw(uint32_t{8}) + raw(uint64_t{values.size()});
    for (const std::string& value : values) all += text(value);
    return key(name, 9, all);
  }
  GgufBuilder& i32s(std::string_view name, const std::vector<int32_t>& values) {
    std::string all = raw(uint32_t{5}) + raw(uint64_t{values.size()});
    for (int32_t value : values) all += raw(value);
    return key(name, 9, all);
  }
  // Dimensions fastest first, as in the file. The data is padded to 32 bytes behind the tensor.
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, std::string_view data) {
    infos_ += text(name) + raw(static_cast<uint32_t>(dims.size()));
    for (uint64_t extent : dims) infos_ += raw(extent);
    infos_ += raw(type) + raw(uint64_t{data_.size()} + skew);
    ++tensor_count_;
    data_ += data;
    data_.resize((data_.size() + 31) / 32 * 32);
    return *this;
  }

  std::string bytes() const {
    std::string out =
        "GGUF" + raw(version) + raw(tensor_count_ + tensor_lie) + raw(key_count_ + key_lie) + keys_ + infos_;
    out.resize((out.size() + 31) / 32 * 32);
    return out + data_;
  }

  uint32_t version = 3;
  uint64_t tensor_lie = 0, key_lie = 0, skew = 0;  // added to the counts and to the offsets of tensors to come

 private:
  std::string keys_, infos_, data_;
  uint64_t key_count_ = 0, tensor_count_ = 0;
};

inline std::string floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

}  // namespace sf::ckpt
