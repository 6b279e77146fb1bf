// SPDX-License-Identifier: Apache-2.0
// Chats files as the verbs open them: rows as tokens with masks, what is promised of them, and a source of samples.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "app/command.h"
#include "arch/decoder.h"
#include "ckpt/checkpoint.h"
#include "stream/source.h"
#include "text/chat.h"

namespace sf::tool {

struct Chats {
  std::vector<text::ChatRow> rows;  // at least one
  int64_t max_length = 0;
  std::string mask_rule;
  uint64_t order_seed = 0;

  int64_t longest() const;  // tokens of a row
  // Names the data: a digest over ids, tokens and masks of all rows.
  std::string digest() const;
  // The data's part of a contract: max_length, rows, data, order_seed, mask_rule.
  void describe(stream::Contract& contract) const;
};

// Reads --data for a model of `positions` positions, under capture.max_length, capture.mask_rule and data.order_seed
// (applied here). Rows that cannot be used keep the reason; kData if there is no row at all.
Chats read_chats(app::Invocation& invocation, const text::ChatEncoder& encoder, int64_t positions);

// Where void rows of --data go: --rejected, else beside it; nowhere (empty) beside a pipe. kUsage: the data itself;
// kCantCreate: something published, or --rejected holds anything else.
std::filesystem::path rejected_file(app::Invocation& invocation);
// Rows that cannot be used, with their reasons, beside the run (an empty `file`: only counted): they are void
// positions, never a stop.
void write_rejected(app::Invocation& invocation, const std::vector<text::ChatRow>& rows,
                    const std::filesystem::path& file);

// What training a target on chats promises of its samples.
stream::Contract sft_contract(const ckpt::Checkpoint& target, const text::ChatEncoder& encoder,
                              const arch::Decoder& decoder, const Chats& chats, Dtype compute);
// Samples of input_ids and loss_mask straight from the rows; every rank holds them all. `contract` as filled in by
// describe().
std::unique_ptr<stream::Source> chat_source(Chats chats, stream::Contract contract);

}  // namespace sf::tool
