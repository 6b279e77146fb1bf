// SPDX-License-Identifier: Apache-2.0
#include "tool/chats.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "config/apply.h"
#include "tool/outputs.h"

namespace sf::tool {
namespace {

class ChatSource : public stream::Source {
 public:
  ChatSource(Chats chats, stream::Contract contract) : chats_(std::move(chats)), contract_(std::move(contract)) {}

  const stream::Contract& contract() const override { return contract_; }
  void want(std::span<const uint64_t>) override {}
  void finish() override {}

  stream::Sample get(uint64_t position, Deadline) override {
    const uint64_t row = stream::place_of(position, chats_.rows.size(), chats_.order_seed).row;
    const text::ChatRow& chat = chats_.rows[row];
    stream::Sample sample{.position = position, .row = row};
    if (!chat.rejected.empty()) {
      sample.void_reason = chat.rejected;
      return sample;
    }
    const auto length = std::ssize(chat.encoded.ids);
    HostTensor ids(Dtype::kI32, {length}), mask(Dtype::kU8, {length});
    std::copy(chat.encoded.ids.begin(), chat.encoded.ids.end(), ids.as<int32_t>().begin());
    std::copy(chat.encoded.loss_mask.begin(), chat.encoded.loss_mask.end(), mask.as<uint8_t>().begin());
    sample.tensors.push_back({"input_ids", std::move(ids)});
    sample.tensors.push_back({"loss_mask", std::move(mask)});
    return sample;
  }

 private:
  const Chats chats_;
  const stream::Contract contract_;
};

}  // namespace

int64_t Chats::longest() const {
  int64_t most = 0;
  for (const text::ChatRow& row : rows)
    if (row.rejected.empty()) most = std::max(most, std::ssize(row.encoded.ids));
  return most;
}

std::string Chats::digest() const {
  Xxh3 hash;
  for (const text::ChatRow& row : rows) {
    hash.update(std::as_bytes(std::span(row.id.data(), row.id.size() + 1)));
    hash.update(std::as_bytes(std::span(row.encoded.ids)));
    hash.update(std::as_bytes(std::span(row.encoded.loss_mask)));
  }
  return hex64(hash.digest());
}

void Chats::describe(stream::Contract& contract) const {
  contract.max_length = max_length;
  contract.rows = rows.size();
  contract.data = digest();
  contract.order_seed = order_seed;
  contract.mask_rule = mask_rule;
}

Chats read_chats(app::Invocation& invocation, const text::ChatEncoder& encoder, int64_t positions) {
  config::Settings& settings = invocation.settings();
  Chats chats;
  chats.mask_rule = settings.get_string("capture.mask_rule");
  chats.max_length = settings.get_int("capture.max_length");
  chats.rows = text::read_chats(invocation.get("data"), encoder,
                                chats.mask_rule == "turn" ? text::MaskRule::kTurn : text::MaskRule::kReference,
                                static_cast<size_t>(chats.max_length));
  SF_CHECK(!chats.rows.empty(), Exit::kData, "{} holds no row", invocation.get("data"));
  for (text::ChatRow& row : chats.rows) {
    if (!row.rejected.empty() || std::ssize(row.encoded.ids) <= positions) continue;
    row.rejected = fmt::format("{} tokens, but the target has {} positions; lower capture.max_length",
                               row.encoded.ids.size(), positions);
  }
  SF_CHECK(std::ranges::any_of(chats.rows, [](const text::ChatRow& row) { return row.rejected.empty(); }), Exit::kData,
           "{}: none of the {} rows can be learnt from; row {}: {}", invocation.get("data"), chats.rows.size(),
           chats.rows.front().id, chats.rows.front().rejected);
  std::string all_rows = fmt::format("{} rows", chats.rows.size());
  config::Apply text(settings, all_rows, "text"), order(settings, all_rows, "stream");
  text.whole("capture.max_length");
  text.word("capture.mask_rule");
  chats.order_seed = static_cast<uint64_t>(order.whole("data.order_seed"));
  return chats;
}

std::filesystem::path rejected_file(app::Invocation& invocation) {
  std::filesystem::path data = invocation.get("data"), rejected;  // beside a pipe is no place
  std::error_code ignored;
  if (invocation.has("rejected"))
    refuse_all_but_reasons(rejected = invocation.get("rejected"));
  else if (std::filesystem::is_regular_file(data, ignored))
    rejected = data.string() + ".rejected";
  SF_CHECK(!std::filesystem::equivalent(rejected, data, ignored), Exit::kUsage, "--rejected {} is the data file itself",
           rejected.string());
  refuse_to_replace(rejected);
  return rejected;
}

void write_rejected(app::Invocation& invocation, const std::vector<text::ChatRow>& rows,
                    const std::filesystem::path& file) {
  std::string lines;
  int64_t count = 0;
  for (const text::ChatRow& row : rows) {
    if (row.rejected.empty()) continue;
    ++count;
    lines += Json::object().set("row", row.row).set("id", row.id).set("reason", row.rejected).dump() + "\n";
  }
  if (!count) return;
  if (file.empty()) {
    invocation.warn(fmt::format("{} of {} rows are void; --rejected FILE keeps their reasons", count, rows.size()));
    return;
  }
  refuse_all_but_reasons(file);
  write_atomic(file, lines);
  invocation.warn(fmt::format("{} of {} rows are void; their reasons are in {}", count, rows.size(), file.string()));
}

stream::Contract sft_contract(const ckpt::Checkpoint& target, const text::ChatEncoder& encoder,
                              const arch::Decoder& decoder, const Chats& chats, Dtype compute) {
  stream::Contract contract;
  contract.algorithm = "sft";
  contract.target = target.identity();
  contract.tokenizer = encoder.tokenizer_digest();
  contract.chat_template = encoder.template_digest();
  contract.compute_dtype = contract.feature_dtype = name_of(compute);
  contract.vocab = decoder.vocab;
  contract.hidden = decoder.hidden;
  chats.describe(contract);
  return contract;
}

std::unique_ptr<stream::Source> chat_source(Chats chats, stream::Contract contract) {
  return std::make_unique<ChatSource>(std::move(chats), std::move(contract));
}

}  // namespace sf::tool
