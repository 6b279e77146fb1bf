// SPDX-License-Identifier: Apache-2.0
// The part of Python's pickle that torch.save needs for tensors in containers, read without running anything: the
// stream is data of fixed kinds, and any opcode or name beyond them is refused. Private to this room.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sf::ckpt {

// A distributed tensor (DTensor) of which a file holds what one rank has: over each dimension of the mesh of ranks it
// is cut along a dimension of its own, in chunks of equal size but the last ones, or kept whole.
struct Placement {
  std::vector<int64_t> shape;  // of the whole
  std::vector<int64_t> mesh;   // extents, ranks in row-major order
  std::vector<int64_t> cuts;   // for each of them the dimension that is cut; -1: none, each rank has all
};

// Values refer to each other by number in one table, so that no depth of nesting costs stack.
struct PickleValue {
  enum class Kind { kNone, kBool, kInt, kFloat, kText, kTuple, kList, kDict, kName, kRecord, kStorage, kTensor };
  Kind kind = Kind::kNone;
  int64_t whole = 0;                    // kBool, kInt; of a tensor its offset in the storage
  double real = 0;                      // kFloat
  std::string text;                     // kText; kName, kRecord: "torch Size"; kStorage, kTensor: the storage's key
  std::string storage;                  // kStorage, kTensor: "FloatStorage"
  int64_t elements = 0;                 // kStorage, kTensor: of the storage
  std::vector<size_t> items;            // kTuple, kList; kDict: keys and values in turn; kRecord: what it is made of
  std::vector<int64_t> shape, strides;  // kTensor
  std::optional<Placement> placement;   // kTensor: it is a rank's part of a distributed one
};

struct Pickle {
  std::vector<PickleValue> values;
  size_t root = 0;
  const PickleValue& operator[](size_t index) const { return values[index]; }
};

// kData naming the opcode or the name that is refused, and the byte.
Pickle read_pickle(std::string_view bytes);

}  // namespace sf::ckpt
