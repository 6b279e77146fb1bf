// SPDX-License-Identifier: Apache-2.0
// usage: stream_bench SAMPLES TOKENS STEP_MS plain|encrypted: one producer, one trainer rank, two processes, tcp over
// loopback. Distinct samples of TOKENS rows of 16,384 BF16 values, all in memory before the clock starts; each is sent
// once, in chunks of 1 MiB with XXH3 on both sides, and put together. The rank spends STEP_MS with each. Prints GB/s
// and the part of the time behind the first sample in which it waited.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/rng.h"
#include "stream/client.h"
#include "stream/producer.h"

namespace {

using namespace sf;
using namespace sf::stream;

constexpr int64_t kWidth = 16384;  // three captured layers and the last of 4,096 each

Sample made(uint64_t row, int64_t tokens) {
  Sample sample{.row = row};
  HostTensor states(Dtype::kBF16, {tokens, kWidth});
  auto* words = reinterpret_cast<uint64_t*>(states.data());
  const size_t count = states.bytes() / sizeof(uint64_t);
  for (size_t i = 0; i < count; ++i) words[i] = (row * count + i) * 0x9e3779b97f4a7c15u;
  sample.tensors.push_back({"hidden_state", std::move(states)});
  return sample;
}

int produce(int to, uint64_t count, int64_t tokens, bool encrypted) {
  std::vector<Sample> samples;
  for (uint64_t row = 0; row < count; ++row) samples.push_back(made(row, tokens));
  ProducerOptions options;
  options.contract.rows = count;
  options.contract.layers = {"2", "18", "33", "final_norm"};
  options.contract.hidden = kWidth / 4;
  options.contract.max_length = tokens;
  options.contract.feature_dtype = "BF16";
  options.cache_bytes = 0;
  options.encrypt = encrypted;
  Producer producer(options, [&](uint64_t position) {
    return samples[place_of(position, count, options.contract.order_seed).row];  // shares its bytes
  });
  std::string line = producer.handle().line();
  if (::write(to, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return 74;
  return static_cast<int>(exit_of(producer.serve([] { return false; })));
}

void train(int from, uint64_t count, int step_ms) {
  auto source = StreamSource::connect(read_handle(from, Deadline::after_ms(600000)).line(), {});
  double begin = monotonic_s(), bytes = 0, steady = begin, first_wait = 0;
  for (uint64_t position = 0; position < count; ++position) {
    std::vector<uint64_t> ahead;
    for (uint64_t next = position; next < std::min(count, position + 8); ++next) ahead.push_back(next);
    source->want(ahead);
    Sample sample = source->get(position, Deadline::after_ms(60000));
    bytes += static_cast<double>(sample.bytes());
    if (position == 0) steady = monotonic_s(), first_wait = source->counts().waited_s;
    if (step_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(step_ms));
    source->trained(position + 1);
  }
  double seconds = monotonic_s() - begin;
  StreamCounts counts = source->counts();
  source->finish();
  fmt::print("{{\"gb_per_s\": {:.4f}, \"waits\": {:.5f}, \"sample_mb\": {:.1f}}}\n", bytes / 1e9 / seconds,
             (counts.waited_s - first_wait) / (begin + seconds - steady), bytes / 1e6 / static_cast<double>(count));
}

// The status of a side; an error is told with its side.
int guarded(const char* side, const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {} ({})\n", side, error.what(), static_cast<int>(error.code()));
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", side, error.what());
    return 70;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 64;
  const auto count = static_cast<uint64_t>(std::atoll(argv[1]));
  const int64_t tokens = std::atoll(argv[2]);
  int ends[2];
  if (pipe(ends) != 0) return 71;
  pid_t child = fork();
  if (child == 0)
    _exit(guarded("producer", [&] { return produce(ends[1], count, tokens, std::strcmp(argv[4], "encrypted") == 0); }));
  close(ends[1]);
  const int trained = guarded("trainer", [&] {
    train(ends[0], count, std::atoi(argv[3]));
    return 0;
  });
  int status = 0;
  waitpid(child, &status, 0);
  const int produced = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (produced > 128) fmt::print(stderr, "producer: died of signal {}\n", produced - 128);
  return trained ? trained : produced;
}
