// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/options.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/numbers.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"

namespace rivulet::cli::bench {
namespace {

constexpr double kDefaultSeconds = 10;
constexpr uint32_t kDefaultOutputTokens = 128;
constexpr double kMaxSeconds = 7 * 24 * 3600.0;
constexpr double kMaxRate = 1e6;
constexpr double kMaxMilliseconds = kMaxSeconds * 1000;
constexpr uint32_t kMaxStreams = 100'000;
constexpr uint32_t kMaxConnections = 1000;
constexpr uint32_t kMaxTurns = 1000;

bool ParseLength(std::string_view text, uint32_t& length) {
  length = ReadNumber<uint32_t>(text).value_or(0);
  return length >= 1 && length <= kMaxLength;
}

absl::Status CheckRange(const char* flag, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " = ", value, " is not in ", low, " to ", high));
}

absl::Status CheckNumbers(const BenchOptions& o) {
  const struct {
    const char* flag;
    double value, low, high;
  } limits[] = {
      {"--concurrency", static_cast<double>(o.concurrency), 1, kMaxStreams},
      {"--rate", o.rate, 0, kMaxRate},
      {"--duration", o.duration_seconds, 0, kMaxSeconds},
      {"--warmup", o.warmup_seconds, 0, kMaxSeconds},
      {"--drain", o.drain_seconds, 0, kMaxSeconds},
      {"--timeout", o.common.timeout_seconds, 0, kMaxSeconds},
      {"--connections", static_cast<double>(o.connections), 1, kMaxConnections},
      {"--max-in-flight", static_cast<double>(o.max_in_flight), 1, kMaxStreams},
      {"--temperature", o.temperature.value_or(0), 0, std::numeric_limits<float>::max()},
      {"--turns", static_cast<double>(o.turns), 0, kMaxTurns},
      {"--interfere-prompt", static_cast<double>(o.interfere_prompt), 0, kMaxLength},
      {"--slo-ttft-ms", o.slo_ttft_ms, 0, kMaxMilliseconds},
      {"--slo-itl-ms", o.slo_itl_ms, 0, kMaxMilliseconds},
  };
  for (const auto& limit : limits) {
    RIVULET_RETURN_IF_ERROR(CheckRange(limit.flag, limit.value, limit.low, limit.high));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LengthRange> ParseLengthRange(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view low = text.substr(0, colon);
  const std::string_view high = colon == std::string_view::npos ? low : text.substr(colon + 1);
  LengthRange range;
  if (!ParseLength(low, range.low) || !ParseLength(high, range.high) || range.low > range.high) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a number of tokens or LOW:HIGH, each from 1 to ", kMaxLength,
                     ", got \"", ToAbsl(text), "\""));
  }
  return range;
}

std::string ToString(const LengthRange& range) {
  if (range.low == range.high) return absl::StrCat(range.low);
  return absl::StrCat(range.low, ":", range.high);
}

absl::StatusOr<Arrival> ParseArrival(std::string_view text) {
  if (text == "poisson") return Arrival::kPoisson;
  if (text == "constant") return Arrival::kConstant;
  return absl::InvalidArgumentError(
      absl::StrCat("expected poisson or constant, got \"", ToAbsl(text), "\""));
}

std::string ToString(Arrival arrival) {
  return arrival == Arrival::kPoisson ? "poisson" : "constant";
}

bool OutputsAreEndless(const BenchOptions& options) {
  return options.interfere_prompt > 0 && !options.output_tokens;
}

LengthRange OutputTokens(const BenchOptions& options) {
  const uint32_t length = OutputsAreEndless(options) ? kEndlessOutputTokens : kDefaultOutputTokens;
  return options.output_tokens.value_or(LengthRange{.low = length, .high = length});
}

double PhaseSeconds(const BenchOptions& options) {
  if (options.duration_seconds > 0) return options.duration_seconds;
  return options.requests > 0 ? kMaxSeconds : kDefaultSeconds;
}

absl::Status Validate(const BenchOptions& options) {
  RIVULET_RETURN_IF_ERROR(CheckNumbers(options));
  if (options.interfere_prompt > 0 && options.requests > 0) {
    return absl::InvalidArgumentError(
        "--interfere-prompt compares two phases of --duration seconds; leave --requests out");
  }
  if (options.interfere_prompt > 0 && options.turns > 0) {
    return absl::InvalidArgumentError("--interfere-prompt and --turns cannot be combined");
  }
  return absl::OkStatus();
}

}  // namespace rivulet::cli::bench
