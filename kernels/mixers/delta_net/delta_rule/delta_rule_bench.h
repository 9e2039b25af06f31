// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The delta rule's recurrence alone, for the benchmarks of its mixers.
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_BENCH_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_BENCH_H_

#include <cmath>

#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/mixer_bench.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {

// `tokens` tokens a step of each of `count` sessions. Counters as in mixer_bench.h, a step being a
// token there: with several tokens a step, us_token is microseconds a step.
inline void BenchDeltaRule(benchmark::State& state, const HeadShape& shape, bool decays,
                           size_t count, size_t tokens, size_t threads) {
  StateLayout layout;
  const SumRecurrence recurrence(DeltaRuleDeclaration(shape, decays), layout);
  BenchSessions sessions(layout, count, tokens);
  const double bound = std::sqrt(3.0 / static_cast<double>(shape.key_dim));
  const size_t keys = shape.groups * shape.padded_key(), rows = count * tokens;
  const size_t values = shape.heads * shape.padded_value();
  const BenchRows k(rows, keys, -bound, bound), v(rows, values, -1.0, 1.0),
      beta(rows, shape.heads, 0.0, 1.0), g(rows, shape.heads, -0.1, 0.0),
      out(rows, values, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(threads);
  BenchSteps(state, sessions, sessions.bytes_a_token(), pool, [&] {
    recurrence.Run({sessions.segments, sessions.state(), &workspace, &pool},
                   {.q = k.view, .k = k.view, .v = v.view, .decay = g.view, .beta = beta.view},
                   out.view);
  });
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_BENCH_H_
