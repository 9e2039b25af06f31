// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// `rivulet bench`: puts load on a server and reports what its clients see.
#ifndef RIVULET_CLIENT_CLI_BENCH_BENCH_H_
#define RIVULET_CLIENT_CLI_BENCH_BENCH_H_

#include "client/cli/bench/options.h"
#include "client/client.h"

namespace rivulet::cli::bench {

// Runs the load and prints the report. The exit code: 0 when something succeeded, 1 when nothing
// did, 2 when the options make no sense, 130 when interrupted (what was measured is reported
// first).
int RunBench(const BenchOptions& options, Cancellation& cancellation);

}  // namespace rivulet::cli::bench

#endif  // RIVULET_CLIENT_CLI_BENCH_BENCH_H_
