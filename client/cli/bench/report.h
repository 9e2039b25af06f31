// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Reports of a run: text, or one JSON object. Both have the same figures, which
// docs/benchmarking.md explains.
#ifndef RIVULET_CLIENT_CLI_BENCH_REPORT_H_
#define RIVULET_CLIENT_CLI_BENCH_REPORT_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/bench/options.h"
#include "client/cli/bench/recorder.h"
#include "rivulet/v1/inference.pb.h"

namespace rivulet::cli::bench {

struct RunResult {
  v1::Model model;
  std::string started;              // UTC, ISO 8601
  std::string ending = "complete";  // "interrupted", "gave up"
  double wall_seconds = 0;
  double client_cpu_seconds = 0;
  uint64_t total_tokens = 0;  // measured or not, like the two times above
  std::vector<PhaseStatistics> phases;

  double ClientMicrosecondsPerToken() const {
    return 1e6 * client_cpu_seconds / static_cast<double>(std::max<uint64_t>(total_tokens, 1));
  }
};

std::string TextReport(const BenchOptions& options, const RunResult& result);

// One line, with its newline.
std::string JsonReport(const BenchOptions& options, const RunResult& result);

// Reasons to doubt the figures, one sentence each; part of both reports.
std::vector<std::string> Doubts(const BenchOptions& options, const RunResult& result);

}  // namespace rivulet::cli::bench

#endif  // RIVULET_CLIENT_CLI_BENCH_REPORT_H_
