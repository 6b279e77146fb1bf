// SPDX-License-Identifier: Apache-2.0
// sf-capture features: chats -> the target's states, by position: streamed to trainers, or as a directory.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/hash.h"
#include "comm/agree.h"
#include "run/capture_job.h"
#include "run/entry.h"
#include "stream/feature_dir.h"
#include "tool/chats.h"
#include "tool/outputs.h"
#include "tool/synthetic.h"
#include "tool/target_settings.h"

namespace sf::run {
namespace {

namespace fs = std::filesystem;

// A row is known by its ids and mask: under one contract its sample is a function of them.
uint64_t content_of(std::span<const int32_t> ids, std::span<const uint8_t> mask) {
  Xxh3 hash;
  hash.update(std::as_bytes(ids));
  hash.update(std::as_bytes(mask));
  return hash.digest();
}

class ByContent {
 public:
  // Rows with what these are, of those that were added; more than one may have one content.
  std::vector<const text::ChatRow*> find(std::span<const int32_t> ids, std::span<const uint8_t> mask) const {
    std::vector<const text::ChatRow*> found;
    auto [begin, end] = rows_.equal_range(content_of(ids, mask));
    for (auto it = begin; it != end; ++it) {
      const text::EncodedChat& chat = it->second->encoded;
      if (std::ranges::equal(chat.ids, ids) && std::ranges::equal(chat.loss_mask, mask)) found.push_back(it->second);
    }
    return found;
  }
  void add(const text::ChatRow& row) { rows_.emplace(content_of(row.encoded.ids, row.encoded.loss_mask), &row); }

 private:
  std::multimap<uint64_t, const text::ChatRow*> rows_;
};

// Rows to capture: one of each content, and the others that are what it is.
struct Distinct {
  std::vector<const text::ChatRow*> first;
  std::map<uint64_t, std::vector<const text::ChatRow*>> further;  // by the number of the first
  size_t repeated = 0;

  // All that `some` of the first stand for.
  int64_t count(std::span<const text::ChatRow* const> some) const {
    int64_t all = std::ssize(some);
    for (const text::ChatRow* row : some)
      if (auto same = further.find(row->row); same != further.end()) all += std::ssize(same->second);
    return all;
  }
};

Distinct distinct(const std::vector<text::ChatRow>& rows, const stream::FeatureWriter& writer) {
  Distinct result;
  ByContent known;
  for (const text::ChatRow& row : rows) {
    if (writer.has(row.row)) continue;
    const auto same =
        row.rejected.empty() ? known.find(row.encoded.ids, row.encoded.loss_mask) : std::vector<const text::ChatRow*>();
    if (same.empty()) {
      result.first.push_back(&row);
      if (row.rejected.empty()) known.add(row);
    } else {
      result.further[same.front()->row].push_back(&row);
      ++result.repeated;
    }
  }
  return result;
}

// Whole samples of another directory, every hash compared, under the numbers that their rows have here.
void take_over(app::Invocation& invocation, const CaptureJob& job, const stream::DirSource& source,
               stream::FeatureWriter& writer) {
  const std::vector<uint64_t> positions = stream::first_positions(job.contract.rows, job.contract.order_seed);
  ByContent wanted;
  for (const text::ChatRow& row : job.rows)
    if (row.rejected.empty() && !writer.has(row.row)) wanted.add(row);
  uint64_t taken = 0;
  for (uint64_t i = 0; i < source.present(); ++i) {
    stream::Sample sample = source.row_at(i);
    if (sample.void_reason) continue;
    for (const text::ChatRow* row :
         wanted.find(sample.at("input_ids").as<int32_t>(), sample.at("loss_mask").as<uint8_t>())) {
      if (writer.has(row->row)) continue;
      sample.row = row->row;
      sample.position = positions[row->row];
      writer.add(sample);
      ++taken;
    }
  }
  writer.close();
  invocation.log(fmt::format("{} of {} rows are taken from {}", taken, job.rows.size(), invocation.get("reuse")));
}

// Rank 0 has looked over what an earlier run left before others look at it, and nobody writes before all have looked.
std::unique_ptr<stream::FeatureWriter> open_writer(app::Invocation& invocation, const CaptureJob& job) {
  const fs::path dir = invocation.get("output");
  const comm::Call call = job.passes().call("rows that are there");
  std::unique_ptr<stream::FeatureWriter> writer;
  auto open = [&] {
    writer = std::make_unique<stream::FeatureWriter>(dir, job.contract, job.group->rank(), invocation.command_line(),
                                                     stream::Others::kDone);
  };
  on_first_rank(*job.group, "features " + dir.string(), [&] {
    const std::unique_ptr<stream::DirSource> reused = tool::open_reused(invocation, job.contract);
    open();
    if (reused) take_over(invocation, job, *reused, *writer);
  });
  comm::agree(*job.group, call, [&] {
    if (!job.first()) open();
  });
  std::array<int64_t, 1> there{static_cast<int64_t>(writer->rows())};
  job.group->all_reduce_sum(there, call);
  SF_CHECK(there[0] == static_cast<int64_t>(writer->rows()) * job.group->world(), Exit::kCantCreate,
           "{} is not the same directory on every rank; choose an -o on a file system that they share", dir.string());
  return writer;
}

bool any_is_stopped(app::Invocation& invocation, const Passes& passes) {
  std::array<int64_t, 1> asked{invocation.stop() != app::Stop::kNone};
  passes.group().all_reduce_sum(asked, passes.call("a request to stop"));
  return asked[0] > 0;
}

bool nobody_reads(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISCHR(info.st_mode);
}

int capture_features(app::Invocation& invocation) {
  const bool to_dir = invocation.has("output"), first = invocation.ranks().rank == 0;
  if (invocation.has("synthetic")) return tool::synthetic_features(invocation);
  SF_CHECK(!invocation.has("n"), Exit::kUsage, "--n counts rows of --synthetic; give both");
  SF_CHECK(invocation.has("data") != invocation.has("import"), Exit::kUsage,
           "give the rows once: --data FILE, or --import DIR of features that another tool captured");
  if (to_dir) tool::refuse_existing(invocation.get("output"));
  SF_CHECK(to_dir || invocation.has("handle-file") || !first || !nobody_reads(STDOUT_FILENO), Exit::kUsage,
           "the stream's handle goes to standard output, which is a terminal or a device that no trainer reads; pipe "
           "into sf-train, or give --handle-file FILE or -o DIR");
  CaptureJob job = open_capture(invocation);
  if (!job.imported)
    on_first_rank(*job.group, "rejected rows",
                  [&] { tool::write_rejected(invocation, job.rows, tool::rejected_file(invocation)); });
  return to_dir ? capture_to_directory(invocation, job) : capture_to_stream(invocation, job);
}

}  // namespace

int capture_to_directory(app::Invocation& invocation, CaptureJob& job) {
  const fs::path dir = invocation.get("output");
  tool::apply_no_stream(invocation.settings());
  check_first_rows(invocation, job, {});
  invocation.stop();  // from here on a request to stop keeps the rows that are finished
  const std::vector<uint64_t> positions = stream::first_positions(job.contract.rows, job.contract.order_seed);
  const std::unique_ptr<stream::FeatureWriter> writer = open_writer(invocation, job);
  Passes passes = job.passes();
  const auto total = std::ssize(job.rows);
  const Distinct rows = distinct(job.rows, *writer);
  if (rows.repeated > 0)
    invocation.log(
        fmt::format("{} of {} rows are what an earlier one is: each is captured once", rows.repeated, total));
  auto keep = [&](size_t, stream::Sample sample) {
    auto same = rows.further.find(sample.row);
    sample.position = positions[sample.row];
    writer->add(sample);
    if (same == rows.further.end()) return;
    for (const text::ChatRow* row : same->second) {
      sample.row = row->row;
      sample.position = positions[row->row];
      writer->add(sample);
    }
  };
  for (std::span<const text::ChatRow* const> rest = rows.first; !rest.empty();) {
    if (any_is_stopped(invocation, passes)) {
      writer->close();
      invocation.log(fmt::format("stopped; {} of {} rows are kept", total - rows.count(rest), total));
      return static_cast<int>(Exit::kAgain);
    }
    rest = rest.subspan(passes.run(rest, keep));
    invocation.progress("features", total - rows.count(rest), total,
                        fmt::format("{:.0f} tokens/s", passes.tokens_per_s()));
  }
  comm::agree(*job.group, passes.call("closed shards"), [&] { writer->close(); });
  on_first_rank(*job.group, "features " + dir.string(), [&] { writer->publish(); });
  Json json = Json::object().set("rows", total).set("voids", job.account.rejected).set("tokens", passes.tokens());
  json.set("tokens_per_s", passes.tokens_per_s()).set("text", job.account.to_json()).set("path", dir.string());
  tell_memory(invocation, job, &json);
  invocation.log(fmt::format("{} rows, {} void, {} tokens at {:.1f} tokens/s", total, job.account.rejected,
                             passes.tokens(), passes.tokens_per_s()));
  if (job.first()) invocation.result(invocation.json_output() ? json.dump() : dir.string());
  return 0;
}

}  // namespace sf::run

extern "C" int sf_capture_features(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::capture_features(*invocation); });
}
