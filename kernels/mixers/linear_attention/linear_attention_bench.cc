// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One linear attention layer at decode (mixer_bench.h): hidden/sessions/threads, heads of 128; with
// elementwise products, as Katharopoulos' normalised elu + 1, and the recurrence alone.
#include "kernels/mixers/linear_attention/linear_attention_config.h"
#include "kernels/mixers/mixer_bench.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

constexpr size_t kHead = 128;

void Run(benchmark::State& state, FeatureMapKind map, bool trained_map) {
  const size_t hidden = state.range(0);
  const LinearAttentionConfig config{.heads = hidden / kHead,
                                     .kv_heads = hidden / kHead,
                                     .key_dim = kHead,
                                     .value_dim = kHead,
                                     .feature_map = {.kind = map, .width = kHead},
                                     .normalised = !trained_map};
  std::map<std::string, std::vector<size_t>> shapes = {{"norm.weight", {kHead}}};
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    shapes[std::string(name) + ".weight"] = {hidden, hidden};
  }
  for (const char* layer : {"_q.layer1", "_q.layer2", "_k.layer1", "_k.layer2"}) {
    if (!trained_map) break;
    shapes[std::string("feature_map") + layer + ".weight"] = {kHead, kHead};
    shapes[std::string("feature_map") + layer + ".bias"] = {kHead};
  }
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, hidden, shapes, &weight_bytes);
  if (mixer == nullptr) return;
  BenchDecode(state, *mixer, hidden, weight_bytes, state.range(1), state.range(2));
}

void DecodeElementwiseProduct(benchmark::State& state) {
  Run(state, FeatureMapKind::kElementwiseProduct, true);
}
void DecodeElu(benchmark::State& state) { Run(state, FeatureMapKind::kElu, false); }

void Recurrence(benchmark::State& state) {
  const size_t hidden = state.range(0), count = state.range(1), heads = hidden / kHead;
  StateLayout layout;
  const SumRecurrence recurrence(
      LinearAttentionDeclaration({heads, heads, kHead, kHead, DType::kFloat32}, true), layout);
  BenchSessions sessions(layout, count);
  const BenchRows x(count, hidden, 0.0, 1.0), out(count, hidden, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(state.range(2));
  BenchSteps(state, sessions, sessions.bytes_a_token(), pool, [&] {
    recurrence.Run({sessions.segments, sessions.state(), &workspace, &pool},
                   {x.view, x.view, x.view}, out.view);
  });
}

void Arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"hidden", "sessions", "threads"})
      ->ArgsProduct({{1024, 2048}, {1, 64}, {1, 2}})
      ->UseRealTime();
}
BENCHMARK(DecodeElementwiseProduct)->Apply(Arguments);
BENCHMARK(DecodeElu)->Apply(Arguments);
BENCHMARK(Recurrence)->Apply(Arguments);

}  // namespace
}  // namespace rivulet
