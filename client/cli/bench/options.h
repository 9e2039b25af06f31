// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// `rivulet bench`, which puts load on a server and reports what its clients measure, and its
// options. docs/benchmarking.md explains them.
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

  // The load. A rate of 0 means the closed loop: `concurrency` streams that are always busy.
  uint32_t concurrency = 1;
  double rate = 0;  // arrivals/s
  Arrival arrival = Arrival::kPoisson;
  uint64_t requests = 0;        // 0: no limit
  double duration_seconds = 0;  // 0: no limit, or 10 s if `requests` has none either
  double warmup_seconds = 0;
  double drain_seconds = 30;  // time for requests that run at the end to finish
  uint32_t connections = 1;
  uint32_t max_in_flight = 10'000;  // further arrivals are counted but not sent

  // The requests.
  LengthRange prompt_tokens{.low = 128, .high = 128};
  std::optional<LengthRange> output_tokens = {};  // default: see OutputTokens
  std::string prompt_file = {};           // one prompt per line, instead of random token ids
  std::optional<float> temperature = {};  // default: the checkpoint's
  uint64_t seed = 1;
  uint32_t turns = 0;  // 0: single requests; K: sessions of K turns

  // Tokens of a prompt that is always being processed in a second phase; 0: no second phase.
  uint32_t interfere_prompt = 0;

  // Limits for goodput; 0: none.
  double slo_ttft_ms = 0;
  double slo_itl_ms = 0;
};

// The requested length or its default: 128, or kEndlessOutputTokens where streams must run for the
// whole phases of --interfere-prompt.
constexpr uint32_t kEndlessOutputTokens = 1'000'000;
LengthRange OutputTokens(const BenchOptions& options);
bool OutputsAreEndless(const BenchOptions& options);

// Seconds that each measured phase lasts at most.
double PhaseSeconds(const BenchOptions& options);

// INVALID_ARGUMENT for invalid values and combinations.
absl::Status Validate(const BenchOptions& options);

// Runs the load and prints the report. Returns 0 if anything succeeded, 1 if nothing did, 2 for
// invalid options, 130 if interrupted (after reporting what was measured).
int RunBench(const BenchOptions& options, Cancellation& cancellation);

}  // namespace rivulet::cli::bench

#endif  // RIVULET_CLIENT_CLI_BENCH_OPTIONS_H_
