// SPDX-License-Identifier: Apache-2.0
#include "tool/offline_features.h"

#include <algorithm>

#include "base/error.h"
#include "ckpt/torch_file.h"
#include "config/apply.h"
#include "text/chat_mask.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 10'000'000;
std::vector<fs::path> files_below(const fs::path& dir) {
  SF_CHECK(fs::is_directory(dir), Exit::kNoInput, "{}: no such directory of feature files", dir.string());
  std::vector<fs::path> files;
  for (const auto& item : fs::recursive_directory_iterator(dir)) {
    if (!item.is_regular_file()) continue;
    SF_CHECK(item.path().extension() != ".gz", Exit::kData, "{}: compressed feature files are not read; gunzip -r {}",
             item.path().string(), dir.string());
    if (item.path().extension() == ".ckpt") files.push_back(item.path());
    SF_CHECK(files.size() <= kMostFiles, Exit::kData, "{}: more than {} files", dir.string(), kMostFiles);
  }
  SF_CHECK(!files.empty(), Exit::kNoInput, "{}: no feature files (*.ckpt)", dir.string());
  std::sort(files.begin(), files.end());
  return files;
}

const ckpt::TorchTensor& tensor_in(const ckpt::TorchFile& file, std::string_view name) {
  std::string there;
  for (const ckpt::TorchTensor& tensor : file.tensors()) {
    if (tensor.name == name) return tensor;
    there += (there.empty() ? "" : ", ") + tensor.name;
  }
  fail(Exit::kData, "{}: no tensor {}; it holds {}", file.path().string(), name, there.empty() ? "none" : there);
}

// [S] or [1, S] of int64.
std::vector<int64_t> numbers(const ckpt::TorchFile& file, std::string_view name) {
  const ckpt::TorchTensor& tensor = tensor_in(file, name);
  const bool flat = tensor.shape.size() == 1 || (tensor.shape.size() == 2 && tensor.shape[0] == 1);
  SF_CHECK(tensor.dtype == Dtype::kI64 && flat, Exit::kData, "{}: {} is {} {}, wanted I64 [tokens]",
           file.path().string(), name, tensor.type, to_string(tensor.shape));
  std::vector<int64_t> out(static_cast<size_t>(numel(tensor.shape)));
  file.read(tensor, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

text::EncodedChat encoded(const ckpt::TorchFile& file, int64_t vocab, int64_t max_length) {
  const std::vector<int64_t> ids = numbers(file, "input_ids"), mask = numbers(file, "loss_mask");
  SF_CHECK(ids.size() == mask.size() && !ids.empty(), Exit::kData, "{}: {} input_ids and {} of loss_mask",
           file.path().string(), ids.size(), mask.size());
  text::EncodedChat chat;
  for (size_t i = 0; i < ids.size(); ++i) {
    SF_CHECK(ids[i] >= 0 && ids[i] < vocab && (mask[i] == 0 || mask[i] == 1), Exit::kData,
             "{}: token {} is {} with mask {}: wanted an id below {} and a mask of 0 or 1", file.path().string(), i,
             ids[i], mask[i], vocab);
    chat.ids.push_back(static_cast<int32_t>(ids[i]));
    chat.loss_mask.push_back(static_cast<uint8_t>(mask[i]));
  }
  return text::truncated(std::move(chat), static_cast<size_t>(max_length));
}

// The first `length` tokens of [S, width] or [1, S, width].
HostTensor states_in(const ckpt::TorchFile& file, std::string_view name, int64_t length, int64_t width) {
  const ckpt::TorchTensor& tensor = tensor_in(file, name);
  Shape shape = tensor.shape;
  if (shape.size() == 3 && shape[0] == 1) shape.erase(shape.begin());
  SF_CHECK(shape.size() == 2 && shape[0] >= length && shape[1] == width, Exit::kData,
           "{}: {} is {}, wanted [1, {} or more, {}]", file.path().string(), name, to_string(tensor.shape), length,
           width);
  SF_CHECK(tensor.dtype == Dtype::kBF16 || tensor.dtype == Dtype::kF32 || tensor.dtype == Dtype::kF16, Exit::kData,
           "{}: {} is {}, wanted BF16, F16 or F32", file.path().string(), name, tensor.type);
  HostTensor states(tensor.dtype, {length, width});
  file.read(tensor, 0, {states.data(), states.bytes()});
  return states;
}

}  // namespace

OfflineFeatures::OfflineFeatures(const fs::path& dir, const CaptureWish& wish, const arch::Decoder& decoder,
                                 int64_t max_length)
    : dir_(dir), wish_(wish), hidden_(decoder.hidden) {
  for (const fs::path& path : files_below(dir)) {
    text::ChatRow row{.row = rows_.size(), .id = path.lexically_relative(dir).string()};
    row.encoded = encoded(ckpt::TorchFile::open(path), decoder.vocab, max_length);
    if (row.encoded.supervised() == 0) row.rejected = text::kNoSupervisedToken, row.encoded = {};
    rows_.push_back(std::move(row));
  }
}

OfflineFeatures::States OfflineFeatures::states_of(const text::ChatRow& row) const {
  const ckpt::TorchFile file = ckpt::TorchFile::open(dir_ / row.id);
  const int64_t length = std::ssize(row.encoded.ids);
  States states;
  states.captured =
      states_in(file, wish_.teacher ? "aux_hidden_state" : "hidden_states", length, std::ssize(wish_.layers) * hidden_);
  if (wish_.final_norm)
    states.final_norm = states_in(file, wish_.teacher ? "hidden_state" : "target_last_hidden_states", length, hidden_);
  return states;
}

OfflineFeatures open_import(app::Invocation& invocation, const CaptureWish& wish, const arch::Decoder& decoder) {
  config::Settings& settings = invocation.settings();
  config::Apply rows(settings, "every row", "tool");
  const int64_t most = rows.whole("capture.max_length");
  rows.whole("data.order_seed");
  config::Apply(settings, "0 rows (their masks are imported)", "tool").nothing("capture.mask_rule");
  return {invocation.get("import"), wish, decoder, std::min(most, decoder.max_positions)};
}

Chats chats_of_import(app::Invocation& invocation, const OfflineFeatures& features) {
  const config::Settings& settings = invocation.settings();
  Chats chats{features.rows(), settings.get_int("capture.max_length"), "imported", 0};
  chats.order_seed = static_cast<uint64_t>(settings.get_int("data.order_seed"));
  SF_CHECK(std::ranges::any_of(chats.rows, [](const text::ChatRow& row) { return row.rejected.empty(); }), Exit::kData,
           "{}: none of the {} rows can be learnt from: {}", invocation.get("import"), chats.rows.size(),
           chats.rows.front().rejected);
  return chats;
}

}  // namespace sf::tool
