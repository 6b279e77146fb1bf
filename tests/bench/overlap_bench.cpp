// SPDX-License-Identifier: Apache-2.0
// Does a thread for collective calls pay? Two processes of one thread each train a chain of square layers, once for
// each prefetch depth in turn; medians of a window's seconds and of CPU seconds, of rank 0. usage: overlap_bench
// [WIDTH=768] [LAYERS=12] [ROWS=256] [WINDOWS=15]
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>

#include "app/supervisor.h"
#include "engine/engine.h"
#include "tensor/memory.h"
#include "tensor/threads.h"

namespace sf {
namespace {

struct Shape3 {
  int64_t width = 768, layers = 12, rows = 256, windows = 15;
};

double cpu_s() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::unique_ptr<engine::Engine> make_engine(comm::Group& group, const Shape3& shape, int prefetch) {
  arch::ModelSpec spec;
  std::vector<model::Segment> segments;
  for (int64_t s = 0; s < shape.layers; ++s) {
    std::string name = fmt::format("w{}", s), in = fmt::format("h{}", s), out = fmt::format("h{}", s + 1);
    bool last = s + 1 == shape.layers;
    spec.parameters.push_back({name, {4 * shape.width, shape.width}, true, ""});
    segments.push_back(
        {name, {name}, {in}, {last ? "loss" : out}, [=](const model::Tensors& p, const model::Tensors& b) {
           at::Tensor wide = at::tanh(at::linear(b.at(in), p.at(name)));
           at::Tensor h = at::linear(wide, p.at(name).t());
           return model::Tensors{{last ? "loss" : out, last ? h.pow(2).mean() : h}};
         }});
  }
  auto engine = std::make_unique<engine::Engine>(
      group, spec, segments,
      engine::EngineOptions{.schedule = {.reshard = plan::Reshard::kFull, .prefetch = prefetch}});
  for (const auto& parameter : spec.parameters) {
    engine->load(parameter.name, [](int64_t lo, int64_t, std::span<float> to) {
      for (size_t i = 0; i < to.size(); ++i)
        to[i] = 0.01f * static_cast<float>((static_cast<size_t>(lo) + i) % 7) - 0.03f;
    });
  }
  return engine;
}

int bench(comm::Group& group, const Shape3& shape) {
  tensor::install_allocator();
  tensor::set_threads(1);
  const std::vector<int> depths{0, 1, 2};
  std::vector<std::unique_ptr<engine::Engine>> engines;
  std::vector<std::vector<double>> wall(depths.size()), cpu(depths.size()), exposed(depths.size());
  for (int depth : depths) engines.push_back(make_engine(group, shape, depth));
  model::Tensors input{{"h0", at::randn({shape.rows, shape.width})}};
  for (int64_t window = 0; window < shape.windows; ++window) {
    for (size_t i = 0; i < depths.size(); ++i) {
      double start = monotonic_s(), cpu_start = cpu_s();
      engines[i]->round(input, "loss", {});
      engines[i]->step(1e-4, 1.0, {});
      if (window < 2) continue;
      wall[i].push_back(monotonic_s() - start);
      cpu[i].push_back(cpu_s() - cpu_start);
      exposed[i].push_back(engines[i]->take_times().communication);
    }
  }
  for (size_t i = 0; i < depths.size() && group.rank() == 0; ++i) {
    fmt::print("prefetch {}: step {:.3f} s, cpu {:.3f} s, communication exposed {:.3f} s (n = {})\n", depths[i],
               median(wall[i]), median(cpu[i]), median(exposed[i]), wall[i].size());
  }
  return 0;
}

}  // namespace
}  // namespace sf

int main(int argc, char** argv) {
  sf::Shape3 shape;
  int64_t* fields[] = {&shape.width, &shape.layers, &shape.rows, &shape.windows};
  for (int i = 1; i < argc && i <= 4; ++i) *fields[i - 1] = std::atoll(argv[i]);
  return sf::app::supervise(2,
                            [&](int rank, int fd) {
                              auto group = sf::comm::make_shm(fd, rank, 2);
                              int status = sf::bench(*group, shape);
                              std::fflush(stdout);
                              return status;
                            },
                            {sf::Seconds(10), [](std::string_view line) { fmt::print(stderr, "{}\n", line); }});
}
