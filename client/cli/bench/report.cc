// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rivulet::cli::bench {
namespace {

// Above this share of a core, the driver thread delays what it measures.
constexpr double kBusyClient = 0.8;

using absl::StrAppendFormat;

void AppendHead(const BenchOptions& o, const RunResult& result, std::string& out) {
  StrAppendFormat(&out, "%s (%s, %.1f M parameters, %s) at %s, %s\n", result.model.name(),
                  result.model.architecture(),
                  static_cast<double>(result.model.parameters()) * 1e-6,
                  result.model.weight_dtype(), o.common.server, result.started);
  if (o.rate > 0) {
    StrAppendFormat(&out, "open loop: %g requests/s, %s arrivals", o.rate, ToString(o.arrival));
  } else {
    StrAppendFormat(&out, "closed loop: %u stream%s", o.concurrency, o.concurrency == 1 ? "" : "s");
  }
  const std::string prompts =
      o.prompt_file.empty() ? ToString(o.prompt_tokens) + " tokens" : "from " + o.prompt_file;
  const std::string outputs =
      OutputsAreEndless(o) ? "without end" : ToString(OutputTokens(o)) + " tokens";
  StrAppendFormat(&out, "; prompts %s, outputs %s, seed %d", prompts, outputs, o.seed);
  if (o.turns > 0) StrAppendFormat(&out, ", sessions of %u turns", o.turns);
  if (result.ending != "complete") StrAppendFormat(&out, "\n%s", result.ending);
  out += "\n";
}

void AppendRequests(const BenchOptions& options, const PhaseStatistics& phase, std::string& out) {
  // Endless streams began in the warm-up and still run.
  if (OutputsAreEndless(options) && phase.due == 0) return;
  StrAppendFormat(&out, "requests       %d due, %d succeeded, %d failed", phase.due,
                  phase.succeeded, phase.failed);
  if (phase.cut_off > 0) StrAppendFormat(&out, ", %d cut off at the end", phase.cut_off);
  if (phase.not_sent > 0) StrAppendFormat(&out, ", %d not sent (--max-in-flight)", phase.not_sent);
  StrAppendFormat(&out, "; %.2f/s completed\n", phase.PerSecond(phase.completed));
  if (options.slo_ttft_ms > 0 || options.slo_itl_ms > 0) {
    StrAppendFormat(&out, "goodput        %.2f requests/s within the limits\n",
                    phase.PerSecond(phase.good));
  }
}

void AppendCounts(const BenchOptions& options, const PhaseStatistics& phase, std::string& out) {
  StrAppendFormat(&out, "\n%s: %.2f s\n", phase.name, phase.seconds());
  AppendRequests(options, phase, out);
  StrAppendFormat(&out, "output tokens  %d, %.1f/s, %.2f per message\n", phase.output_tokens,
                  phase.PerSecond(phase.output_tokens),
                  static_cast<double>(phase.output_tokens) /
                      static_cast<double>(std::max<uint64_t>(phase.messages, 1)));
  StrAppendFormat(&out, "all tokens     %d, %.1f/s\n", phase.output_tokens + phase.prompt_tokens,
                  phase.PerSecond(phase.output_tokens + phase.prompt_tokens));
}

void AppendLatency(const char* name, const LatencyHistogram& h, std::string& out) {
  if (h.count() == 0) return;
  StrAppendFormat(&out, "%-15s %10.3f %10.3f %10.3f %10.3f %10.3f %9d\n", name,
                  Milliseconds(h.Percentile(0.50)), Milliseconds(h.Percentile(0.95)),
                  Milliseconds(h.Percentile(0.99)), Milliseconds(h.max()),
                  h.mean_nanoseconds() * 1e-6, h.count());
}

void AppendLatencies(const PhaseStatistics& phase, std::string& out) {
  StrAppendFormat(&out, "%-15s %10s %10s %10s %10s %10s %9s\n", "milliseconds", "p50", "p95", "p99",
                  "max", "mean", "count");
  AppendLatency("first token", phase.first_token, out);
  AppendLatency("inter-token", phase.token_gap, out);
  AppendLatency("message gap", phase.message_gap, out);
  AppendLatency("per-token mean", phase.per_token_mean, out);
  AppendLatency("end to end", phase.end_to_end, out);
  AppendLatency("send lag", phase.send_lag, out);
}

void AppendTurns(const PhaseStatistics& phase, std::string& out) {
  if (phase.turns.empty()) return;
  StrAppendFormat(&out, "%-6s %9s %15s %15s %10s %10s\n", "turn", "requests", "prompt tokens",
                  "cached tokens", "TTFT p50", "TTFT p99");
  for (size_t i = 0; i < phase.turns.size(); ++i) {
    const TurnStatistics& turn = phase.turns[i];
    const double n = static_cast<double>(std::max<uint64_t>(turn.succeeded, 1));
    StrAppendFormat(&out, "%-6zu %9d %15.1f %15.1f %10.3f %10.3f\n", i + 1, turn.succeeded,
                    static_cast<double>(turn.prompt_tokens) / n,
                    static_cast<double>(turn.cached_tokens) / n,
                    Milliseconds(turn.first_token.Percentile(0.50)),
                    Milliseconds(turn.first_token.Percentile(0.99)));
  }
}

void AppendErrors(const PhaseStatistics& phase, std::string& out) {
  for (const auto& [kind, count] : phase.errors.by_kind()) {
    StrAppendFormat(&out, "error %8d  %s: %s\n", count, kind.first, kind.second);
  }
}

double Ratio(std::chrono::nanoseconds with, std::chrono::nanoseconds without) {
  return without.count() > 0
             ? static_cast<double>(with.count()) / static_cast<double>(without.count())
             : 0;
}

void AppendRatio(const char* name, const LatencyHistogram& without, const LatencyHistogram& with,
                 std::string& out) {
  StrAppendFormat(&out, "%-15s %9.2fx %9.2fx %9.2fx\n", name,
                  Ratio(with.Percentile(0.50), without.Percentile(0.50)),
                  Ratio(with.Percentile(0.95), without.Percentile(0.95)),
                  Ratio(with.Percentile(0.99), without.Percentile(0.99)));
}

void AppendInterference(const BenchOptions& options, const RunResult& result, std::string& out) {
  if (result.phases.size() < 2) return;
  const PhaseStatistics& without = result.phases[0];
  const PhaseStatistics& with = result.phases[1];
  StrAppendFormat(&out,
                  "\nwith prompts of %u tokens: %d done, %d failed, first token after %.1f ms "
                  "(mean)\n",
                  options.interfere_prompt, with.interference.succeeded, with.interference.failed,
                  with.interference.first_token.mean_nanoseconds() * 1e-6);
  StrAppendFormat(&out, "%-15s %10s %10s %10s\n", "with / without", "p50", "p95", "p99");
  AppendRatio("inter-token", without.token_gap, with.token_gap, out);
  AppendRatio("message gap", without.message_gap, with.message_gap, out);
}

double ClientShare(const RunResult& result) {
  return result.wall_seconds > 0 ? result.client_cpu_seconds / result.wall_seconds : 0;
}

}  // namespace

std::string TextReport(const BenchOptions& options, const RunResult& result) {
  std::string out;
  AppendHead(options, result, out);
  for (const PhaseStatistics& phase : result.phases) {
    AppendCounts(options, phase, out);
    AppendLatencies(phase, out);
    AppendTurns(phase, out);
    AppendErrors(phase, out);
  }
  AppendInterference(options, result, out);
  StrAppendFormat(&out, "\nclient CPU %.2f s, %.0f %% of a core, %.1f us per token\n",
                  result.client_cpu_seconds, 100 * ClientShare(result),
                  result.ClientMicrosecondsPerToken());
  for (const std::string& doubt : Doubts(options, result)) out += "note: " + doubt + "\n";
  return out;
}

std::vector<std::string> Doubts(const BenchOptions& options, const RunResult& result) {
  std::vector<std::string> doubts;
  if (result.phases.empty()) doubts.push_back("the run ended before anything was measured");
  if (ClientShare(result) > kBusyClient) {
    doubts.push_back("the client used most of a core; its own delays affect the latencies");
  }
  for (const PhaseStatistics& phase : result.phases) {
    if (phase.wrong_length > 0) {
      doubts.push_back(absl::StrCat(phase.wrong_length, " requests (", phase.name,
                                    ") ended with another number of tokens than requested"));
    }
  }
  if (options.interfere_prompt > 0 && result.phases.size() > 1 &&
      result.phases[1].interference.succeeded == 0) {
    doubts.push_back(
        "no interfering prompt was done within ten times --duration, so the figures do not include "
        "its end");
  }
  return doubts;
}

}  // namespace rivulet::cli::bench
