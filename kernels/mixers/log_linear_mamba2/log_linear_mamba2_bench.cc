// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear Mamba-2's recurrence at decode (log_linear_bench.h): 8 heads of N = 128, P = 64.
#include "kernels/mixers/log_linear/log_linear_bench.h"
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_recurrence.h"
#include "kernels/mixers/mixer_bench.h"

namespace rivulet {
namespace {

void Decode(benchmark::State& state) {
  constexpr size_t kHeads = 8, kStateSize = 128, kHeadDim = 64, kLevels = 15;
  const size_t count = state.range(1);
  Mamba2Constants constants{AlignedBuffer<float>(kHeads), AlignedBuffer<float>(kHeads * kHeadDim)};
  for (size_t h = 0; h < kHeads; ++h) constants.a[h] = -0.001f;
  StateLayout layout;
  const LogLinearMamba2Recurrence recurrence({kHeads, 1, kStateSize, kHeadDim, DType::kFloat32},
                                             kLevels, std::move(constants), layout);
  BenchSessions sessions = LogLinearSessions(state, layout);
  const BenchRows x(count, kHeads * kHeadDim, -1.0, 1.0), b(count, kStateSize, -1.0, 1.0),
      delta(count, kHeads, 0.0, 1.0), lambda(count, kHeads * kLevels, 0.0, 1.0),
      y(count, kHeads * kHeadDim, 0.0, 0.0);
  ThreadPool pool(1);
  BenchLogLinear(state, sessions, [&] {
    recurrence.Run(sessions.segments, sessions.state(),
                   {{x.view, b.view, b.view, delta.view}, lambda.view}, y.view, pool);
  });
}
BENCHMARK(Decode)->Apply(LogLinearArguments);

}  // namespace
}  // namespace rivulet
