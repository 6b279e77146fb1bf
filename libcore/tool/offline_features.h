// SPDX-License-Identifier: Apache-2.0
// Features that another tool captured offline: SpecForge's files (eagle_dflash 5.1), one torch.save a row.
#pragma once
#include <filesystem>
#include <vector>

#include "app/command.h"
#include "arch/decoder.h"
#include "text/chat.h"
#include "tool/capture_wish.h"
#include "tool/chats.h"

namespace sf::tool {

class OfflineFeatures {
 public:
  // All *.ckpt below `dir`, in the order of their paths: ids and masks are read, states are not. Tensors alone count:
  // a pickle that would run something is refused (ckpt::TorchFile). kNoInput: none there; kData naming the file: one
  // that is no such file, has ids outside the vocabulary or a mask of other numbers, or is compressed.
  OfflineFeatures(const std::filesystem::path& dir, const CaptureWish& wish, const arch::Decoder& decoder,
                  int64_t max_length);

  const std::vector<text::ChatRow>& rows() const { return rows_; }  // id: the path below `dir`
  // The states of a row that is kept: all captured layers side by side [tokens, n H], and the last state [tokens, H]
  // where it is wished for. kData naming file and tensor if one is missing or has another shape.
  struct States {
    HostTensor captured, final_norm;
  };
  States states_of(const text::ChatRow& row) const;

 private:
  std::filesystem::path dir_;
  CaptureWish wish_;
  int64_t hidden_;
  std::vector<text::ChatRow> rows_;
};

// The rows of --import, under capture.max_length and data.order_seed (applied here); they were masked where they were
// made. kData: none can be learnt from.
OfflineFeatures open_import(app::Invocation& invocation, const CaptureWish& wish, const arch::Decoder& decoder);
Chats chats_of_import(app::Invocation& invocation, const OfflineFeatures& features);

}  // namespace sf::tool
