// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// `rivulet bench`: puts load on a server and reports what its clients measure.
#ifndef RIVULET_CLIENT_CLI_BENCH_BENCH_H_
#define RIVULET_CLIENT_CLI_BENCH_BENCH_H_

#include "client/cli/bench/options.h"
#include "client/client.h"

namespace rivulet::cli::bench {

// Runs the load and prints the report. Returns 0 if anything succeeded, 1 if nothing did, 2 for
// invalid options, 130 if interrupted (after reporting what was measured).
int RunBench(const BenchOptions& options, Cancellation& cancellation);

}  // namespace rivulet::cli::bench

#endif  // RIVULET_CLIENT_CLI_BENCH_BENCH_H_
