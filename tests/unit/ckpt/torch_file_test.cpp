// SPDX-License-Identifier: Apache-2.0
// tests/golden/torch_file: state.pt by torch.save of torch 2.11.0 (views of several layouts, a module's state, a
// Parameter, numbers and texts, nested containers), its tensors in state.safetensors; evil.pt holds os.system beside
// one.
#include "ckpt/torch_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "ckpt/pickle.h"
#include "ckpt/safetensors.h"
#include "ckpt/zip.h"
#include "scratch.h"

namespace sf::ckpt {
namespace {

namespace fs = std::filesystem;

fs::path golden(const char* name) {
  const char* root = std::getenv("SF_GOLDEN_ROOT");
  return fs::path(root ? root : "tests/golden") / "torch_file" / name;
}

std::string pickle_refused(std::string_view bytes) {
  return refusal(Exit::kData, [&] { read_pickle(bytes); });
}

// state.pt with one text of equal length put for another, everywhere.
fs::path changed(const Scratch& scratch, std::string_view from, std::string_view to) {
  std::string bytes = without_crcs(read_file(golden("state.pt")));
  EXPECT_EQ(from.size(), to.size());
  for (size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + 1))
    bytes.replace(at, from.size(), to);
  write_atomic(scratch / "bad.pt", bytes);
  return scratch / "bad.pt";
}

TEST(TorchFile, HoldsTheTensorsThatTorchSaved) {
  TorchFile file = TorchFile::open(golden("state.pt"));
  SafetensorsFile wanted = SafetensorsFile::open(golden("state.safetensors"));
  ASSERT_EQ(file.tensors().size(), wanted.tensors().size());
  for (const TorchTensor& tensor : file.tensors()) {
    TensorView view = wanted.view(tensor.name);
    EXPECT_EQ(tensor.shape, view.shape) << tensor.name;
    EXPECT_EQ(tensor.dtype, view.dtype) << tensor.name;
    std::vector<std::byte> bytes(tensor.bytes());
    file.read(tensor, 0, bytes);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), view.data)) << tensor.name;
  }
}

TEST(TorchFile, ReadsAPartOfATurnedView) {
  TorchFile file = TorchFile::open(golden("state.pt"));
  for (const TorchTensor& tensor : file.tensors()) {
    if (tensor.name != "turned") continue;
    std::vector<std::byte> whole(tensor.bytes()), part(16);
    file.read(tensor, 0, whole);
    file.read(tensor, 20, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 20));
    return;
  }
  FAIL();
}

TEST(TorchFile, KeepsNumbersAndTextsBesideTheTensors) {
  const Json values = TorchFile::open(golden("state.pt")).values();
  EXPECT_EQ(values.at("step").as_int(), 7);
  EXPECT_EQ(values.at("ratio").as_double(), 0.25);
  EXPECT_EQ(values.at("big").as_int(), -(int64_t{1} << 40));
  EXPECT_EQ(values.at("name").as_string(), "run");
  EXPECT_EQ(values.at("nested/1/0").as_int(), 1);
}

TEST(TorchFile, RefusesCodeByName) {
  std::string why = refusal(Exit::kData, [] { TorchFile::open(golden("evil.pt")); });
  EXPECT_TRUE(says(why, "asks for posix.system, which is no tensor"));
}

TEST(TorchFile, RefusesWhatIsNoArchiveOrTorn) {
  Scratch scratch;
  write_atomic(scratch / "a", "PK\3\4 but nothing else");
  EXPECT_TRUE(says(refusal(Exit::kData, [&] { TorchFile::open(scratch / "a"); }), "no zip archive"));
  std::string bytes = read_file(golden("state.pt"));
  write_atomic(scratch / "b", std::string_view(bytes).substr(0, bytes.size() / 2));
  refusal(Exit::kData, [&] { TorchFile::open(scratch / "b"); });
  refusal(Exit::kNoInput, [&] { TorchFile::open(scratch / "none"); });
  EXPECT_TRUE(TorchFile::is_zip(golden("state.pt")));
  EXPECT_FALSE(TorchFile::is_zip(golden("state.safetensors")));
}

TEST(TorchFile, ABitThatFlippedInAStorageOrThePickleIsDamage) {
  const std::string_view check = "123456789";
  EXPECT_EQ(crc32(std::as_bytes(std::span(check))), 0xcbf43926u);  // the check value of this CRC
  Scratch scratch;
  const std::string good = read_file(golden("state.pt"));
  TorchFile whole = TorchFile::open(golden("state.pt"));
  const TorchTensor& tensor = whole.tensors().front();
  auto read_with_flip_at = [&](size_t at, std::string bytes) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_atomic(scratch / "flipped", bytes);
    TorchFile file = TorchFile::open(scratch / "flipped");
    std::vector<std::byte> to(tensor.bytes());
    file.read(file.tensors().front(), 0, to);
  };
  std::string why = refusal(Exit::kData, [&] { read_with_flip_at(tensor.begin, good); });
  EXPECT_TRUE(says(why, "\"" + tensor.name + "\" is damaged"));
  EXPECT_TRUE(says(refusal(Exit::kData, [&] { read_with_flip_at(good.find("FloatStorage"), good); }), "is damaged"));
  read_with_flip_at(tensor.begin, without_crcs(good));
}

TEST(TorchFile, RefusesAStorageThatIsNotThereAndOneThatIsTooSmall) {
  Scratch scratch;
  // Member data/0 becomes data/x: its tensor finds no bytes.
  EXPECT_TRUE(says(refusal(Exit::kData, [&] { TorchFile::open(changed(scratch, "state/data/0", "state/data/x")); }),
                   "the archive lacks the storage 0"));
  // (3,) floats of "parameter" as three doubles: 12 bytes do not hold them.
  EXPECT_TRUE(
      says(refusal(Exit::kData, [&] { TorchFile::open(changed(scratch, "torch\nHalfStorage", "torch\nLongStorage")); }),
           "has 8 bytes"));
}

TEST(Pickle, RefusesOpcodesThatMakeNoTensor) {
  for (std::string_view code : {"\x80\x02(i", "\x80\x02P0\n", "\x80\x02o.", "\x80\x02\x92.", "\x80\x02\x82\x01."})
    EXPECT_TRUE(says(pickle_refused(code), "is refused")) << code;
}

TEST(Pickle, MakesRecordsOfDistributedTensorsAndOfNothingElse) {
  EXPECT_TRUE(says(pickle_refused("\x80\x02"
                                  "ccollections\nOrderedDict\n)\x81."),
                   "collections OrderedDict is made, which is no part of a tensor"));
  EXPECT_TRUE(says(pickle_refused("\x80\x02K\x01)\x81."), "a value is made"));
  Pickle mesh = read_pickle(
      "\x80\x02"
      "ctorch.distributed.device_mesh\nDeviceMesh\n)\x81.");
  EXPECT_EQ(mesh[mesh.root].kind, PickleValue::Kind::kRecord);
}

TEST(Pickle, ArgumentsWithoutEndCostNothing) {
  std::string many = "\x80\x02(";
  for (int i = 0; i < 1000; ++i) many += "K\x01";
  EXPECT_TRUE(says(pickle_refused(many + "tq\x01" + "ccollections\nOrderedDict\nh\x01R."), "1000 parts, at most 64"));
}

TEST(Pickle, RefusesNamesWhoeverPutsThemTogether) {
  EXPECT_TRUE(says(pickle_refused("\x80\x02"
                                  "cbuiltins\neval\n."),
                   "builtins.eval"));
  EXPECT_TRUE(says(pickle_refused("\x80\x04\x8c\x02os\x8c\x06system\x93."), "os.system"));
  EXPECT_TRUE(says(pickle_refused("\x80\x02"
                                  "ctorch\n_rebuild_tensor_v2\n."),
                   "torch._rebuild_tensor_v2"));
  EXPECT_TRUE(says(pickle_refused("\x80\x02"
                                  "cnumpy.core.multiarray\n_reconstruct\n."),
                   "numpy.core.multiarray"));
}

TEST(Pickle, RefusesAnEmptyStackAnUnknownMemoAndAMissingEnd) {
  for (std::string_view code : {"\x80\x02"
                                "a.",
                                "\x80\x02"
                                "s.",
                                "\x80\x02h\x01.",
                                "\x80\x02"
                                "t.",
                                "\x80\x02N", "\x80\x02(.", "R.", "\x80\x02NNR.", "Q.", "NQ.", ".", ""})
    pickle_refused(code);
}

TEST(Pickle, ContainersThatHoldThemselvesEndInARefusal) {
  // l = []; l.append(l): data without end, caught where names are made.
  Pickle loop = read_pickle(
      "\x80\x02]q\x01h\x01"
      "a.");
  EXPECT_EQ(loop[loop.root].items.size(), 1u);
}

TEST(TorchFile, SurvivesThreeThousandRandomMutations) {
  Scratch scratch;
  const std::string good = without_crcs(read_file(golden("state.pt")));
  Rng rng(3, "mutations");
  int refused = 0;
  uint64_t sum = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (uint64_t k = 0, edits = 1 + rng.below(3, round, 0); k < edits; ++k) {
      size_t at = rng.below(bad.size(), round, 3 * k + 1);
      // Half of them inside the pickle, where most of the rules are.
      if (rng.below(2, round, 3 * k + 2)) at = 100 + at % 1400;
      bad[at] = static_cast<char>(rng.below(256, round, 3 * k + 3));
    }
    { std::ofstream(scratch / "m", std::ios::binary) << bad; }
    try {
      TorchFile file = TorchFile::open(scratch / "m");
      for (const TorchTensor& tensor : file.tensors()) {
        std::vector<std::byte> bytes(tensor.bytes());
        ASSERT_LE(bytes.size(), good.size());
        file.read(tensor, 0, bytes);
        sum += xxh3_64(bytes);
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Exit::kData) << error.what();
      ++refused;
    }
  }
  EXPECT_NE(sum, 0u);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace sf::ckpt
