// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear Gated DeltaNet's recurrence at decode (log_linear_bench.h): 4 heads of D = 128,
// E = 256.
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/log_linear/log_linear_bench.h"
#include "kernels/mixers/mixer_bench.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

void Decode(benchmark::State& state) {
  constexpr size_t kHeads = 4, kKeyDim = 128, kValueDim = 256, kLevels = 15;
  const size_t count = state.range(1);
  StateLayout layout;
  const SumRecurrence recurrence(
      DeltaRuleDeclaration({kHeads, kHeads, kKeyDim, kValueDim}, true, kLevels), layout);
  BenchSessions sessions = LogLinearSessions(state, layout);
  const BenchRows k(count, kHeads * kKeyDim, -0.1, 0.1), v(count, kHeads * kValueDim, -1.0, 1.0),
      beta(count, kHeads, 0.0, 1.0), log_decay(count, kHeads, -0.01, 0.0),
      lambda(count, kHeads * kLevels, 0.0, 1.0), out(count, kHeads * kValueDim, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(1);
  BenchLogLinear(state, sessions, [&] {
    recurrence.Run({sessions.segments, sessions.state(), &workspace, &pool},
                   {k.view, k.view, v.view, log_decay.view, beta.view, lambda.view}, out.view);
  });
}
BENCHMARK(Decode)->Apply(LogLinearArguments);

}  // namespace
}  // namespace rivulet
