// SPDX-License-Identifier: Apache-2.0
// sf-capture features: chats -> the target's states, by position: streamed to trainers, or as a directory.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>

#include "base/deadline.h"
#include "base/error.h"
#include "ckpt/draft.h"
#include "config/apply.h"
#include "run/entry.h"
#include "run/target.h"
#include "stream/feature_dir.h"
#include "stream/producer.h"
#include "tensor/convert.h"
#include "tool/capture_wish.h"
#include "tool/chats.h"
#include "tool/outputs.h"
#include "tool/synthetic.h"
#include "tool/target_settings.h"

namespace sf::run {
namespace {

namespace fs = std::filesystem;
using config::Apply;

struct Capture {
  OpenTarget target;
  tool::CaptureWish wish;
  std::vector<text::ChatRow> rows;
  stream::Contract contract;
  Dtype feature = Dtype::kBF16;
  int64_t tokens = 0;  // computed
  double seconds = 0;  // spent computing

  stream::Sample compute(uint64_t row);
};

// One state that is not finite would spoil every step that sees it.
HostTensor carried(const at::Tensor& states, Dtype feature, const text::ChatRow& chat) {
  at::Tensor rounded = states.to(tensor::to_scalar(feature));
  SF_CHECK(
      at::isfinite(rounded).all().item<bool>(), Exit::kData,
      "row {} (id {}): the target's states are not finite in {}: its weights are broken, or the type is too narrow",
      chat.row, chat.id, name_of(feature));
  return tensor::to_host(rounded);
}

// One unpadded sequence in one go: the bits depend on the row alone.
stream::Sample Capture::compute(uint64_t row) {
  const text::ChatRow& chat = rows[row];
  stream::Sample sample{.row = row};
  if (!chat.rejected.empty()) {
    sample.void_reason = chat.rejected;
    return sample;
  }
  double start = monotonic_s();
  auto length = static_cast<int64_t>(chat.encoded.ids.size());
  gen::Cache cache = target.model.make_cache(length);
  gen::States states = target.model.prefill(cache, chat.encoded.ids, wish.layers);
  auto add = [&](const char* name, HostTensor tensor) { sample.tensors.push_back({name, std::move(tensor)}); };
  HostTensor ids(Dtype::kI32, {length}), mask(Dtype::kU8, {length});
  std::copy(chat.encoded.ids.begin(), chat.encoded.ids.end(), ids.as<int32_t>().begin());
  std::copy(chat.encoded.loss_mask.begin(), chat.encoded.loss_mask.end(), mask.as<uint8_t>().begin());
  add("input_ids", std::move(ids));
  add("loss_mask", std::move(mask));
  add(wish.teacher ? "hidden_state" : "hidden_states", carried(at::cat(states.captured, 1), feature, chat));
  if (wish.final_norm) add("final_norm", carried(states.final_norm, feature, chat));
  if (wish.teacher) {
    // The teacher of training sees the carried (rounded) state, so its best id and log-sum-exp come from that one too.
    at::Tensor rounded = states.final_norm.to(tensor::to_scalar(feature));
    ops::Top1 top = target.model.top1(rounded.to(states.final_norm.scalar_type()));
    add("target_top1", tensor::to_host(top.top1));
    add("target_lse", tensor::to_host(top.lse));
  }
  tokens += length;
  seconds += monotonic_s() - start;
  return sample;
}

Capture prepare(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  ckpt::Checkpoint draft_files = ckpt::Checkpoint::open(invocation.get("draft"));
  tool::CaptureWish wish = tool::capture_wish(draft_files.config());
  Capture capture{.target = open_host_target(invocation), .wish = wish};
  ckpt::check_target(draft_files, capture.target.checkpoint);
  tool::Chats chats =
      tool::read_chats(invocation, capture.target.encoder, capture.target.model.decoder().max_positions);
  stream::Contract& contract = capture.contract =
      tool::contract_of(capture.target.checkpoint, capture.target.encoder, capture.target.compute, capture.wish);
  chats.describe(contract);
  capture.rows = std::move(chats.rows);
  Apply carried(settings, fmt::format("{} layers", contract.layers.size()), "run");
  capture.feature = *dtype_from_config(carried.word("capture.feature_dtype"));
  contract.feature_dtype = name_of(capture.feature);
  return capture;
}

Json counts(const Capture& capture, int64_t rows, int64_t voids) {
  double rate = capture.seconds > 0 ? static_cast<double>(capture.tokens) / capture.seconds : 0;
  return Json::object().set("rows", rows).set("voids", voids).set("tokens", capture.tokens).set("tokens_per_s", rate);
}

int to_directory(app::Invocation& invocation, Capture& capture) {
  fs::path dir = invocation.get("output");
  tool::apply_no_stream(invocation.settings());
  app::settle_settings(invocation);
  invocation.stop();  // from here on a request to stop keeps the rows that are finished
  stream::FeatureWriter writer(dir, capture.contract, 0, invocation.command_line());
  auto total = static_cast<int64_t>(capture.rows.size());
  int64_t voids = 0;
  for (uint64_t row = 0; row < capture.rows.size(); ++row) {
    voids += !capture.rows[row].rejected.empty();
    if (writer.has(row)) continue;
    if (invocation.stop() != app::Stop::kNone) {
      writer.close();
      invocation.log(fmt::format("stopped; {} of {} rows are kept", writer.rows(), total));
      return static_cast<int>(Exit::kAgain);
    }
    writer.add(capture.compute(row));
    invocation.progress(
        "features", static_cast<int64_t>(row) + 1, total,
        fmt::format("{:.0f} tokens/s", static_cast<double>(capture.tokens) / std::max(capture.seconds, 1e-9)));
  }
  writer.close();
  writer.publish();
  Json json = counts(capture, total, voids).set("path", dir.string());
  invocation.log(fmt::format("{} rows, {} void, {} tokens at {:.1f} tokens/s", total, voids, capture.tokens,
                             json.at("tokens_per_s").as_double()));
  invocation.result(invocation.json_output() ? json.dump() : dir.string());
  return 0;
}

stream::ProducerOptions producer_options(app::Invocation& invocation, const Capture& capture) {
  const tool::ProducerSettings asked = tool::apply_producer(invocation.settings(), invocation.has("handle-file"));
  stream::ProducerOptions options;
  options.contract = capture.contract;
  options.code = app::build_info().get_string("version", "");
  options.cache_bytes = asked.cache_bytes;
  options.credit_bytes = asked.credit_bytes;
  options.heartbeat_s = asked.heartbeat_s;
  options.stop_s = asked.stop_s;
  options.bind = asked.bind;
  options.encrypt = asked.encrypt;
  options.explain_s = asked.explain_s;
  options.rejoin_s = asked.rejoin_s;
  options.report = [&invocation](const std::string& line) { invocation.log(line); };
  return options;
}

bool is_pipe(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
}

bool nobody_reads(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISCHR(info.st_mode);
}

int to_stream(app::Invocation& invocation, Capture& capture) {
  stream::ProducerOptions options = producer_options(invocation, capture);
  app::settle_settings(invocation);
  bool by_file = invocation.has("handle-file");
  if (by_file) tool::refuse_all_but_handle(invocation.get("handle-file"));
  if (!by_file && is_pipe(STDOUT_FILENO)) options.life_fd = STDOUT_FILENO;
  uint64_t rows = capture.contract.rows, seed = capture.contract.order_seed;
  stream::Producer producer(
      options, [&](uint64_t position) { return capture.compute(stream::place_of(position, rows, seed).row); });
  if (by_file)
    stream::write_handle_file(invocation.get("handle-file"), producer.handle());
  else
    invocation.result(producer.handle().to_json().dump());
  stream::Ending ending = producer.serve([&] { return invocation.stop() != app::Stop::kNone; });
  if (by_file) stream::remove_handle_file(invocation.get("handle-file"), producer.handle().id);
  invocation.log(producer.explain());
  stream::ProducerCounts done = producer.counts();
  std::string summary = fmt::format(
      "{} samples sent ({} void, {} from the cache), {} tokens computed at {:.1f} tokens/s; {}", done.sent, done.voids,
      done.cached, capture.tokens, counts(capture, 0, 0).at("tokens_per_s").as_double(), stream::message_of(ending));
  // An error is told as one, which -q does not silence.
  if (Exit exit = stream::exit_of(ending); exit != Exit::kOk) fail(exit, "{}", summary);
  invocation.log(summary);
  return 0;
}

int capture_features(app::Invocation& invocation) {
  if (invocation.has("synthetic")) return tool::synthetic_features(invocation);
  SF_CHECK(!invocation.has("n"), Exit::kUsage, "--n counts rows of --synthetic; give both");
  bool to_dir = invocation.has("output");
  if (to_dir) tool::refuse_existing(invocation.get("output"));
  SF_CHECK(to_dir || invocation.has("handle-file") || !nobody_reads(STDOUT_FILENO), Exit::kUsage,
           "the stream's handle goes to standard output, which is a terminal or a device that no trainer reads; pipe "
           "into sf-train, or give --handle-file FILE or -o DIR");
  Capture capture = prepare(invocation);
  fs::path rejected = tool::rejected_file(invocation);
  tool::write_rejected(invocation, capture.rows, rejected);
  return to_dir ? to_directory(invocation, capture) : to_stream(invocation, capture);
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_capture_features(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::capture_features(*invocation); });
}
