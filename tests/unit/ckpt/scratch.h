// SPDX-License-Identifier: Apache-2.0
// A directory that disappears with the test, and small tensors to put into it.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/shape.h"

namespace sf::ckpt {

class Scratch {
 public:
  Scratch() {
    // Memory where there is any: the tests sync files hundreds of times.
    std::filesystem::path base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (base / "sf-ckpt-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline HostTensor ramp(Dtype dtype, Shape shape, int start = 0) {
  HostTensor tensor(dtype, std::move(shape));
  for (size_t i = 0; i < tensor.bytes(); ++i)
    tensor.data()[i] = static_cast<std::byte>((start + static_cast<int>(i) * 7) & 63);
  return tensor;
}

// A file of torch.save with every CRC-32 of its directory as torch leaves it when told not to compute any: a test's own
// bytes get to what comes after.
inline std::string without_crcs(std::string bytes) {
  for (size_t at = bytes.find("PK\1\2"); at != std::string::npos; at = bytes.find("PK\1\2", at + 1))
    bytes.replace(at + 16, 4, 4, '\0');
  return bytes;
}

inline bool same(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && (a.bytes() == 0 || std::memcmp(a.data, b.data, a.bytes()) == 0);
}

inline testing::AssertionResult says(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << text << "\" lacks \"" << part << "\"";
}

// The message of the sf::Error that `body` throws, which must carry `wanted`.
inline std::string refusal(Exit wanted, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), wanted) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

}  // namespace sf::ckpt
