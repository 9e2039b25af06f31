// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One layer at decode (mixer_bench.h): hidden/sessions/threads. The hidden sizes are those of
// LFM2-350M and LFM2-1.2B.
#include "kernels/mixers/gated_convolution/gated_convolution_config.h"
#include "kernels/mixers/mixer_bench.h"

namespace rivulet {
namespace {

void Decode(benchmark::State& state) {
  const size_t hidden = state.range(0);
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, GatedConvolutionConfig{}, hidden,
                                    {{"in_proj.weight", {3 * hidden, hidden}},
                                     {"conv.weight", {hidden, 1, 3}},
                                     {"out_proj.weight", {hidden, hidden}}},
                                    &weight_bytes);
  if (mixer == nullptr) return;
  BenchDecode(state, *mixer, hidden, weight_bytes, state.range(1), state.range(2));
}

BENCHMARK(Decode)
    ->ArgNames({"hidden", "sessions", "threads"})
    ->ArgsProduct({{1024, 2048}, {1, 64}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace rivulet
