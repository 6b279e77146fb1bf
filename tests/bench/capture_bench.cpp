// SPDX-License-Identifier: Apache-2.0
// usage: capture_bench forward TARGET fp32|bf16 THREADS TOKENS   capture's forward beside the best product of this run
//        capture_bench write FOLDER MIB REPEAT                   a directory of features beside plain writes, in turn
//        capture_bench fp8 REPEAT                                e4m3 encoding, one core
// One JSON line. Speeds are lists, one number a repeat.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/deadline.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "ckpt/checkpoint.h"
#include "gen/target.h"
#include "ops/float8.h"
#include "ops/packed_linear.h"
#include "stream/feature_dir.h"
#include "tensor/convert.h"
#include "tensor/threads.h"

namespace {

namespace fs = std::filesystem;
using namespace sf;

double seconds(const std::function<void()>& work) {
  const double start = monotonic_s();
  work();
  return monotonic_s() - start;
}

int64_t number(const char* text) {
  return std::stoll(text);
}

Json list(const std::vector<double>& values) {
  Json out = Json::array();
  for (double value : values) out.push(value);
  return out;
}

// Best of several products of `tokens` rows, by LibTorch and by our kernel: what this machine gives in this run.
double product_gflops(int64_t tokens, Dtype compute) {
  constexpr int64_t kWide = 2048;
  const at::Tensor x = at::randn({tokens, kWide}).to(tensor::to_scalar(compute));
  const at::Tensor w = at::randn({kWide, kWide}).to(tensor::to_scalar(compute));
  const ops::PackedLinear packed = ops::PackedLinear::pack(w, compute);
  double best = 1e9;
  for (int i = 0; i < 12; ++i) {
    best = std::min(best, seconds([&] { (void)packed.apply(x); }));
    if (i < 4) best = std::min(best, seconds([&] { (void)at::matmul(x, w); }));
  }
  return 2e-9 * static_cast<double>(tokens * kWide * kWide) / best;
}

// The products of the blocks, and those of attention's scores and sums; no head: capture asks for none.
double forward_flops(const arch::Decoder& d, int64_t tokens) {
  const auto h = static_cast<double>(d.hidden), n = static_cast<double>(tokens);
  const double q = static_cast<double>(d.heads * d.head_dim), kv = static_cast<double>(d.kv_heads * d.head_dim);
  const double block = h * (2 * q + 2 * kv) + 3 * h * static_cast<double>(d.intermediate);
  return static_cast<double>(d.layers) * (2 * n * block + 2 * n * n * q);  // causal: half of 4 n n q
}

int forward(const fs::path& dir, Dtype compute, int64_t threads, int64_t tokens) {
  tensor::set_threads(static_cast<int>(threads));
  const ckpt::Checkpoint files = ckpt::Checkpoint::open(dir);
  const double mapped = monotonic_s();
  gen::Target target = gen::Target::load(files, compute);
  const double loaded = monotonic_s();
  const Rng rng(1, "bench");
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i)
    ids.push_back(
        static_cast<int32_t>(rng.below(static_cast<uint64_t>(target.decoder().vocab), static_cast<uint64_t>(i))));
  const int64_t layers[] = {2, target.decoder().layers / 2, target.decoder().layers - 3};
  auto once = [&] {
    gen::Cache cache = target.make_cache(tokens);
    (void)target.prefill(cache, ids, layers);
  };
  const double first = seconds(once);
  std::vector<double> speeds, peaks, shares;
  for (int i = 0; i < 5; ++i) {
    peaks.push_back(product_gflops(tokens, compute));
    const double time = seconds(once);
    speeds.push_back(static_cast<double>(tokens) / time);
    shares.push_back(1e-9 * forward_flops(target.decoder(), tokens) / time / peaks.back());
  }
  fmt::print("{}\n", Json::object()
                         .set("tokens_per_s", list(speeds))
                         .set("gemm_gflops", list(peaks))
                         .set("share", list(shares))
                         .set("load_s", loaded - mapped)
                         .set("first_sample_s", loaded - mapped + first)
                         .dump());
  return 0;
}

void forget_pages(const fs::path& dir) {
  for (const auto& item : fs::directory_iterator(dir)) {
    const UniqueFd fd = open_read(item.path());
    (void)posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

// MB/s of reading a directory that is not in memory, with and without asking `ahead` positions before.
double read_speed(const fs::path& dir, uint64_t ahead) {
  forget_pages(dir);
  auto source = stream::DirSource::open(dir, stream::Contract{});
  size_t bytes = 0;
  const double time = seconds([&] {
    for (uint64_t p = 0; p < source->present(); ++p) {
      std::vector<uint64_t> soon;
      for (uint64_t next = p + 1; next <= p + ahead && next < source->present(); ++next) soon.push_back(next);
      source->want(soon);
      bytes += source->get(p, Deadline::after_ms(60'000)).bytes();
    }
  });
  return static_cast<double>(bytes) / 1e6 / time;
}

int write(const fs::path& folder, int64_t mib, int64_t repeat) {
  constexpr int64_t kTokens = 2048, kWidth = 16384;  // 67 MB of BF16
  stream::Contract contract;
  contract.rows = static_cast<uint64_t>(std::max<int64_t>(1, mib * (1 << 20) / (kTokens * kWidth * 2)));
  HostTensor states(Dtype::kBF16, {kTokens, kWidth});
  const Rng rng(2, "bench");
  for (size_t i = 0; i < states.as<uint64_t>().size(); ++i) states.as<uint64_t>()[i] = rng.bits(i);
  std::vector<double> ours, plain, asked, unasked;
  for (int64_t r = 0; r < repeat; ++r) {
    const double bytes = static_cast<double>(contract.rows * states.bytes()) / 1e6;
    const fs::path dir = folder / fmt::format("features{}", r), file = folder / fmt::format("plain{}", r);
    ours.push_back(bytes / seconds([&] {
                     stream::FeatureWriter writer(dir, contract, 0, "bench");
                     for (uint64_t row = 0; row < contract.rows; ++row) {
                       stream::Sample sample{.row = row};
                       sample.tensors.push_back({"hidden_states", states});
                       writer.add(sample);
                     }
                     writer.publish();
                   }));
    plain.push_back(bytes / seconds([&] {
                      UniqueFd fd = create_file(file);
                      for (uint64_t row = 0; row < contract.rows; ++row)
                        write_all(fd.get(), {reinterpret_cast<const char*>(states.data()), states.bytes()}, file);
                      if (fsync(fd.get()) != 0) std::abort();
                    }));
    asked.push_back(read_speed(dir, 2));
    unasked.push_back(read_speed(dir, 0));
    fs::remove_all(dir);
    fs::remove(file);
  }
  fmt::print("{}\n", Json::object()
                         .set("ours", list(ours))
                         .set("plain", list(plain))
                         .set("read_ahead", list(asked))
                         .set("read", list(unasked))
                         .dump());
  return 0;
}

int float8(int64_t repeat) {
  constexpr size_t kWidth = 4096, kTokens = 2048;
  std::vector<float> states(kWidth * kTokens);
  const Rng rng(3, "bench");
  for (size_t i = 0; i < states.size(); ++i) states[i] = rng.normal(0, i);
  std::vector<uint8_t> bytes(states.size());
  std::vector<double> speeds;
  for (int64_t r = 0; r < repeat; ++r)
    speeds.push_back(1e-9 * static_cast<double>(states.size() * sizeof(float)) / seconds([&] {
                       for (size_t t = 0; t < kTokens; ++t)
                         ops::to_e4m3({states.data() + t * kWidth, kWidth}, {bytes.data() + t * kWidth, kWidth});
                     }));
  fmt::print("{}\n", Json::object().set("gb_per_s", list(speeds)).dump());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "forward" && argc == 6)
    return forward(argv[2], *dtype_from_config(argv[3]), number(argv[4]), number(argv[5]));
  if (what == "write" && argc == 5) return write(argv[2], number(argv[3]), number(argv[4]));
  if (what == "fp8" && argc == 3) return float8(number(argv[2]));
  return 64;
}
