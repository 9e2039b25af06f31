// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What `rivulet bench` is asked to do. docs/benchmarking.md explains each setting to its user.
#ifndef RIVULET_CLIENT_CLI_BENCH_OPTIONS_H_
#define RIVULET_CLIENT_CLI_BENCH_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/commands.h"

namespace rivulet::cli::bench {

// A number of tokens, drawn uniformly from low to high, both included.
struct LengthRange {
  uint32_t low = 0;
  uint32_t high = 0;
  bool operator==(const LengthRange&) const = default;
};

// "512" or "128:1024"; each at least 1 and at most kMaxLength.
constexpr uint32_t kMaxLength = 10'000'000;
absl::StatusOr<LengthRange> ParseLengthRange(std::string_view text);
std::string ToString(const LengthRange& range);

enum class Arrival { kPoisson, kConstant };
absl::StatusOr<Arrival> ParseArrival(std::string_view text);
std::string ToString(Arrival arrival);

struct BenchOptions {
  CommonOptions common = {};
  std::string client_version = {};  // of this program, for the report

  // How much load. A rate of 0 is the closed loop: `concurrency` streams that are always busy.
  uint32_t concurrency = 1;
  double rate = 0;  // arrivals/s
  Arrival arrival = Arrival::kPoisson;
  uint64_t requests = 0;        // 0: no limit
  double duration_seconds = 0;  // 0: no limit, but 10 s when there is no limit on requests either
  double warmup_seconds = 0;
  double drain_seconds = 30;  // how long what runs at the end may take to finish
  uint32_t connections = 1;
  uint32_t max_in_flight = 10'000;  // arrivals over it are counted and not sent

  // What is asked for.
  LengthRange prompt_tokens{.low = 128, .high = 128};
  std::optional<LengthRange> output_tokens = {};  // default: see OutputTokens
  std::string prompt_file = {};                   // one prompt a line instead of random token ids
  std::optional<float> temperature = {};          // default: the checkpoint's
  uint64_t seed = 1;
  uint32_t turns = 0;  // 0: single requests; K: sessions of K turns

  // Of a prompt that is always being processed in a second phase; 0: no second phase.
  uint32_t interfere_prompt = 0;

  // Limits that a request must meet to count as good; 0: none.
  double slo_ttft_ms = 0;
  double slo_itl_ms = 0;
};

// What was asked for or its default: 128, or without end when streams have to run as long as the
// phases of --interfere-prompt do. Without end is kEndlessOutputTokens.
constexpr uint32_t kEndlessOutputTokens = 1'000'000;
LengthRange OutputTokens(const BenchOptions& options);
bool OutputsAreEndless(const BenchOptions& options);

// Seconds that each measured phase lasts at most.
double PhaseSeconds(const BenchOptions& options);

// INVALID_ARGUMENT for values, and pairs of them, that make no sense.
absl::Status Validate(const BenchOptions& options);

}  // namespace rivulet::cli::bench

#endif  // RIVULET_CLIENT_CLI_BENCH_OPTIONS_H_
