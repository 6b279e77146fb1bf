// SPDX-License-Identifier: Apache-2.0
#include "gen/local_sampler.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/json.h"

namespace sf::gen {
namespace {

constexpr Seconds kSlowest{24 * 3600};  // from the first rank that has its answers to the last
constexpr Seconds kCompare{600};

void append(std::string& bytes, const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  for (int64_t size : flat.sizes()) bytes += std::to_string(size) + ' ';
  bytes.append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
}

// A completion as numbers: prompt, how it ended, tokens, their ids, their log-probabilities or none.
void write(const Completion& completion, size_t prompt, std::vector<double>& to) {
  to.push_back(static_cast<double>(prompt));
  to.push_back(static_cast<double>(completion.finish));
  to.push_back(static_cast<double>(completion.ids.size()));
  to.insert(to.end(), completion.ids.begin(), completion.ids.end());
  std::vector<double> log_probs = completion.token_log_probs;
  log_probs.resize(completion.ids.size(), 0);
  to.insert(to.end(), log_probs.begin(), log_probs.end());
}

Completion read(std::span<const double>& from) {
  Completion completion{.prompt = static_cast<size_t>(from[0]), .finish = static_cast<Finish>(from[1])};
  const auto count = static_cast<size_t>(from[2]);
  for (double id : from.subspan(3, count)) completion.ids.push_back(static_cast<int32_t>(id));
  const std::span<const double> log_probs = from.subspan(3 + count, count);
  completion.token_log_probs.assign(log_probs.begin(), log_probs.end());
  from = from.subspan(3 + 2 * count);
  return completion;
}

std::vector<double> from_all(comm::Group& group, const std::vector<double>& mine) {
  std::vector<size_t> sizes(static_cast<size_t>(group.world()));
  const size_t own = mine.size() * sizeof(double);
  const std::vector<size_t> one(sizes.size(), sizeof own);
  group.all_gather(std::as_bytes(std::span(&own, 1)), one, std::as_writable_bytes(std::span(sizes)),
                   {"the slowest rank's answers", Deadline::after(kSlowest)});
  std::vector<double> all(std::accumulate(sizes.begin(), sizes.end(), size_t{0}) / sizeof(double));
  group.all_gather(std::as_bytes(std::span(mine)), sizes, std::as_writable_bytes(std::span(all)),
                   {"answers", Deadline::after(kCompare)});
  return all;
}

}  // namespace

std::string digest_of(const LiveAdapter& adapter) {
  std::string bytes;
  for (const auto& [name, factors] : adapter) {
    bytes += name + ' ' + double_text(factors.scale) + ' ';
    append(bytes, factors.a);
    append(bytes, factors.b);
  }
  return sha256_hex(bytes);
}

void LocalSampler::adopt(int64_t version, const LiveAdapter& adapter, const std::string& wanted) {
  if (version_ < 0 || !fault("gen.stale_adapter")) {
    model_.adapt(adapter);
    version_ = version;
    digest_ = digest_of(adapter);
  }
  struct Held {
    int64_t version = 0;
    std::array<char, 64> digest{};
  };
  Held mine{version_};
  std::copy_n(digest_.begin(), std::min(digest_.size(), mine.digest.size()), mine.digest.begin());
  std::vector<Held> all(static_cast<size_t>(group_.world()));
  group_.all_gather(std::as_bytes(std::span(&mine, 1)), std::vector<size_t>(all.size(), sizeof mine),
                    std::as_writable_bytes(std::span(all)), {"digests of samplers", Deadline::after(kCompare)});
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string_view found(all[rank].digest.data(), all[rank].digest.size());
    SF_CHECK(all[rank].version == version && found == wanted, Exit::kProtocol,
             "the sampler of rank {} holds adapter {} ({:.16}), the trainer published {} ({:.16})", rank,
             all[rank].version, found, version, wanted);
  }
}

std::vector<Completion> LocalSampler::answer(std::span<const Prompt> prompts, const GenerateOptions& options) {
  const auto world = static_cast<size_t>(group_.world());
  std::vector<Prompt> own;
  for (auto i = static_cast<size_t>(group_.rank()); i < prompts.size(); i += world) own.push_back(prompts[i]);
  std::vector<double> numbers;
  if (!own.empty())
    generate(model_, own, options, [&](const Completion& done) {
      write(done, done.prompt * world + static_cast<size_t>(group_.rank()), numbers);
    });
  const std::vector<double> all = from_all(group_, numbers);
  std::vector<Completion> completions;
  for (std::span<const double> rest(all); !rest.empty();) completions.push_back(read(rest));
  std::ranges::sort(completions, {}, &Completion::prompt);
  return completions;
}

}  // namespace sf::gen
