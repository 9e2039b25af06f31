// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear Mamba-2's recurrence at decode (log_linear_bench.h): 8 heads of N = 128, P = 64.
#include <vector>

#include "kernels/mixers/log_linear/log_linear_bench.h"
#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/mixers/mixer_bench.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

void Decode(benchmark::State& state) {
  constexpr size_t kHeads = 8, kStateSize = 128, kHeadDim = 64, kLevels = 15;
  const size_t count = state.range(1);
  const Mamba2Constants constants{std::vector<float>(kHeads, -0.001f),
                                  std::vector<float>(kHeads * kHeadDim)};
  StateLayout layout;
  const SumRecurrence recurrence(
      Mamba2Declaration({kHeads, 1, kStateSize, kHeadDim}, constants, kLevels), layout);
  BenchSessions sessions = LogLinearSessions(state, layout);
  const BenchRows x(count, kHeads * kHeadDim, -1.0, 1.0), b(count, kStateSize, -1.0, 1.0),
      delta(count, kHeads, 0.0, 1.0), lambda(count, kHeads * kLevels, 0.0, 1.0),
      y(count, kHeads * kHeadDim, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(1);
  BenchLogLinear(state, sessions, [&] {
    recurrence.Run(
        {sessions.segments, sessions.state(), &workspace, &pool},
        {.q = b.view, .k = b.view, .v = x.view, .decay = delta.view, .levels = lambda.view},
        y.view);
  });
}
BENCHMARK(Decode)->Apply(LogLinearArguments);

}  // namespace
}  // namespace rivulet
