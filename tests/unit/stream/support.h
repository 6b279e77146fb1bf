// SPDX-License-Identifier: Apache-2.0
// What the tests of streams share: samples that are a pure function of the row, and a producer on its own thread.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/rng.h"
#include "stream/client.h"
#include "stream/producer.h"

namespace sf::stream {

inline Contract test_contract(uint64_t rows = 10) {
  Contract contract;
  contract.algorithm = "eagle3";
  contract.target = "t0";
  contract.tokenizer = "k0";
  contract.chat_template = "c0";
  contract.layers = {"2", "15", "27", "final_norm"};
  contract.feature_dtype = "F32";
  contract.compute_dtype = "F32";
  contract.vocab = 100;
  contract.hidden = 8;
  contract.max_length = 64;
  contract.rows = rows;
  contract.data = "d0";
  contract.order_seed = 7;
  contract.mask_rule = "turn";
  return contract;
}

// Row 4 is void; the others hold row-dependent bytes. `floats` sets the size of the float tensor.
inline Sample test_sample(const Contract& contract, uint64_t position, int64_t floats = 300) {
  Sample sample;
  sample.position = position;
  sample.row = place_of(position, contract.rows, contract.order_seed).row;
  if (sample.row == 4) {
    sample.void_reason = "no supervised token";
    return sample;
  }
  Rng rng(1, "stream test");
  HostTensor ids(Dtype::kI32, {5 + static_cast<int64_t>(sample.row)});
  for (size_t i = 0; i < ids.as<int32_t>().size(); ++i)
    ids.as<int32_t>()[i] = static_cast<int32_t>(rng.below(100, sample.row, i));
  HostTensor state(Dtype::kF32, {floats, 1});
  for (size_t i = 0; i < state.as<float>().size(); ++i)
    state.as<float>()[i] = static_cast<float>(sample.row) + static_cast<float>(i) / 3;
  sample.tensors.push_back({"input_ids", ids});
  sample.tensors.push_back({"hidden_state", state});
  return sample;
}

// A producer that serves on its own thread until it ends or stop() is called.
class ProducerThread {
 public:
  ProducerThread(ProducerOptions options, Producer::Compute compute)
      : producer_(std::move(options), std::move(compute)) {
    start();
  }
  ProducerThread(ProducerOptions options, Producer::ComputeMany compute, size_t most)
      : producer_(std::move(options), std::move(compute), most) {
    start();
  }
  void start() {
    thread_ = std::thread([this] {
      try {
        ending_ = producer_.serve([this] { return stop_.load(); });
      } catch (const Error& error) {
        error_ = error.what();
      }
      done_ = true;
    });
  }
  ~ProducerThread() {
    stop();
    if (thread_.joinable()) thread_.join();
  }
  std::string handle() const { return producer_.handle().line(); }
  ProducerCounts counts() const { return producer_.counts(); }
  void stop() { stop_ = true; }
  bool done() const { return done_; }
  std::optional<Ending> join() {
    thread_.join();
    return ending_;
  }
  const std::string& error() const { return error_; }

 private:
  std::atomic<bool> stop_{false}, done_{false};
  Producer producer_;
  std::optional<Ending> ending_;
  std::string error_;
  std::thread thread_;
};

inline ProducerOptions quick_producer(const Contract& contract) {
  ProducerOptions options;
  options.contract = contract;
  options.heartbeat_s = 0.05;
  options.silent_s = 1;
  options.stop_s = 0.3;
  options.join_s = 5;
  options.rejoin_s = 0;
  options.code = "test";
  return options;
}

inline StreamOptions quick_trainer(int rank = 0, int world = 1) {
  StreamOptions options;
  options.rank = rank;
  options.world = world;
  options.heartbeat_s = 0.05;
  options.silent_s = 1;
  options.retry_s = 5;
  options.connect_s = 5;
  options.finish_s = 2;
  options.code = "test";
  return options;
}

inline Deadline soon() {
  return Deadline::after_ms(5000);
}

inline Exit code_of(const std::function<void()>& body, std::string* message = nullptr) {
  try {
    body();
  } catch (const Error& error) {
    if (message) *message = error.what();
    return error.code();
  }
  return Exit::kOk;
}

// A fresh directory, removed with the object.
class TemporaryDir {
 public:
  TemporaryDir() {
    std::string form = (std::filesystem::temp_directory_path() / "sf-stream-XXXXXX").string();
    path_ = mkdtemp(form.data());
  }
  ~TemporaryDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Sets SF_FAULT for a scope: the guard under test must notice.
class Fault {
 public:
  explicit Fault(const char* name) {
    if (const char* old = std::getenv("SF_FAULT")) old_ = old;
    setenv("SF_FAULT", name, 1);
  }
  ~Fault() { old_.empty() ? unsetenv("SF_FAULT") : setenv("SF_FAULT", old_.c_str(), 1); }

 private:
  std::string old_;
};

}  // namespace sf::stream
