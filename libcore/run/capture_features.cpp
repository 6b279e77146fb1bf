// SPDX-License-Identifier: Apache-2.0
// sf-capture features: chats -> the target's states, by position: streamed to trainers, or as a directory.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "base/error.h"
#include "ckpt/draft.h"
#include "ckpt/end_ids.h"
#include "config/apply.h"
#include "run/capture.h"
#include "run/entry.h"
#include "run/import_features.h"
#include "run/target.h"
#include "stream/feature_dir.h"
#include "stream/features.h"
#include "stream/producer.h"
#include "tool/capture_wish.h"
#include "tool/chats.h"
#include "tool/outputs.h"
#include "tool/synthetic.h"
#include "tool/target_settings.h"
#include "tool/text_account.h"

namespace sf::run {
namespace {

namespace fs = std::filesystem;
using config::Apply;

struct Job {
  std::unique_ptr<OpenTarget> target;  // stays where it is: `capture` borrows from it
  Capture capture;
  std::unique_ptr<tool::OfflineFeatures> imported;  // or null; `capture` borrows from it
  std::vector<text::ChatRow> rows;
  stream::Contract contract;
  tool::TextAccount account;
};

Job prepare(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  ckpt::Checkpoint draft_files = ckpt::Checkpoint::open(invocation.get("draft"));
  tool::CaptureWish wish = tool::capture_wish(draft_files.config());
  auto target = std::make_unique<OpenTarget>(open_host_target(invocation));
  ckpt::check_target(draft_files, target->checkpoint);
  const arch::Decoder& decoder = target->model.decoder();
  std::unique_ptr<tool::OfflineFeatures> imported;
  if (invocation.has("import"))
    imported = std::make_unique<tool::OfflineFeatures>(tool::open_import(invocation, wish, decoder));
  tool::Chats chats = imported ? tool::chats_of_import(invocation, *imported)
                               : tool::read_chats(invocation, target->encoder, decoder.max_positions);
  stream::Contract contract = tool::contract_of(target->checkpoint, target->encoder, target->compute, wish);
  chats.describe(contract);
  Apply carried(settings, fmt::format("{} layers", contract.layers.size()), "run");
  contract.feature_dtype = stream::feature_type(carried.word("capture.feature_dtype"));
  tool::TextAccount account = tool::account_of(chats.rows, ckpt::end_ids_of(target->checkpoint.dir(), decoder));
  Capture capture(target->model, std::move(wish), contract.feature_dtype);
  if (imported)
    capture.take_from([&from = *imported, wish = capture.wish()](const text::ChatRow& row) {
      return imported_states(from, wish, row);
    });
  return {std::move(target),     std::move(capture),  std::move(imported),
          std::move(chats.rows), std::move(contract), account};
}

// Before anything is kept or served: a row that is not what it says ends the run here.
void check_first_rows(app::Invocation& invocation, Job& job) {
  const int64_t most = invocation.settings().get_int("capture.selftest_rows");
  Apply(invocation.settings(), fmt::format("the first {} rows", most), "run").whole("capture.selftest_rows");
  app::settle_settings(invocation);
  invocation.log(job.account.line());
  if (std::string warning = job.account.warning(); !warning.empty()) invocation.warn(warning);
  if (most > 0 && job.imported)
    return invocation.log(check_import(*job.imported, job.target->model, job.capture.wish(), most));
  if (most > 0) invocation.log(check_capture(job.capture, job.rows, most).line(job.capture.feature()));
}

Json counts(const Capture& capture, int64_t rows, int64_t voids) {
  return Json::object()
      .set("rows", rows)
      .set("voids", voids)
      .set("tokens", capture.tokens())
      .set("tokens_per_s", capture.tokens_per_s());
}

int to_directory(app::Invocation& invocation, Job& job) {
  fs::path dir = invocation.get("output");
  tool::apply_no_stream(invocation.settings());
  check_first_rows(invocation, job);
  invocation.stop();  // from here on a request to stop keeps the rows that are finished
  stream::FeatureWriter writer(dir, job.contract, 0, invocation.command_line());
  Capture& capture = job.capture;
  auto total = std::ssize(job.rows);
  const std::vector<uint64_t> positions = stream::first_positions(job.contract.rows, job.contract.order_seed);
  for (const text::ChatRow& row : job.rows) {
    if (writer.has(row.row)) continue;
    if (invocation.stop() != app::Stop::kNone) {
      writer.close();
      invocation.log(fmt::format("stopped; {} of {} rows are kept", writer.rows(), total));
      return static_cast<int>(Exit::kAgain);
    }
    stream::Sample sample = capture.sample_of(row);
    sample.position = positions[row.row];
    writer.add(sample);
    invocation.progress("features", static_cast<int64_t>(row.row) + 1, total,
                        fmt::format("{:.0f} tokens/s", capture.tokens_per_s()));
  }
  writer.close();
  writer.publish();
  Json json = counts(capture, total, job.account.rejected).set("text", job.account.to_json()).set("path", dir.string());
  invocation.log(fmt::format("{} rows, {} void, {} tokens at {:.1f} tokens/s", total, job.account.rejected,
                             capture.tokens(), capture.tokens_per_s()));
  invocation.result(invocation.json_output() ? json.dump() : dir.string());
  return 0;
}

stream::ProducerOptions producer_options(app::Invocation& invocation, const stream::Contract& contract) {
  const tool::ProducerSettings asked = tool::apply_producer(invocation.settings(), invocation.has("handle-file"));
  stream::ProducerOptions options;
  options.contract = contract;
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

int to_stream(app::Invocation& invocation, Job& job) {
  stream::ProducerOptions options = producer_options(invocation, job.contract);
  bool by_file = invocation.has("handle-file");
  if (by_file) tool::refuse_all_but_handle(invocation.get("handle-file"));
  check_first_rows(invocation, job);
  if (!by_file && is_pipe(STDOUT_FILENO)) options.life_fd = STDOUT_FILENO;
  uint64_t rows = job.contract.rows, seed = job.contract.order_seed;
  Capture& capture = job.capture;
  stream::Producer producer(options, [&](uint64_t position) {
    return capture.sample_of(job.rows[stream::place_of(position, rows, seed).row]);
  });
  if (by_file)
    stream::write_handle_file(invocation.get("handle-file"), producer.handle());
  else
    invocation.result(producer.handle().to_json().dump());
  stream::Ending ending = producer.serve([&] { return invocation.stop() != app::Stop::kNone; });
  if (by_file) stream::remove_handle_file(invocation.get("handle-file"), producer.handle().id);
  invocation.log(producer.explain());
  stream::ProducerCounts done = producer.counts();
  std::string summary =
      fmt::format("{} samples sent ({} void, {} from the cache), {} tokens computed at {:.1f} tokens/s; {}", done.sent,
                  done.voids, done.cached, capture.tokens(), capture.tokens_per_s(), stream::message_of(ending));
  // An error is told as one, which -q does not silence.
  if (Exit exit = stream::exit_of(ending); exit != Exit::kOk) fail(exit, "{}", summary);
  invocation.log(summary);
  return 0;
}

int capture_features(app::Invocation& invocation) {
  if (invocation.has("synthetic")) return tool::synthetic_features(invocation);
  SF_CHECK(!invocation.has("n"), Exit::kUsage, "--n counts rows of --synthetic; give both");
  bool to_dir = invocation.has("output");
  SF_CHECK(invocation.has("data") != invocation.has("import"), Exit::kUsage,
           "give the rows once: --data FILE, or --import DIR of features that another tool captured");
  if (to_dir) tool::refuse_existing(invocation.get("output"));
  SF_CHECK(to_dir || invocation.has("handle-file") || !nobody_reads(STDOUT_FILENO), Exit::kUsage,
           "the stream's handle goes to standard output, which is a terminal or a device that no trainer reads; pipe "
           "into sf-train, or give --handle-file FILE or -o DIR");
  Job job = prepare(invocation);
  if (!job.imported) tool::write_rejected(invocation, job.rows, tool::rejected_file(invocation));
  return to_dir ? to_directory(invocation, job) : to_stream(invocation, job);
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_capture_features(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::capture_features(*invocation); });
}
