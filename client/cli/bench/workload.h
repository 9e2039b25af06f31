// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What is sent and when, as functions of the seed: two runs with the same options send the same
// requests, regardless of what the server does.
#ifndef RIVULET_CLIENT_CLI_BENCH_WORKLOAD_H_
#define RIVULET_CLIENT_CLI_BENCH_WORKLOAD_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench/options.h"
#include "rivulet/v1/inference.pb.h"

namespace rivulet::cli::bench {

// SplitMix64: small, and unlike std's distributions the same on every platform.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // Uniform over low to high, both included.
  uint32_t Between(uint32_t low, uint32_t high);
  // Uniform over [0, 1).
  double Fraction();

 private:
  uint64_t state_;
};

// The gaps between arrivals of an open loop.
class ArrivalProcess {
 public:
  // `rate` is in arrivals/s and over 0.
  ArrivalProcess(Arrival arrival, double rate, uint64_t seed);
  std::chrono::nanoseconds NextGap();

 private:
  const Arrival arrival_;
  const double rate_;
  Random random_;
};

class Workload {
 public:
  // Fails if the prompt file cannot be read or has no prompt, or if there is neither a prompt file
  // nor a vocabulary to draw ids from.
  static absl::StatusOr<Workload> Make(const BenchOptions& options, uint32_t vocabulary);

  // The request of turn `turn` (from 0) of job `job`. Its min_tokens is its max_tokens and EOS is
  // ignored, so that its length is exact.
  v1::GenerateRequest MakeRequest(uint64_t job, uint32_t turn) const;

  // A prompt of `length` random ids for which one token is generated.
  v1::GenerateRequest MakeInterferingRequest(uint64_t number, uint32_t length) const;

 private:
  Workload() = default;
  void FillRandomPrompt(uint32_t length, Random& random, v1::GenerateRequest& request) const;

  uint64_t seed_ = 0;
  uint32_t turns_ = 1;
  uint32_t vocabulary_ = 0;
  LengthRange prompt_tokens_;
  LengthRange output_tokens_;
  std::optional<float> temperature_;
  std::vector<std::string> prompts_;
};

}  // namespace rivulet::cli::bench

#endif  // RIVULET_CLIENT_CLI_BENCH_WORKLOAD_H_
