// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// HLA masked with decay, as the bundled model uses it: the recurrence alone, and the whole layer;
// and the third order beside it.
//
//   Decode/D/sessions    one token for each of `sessions` sessions of 4 heads, one thread.
//                           ns_token_head; bytes_per_second counts S and F read once a token, which
//                           is what decode cannot avoid. 1 session: from L1/L2; 512 sessions of
//                           D = 64: 64 MiB of sums, from memory.
//   ThirdDecode/...      the same for the third order, [S | P] and F counted.
//   Prefill/D            512 tokens of one session, same numbers.
//   LayerDecode/N        layer of hidden 256, 4 heads of 64, one token for each of N sessions.
//   LayerPrefill/N       the same for one session of N tokens a step.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "kernels/mixers/hla/hla_config.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

constexpr size_t kHeads = 4;

// Sessions with slots of their own, all zeros, and the segments of a step.
struct Sessions {
  Sessions(const StateLayout& layout, size_t count, size_t tokens)
      : bases(count * RoundUp(layout.base_bytes(), kAlignment)),
        tails(count * RoundUp(layout.tail_bytes(), kAlignment)),
        state{bases.data(), bases.size() / count, tails.data(), tails.size() / count} {
    for (size_t s = 0; s < count; ++s) {
      const uint32_t slot = static_cast<uint32_t>(s);
      segments.push_back({.first_token = s * tokens,
                          .tokens = tokens,
                          .position = 0,
                          .base_in = slot,
                          .base_out = slot,
                          .tail = slot});
    }
  }
  void Advance() {
    for (Segment& segment : segments) segment.position += segment.tokens;
  }
  AlignedBuffer<std::byte> bases, tails;
  LayerState state;
  std::vector<Segment> segments;
};

AlignedBuffer<float> Numbers(size_t count) {
  AlignedBuffer<float> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = GeneratedFloat("x", 0, i, -1.0, 1.0);
  return numbers;
}

HeadShape Square(size_t dim) { return {kHeads, kHeads, dim, dim}; }

std::vector<double> Decays() {
  AlignedBuffer<float> logits(kHeads);
  for (size_t h = 0; h < kHeads; ++h) logits[h] = 3.0f + static_cast<float>(h);
  return LogDecays(logits);
}

// `matrices`: how many of D x D the form keeps for a head.
void RunRecurrence(benchmark::State& state, const SumRecurrence& recurrence,
                   const StateLayout& layout, size_t matrices, size_t dim, size_t sessions,
                   size_t tokens) {
  const HeadShape shape = Square(dim);
  Sessions all(layout, sessions, tokens);
  const size_t rows = sessions * tokens, columns = kHeads * shape.padded_key();
  AlignedBuffer<float> numbers = Numbers(rows * columns), out(rows * columns);
  const ConstFloatMatrix x{numbers.data(), rows, columns, columns};
  Workspace workspace;
  ThreadPool pool(1);
  for (auto _ : state) {
    recurrence.Run({all.segments, all.state, &workspace, &pool}, {x, x, x},
                   {out.data(), rows, columns, columns});
    all.Advance();
    workspace.Reset();
  }
  const double token_heads = static_cast<double>(state.iterations() * rows * kHeads);
  state.SetBytesProcessed(static_cast<int64_t>(token_heads * matrices * dim * dim * sizeof(float)));
  state.counters["ns_token_head"] = benchmark::Counter(
      token_heads * 1e-9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void RunMasked(benchmark::State& state, size_t dim, size_t sessions, size_t tokens) {
  StateLayout layout;
  const SumRecurrence recurrence(HlaDeclaration({.shape = Square(dim)}, Decays()), layout);
  RunRecurrence(state, recurrence, layout, 2, dim, sessions, tokens);
}

void Decode(benchmark::State& state) { RunMasked(state, state.range(0), state.range(1), 1); }
BENCHMARK(Decode)->ArgNames({"D", "sessions"})->ArgsProduct({{32, 64, 128}, {1, 16, 512}});

void ThirdDecode(benchmark::State& state) {
  const size_t dim = state.range(0);
  StateLayout layout;
  const SumRecurrence recurrence(
      HlaDeclaration({.variant = HlaVariant::kThird, .shape = Square(dim)}, Decays()), layout);
  RunRecurrence(state, recurrence, layout, 3, dim, state.range(1), 1);
}
BENCHMARK(ThirdDecode)->ArgNames({"D", "sessions"})->ArgsProduct({{32, 64, 128}, {1, 16, 512}});

void Prefill(benchmark::State& state) { RunMasked(state, state.range(0), 1, 512); }
BENCHMARK(Prefill)->ArgName("D")->Arg(32)->Arg(64)->Arg(128);

constexpr size_t kHidden = 256;

std::unique_ptr<Mixer> BundledLayer() {
  const HlaConfig config{
      .shape = {.heads = kHeads, .groups = kHeads, .key_dim = 64, .value_dim = 64},
      .use_decay = true,
      .qk_l2_norm = true,
      .qk_scale = 0.125f,
      .conv_size = 4};
  std::map<std::string, TensorSpec> tensors;
  for (const char* name : {"q", "k", "v", "g", "o"}) {
    tensors[std::string(name) + "_proj.weight"] = {{kHidden, kHidden}, -0.1, 0.1};
    tensors[std::string(name) + "_conv1d.weight"] = {{kHidden, 1, 4}, -0.5, 0.5};
  }
  tensors["decay_logit"] = {{kHeads}, 3.0, 7.0};
  tensors["o_norm.weight"] = {{64}, 0.5, 1.5};
  GeneratedParameters parameters(tensors, DType::kFloat32);
  return MakeLayer(config, {kHidden, parameters, {}}).value();
}

void RunLayer(benchmark::State& state, size_t sessions, size_t tokens) {
  const std::unique_ptr<Mixer> layer = BundledLayer();
  Sessions all(layer->state_layout(), sessions, tokens);
  const size_t rows = sessions * tokens;
  AlignedBuffer<float> numbers = Numbers(rows * kHidden), out(rows * kHidden);
  Workspace workspace;
  ThreadPool pool(1);
  for (auto _ : state) {
    const absl::Status status = layer->Forward({all.segments, all.state, &workspace, &pool},
                                               {numbers.data(), rows, kHidden, kHidden},
                                               {out.data(), rows, kHidden, kHidden});
    if (!status.ok()) state.SkipWithError("Forward failed");
    all.Advance();
    workspace.Reset();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * rows));
}

void LayerDecode(benchmark::State& state) { RunLayer(state, state.range(0), 1); }
BENCHMARK(LayerDecode)->ArgName("sessions")->Arg(1)->Arg(16)->Arg(64);

void LayerPrefill(benchmark::State& state) { RunLayer(state, 1, state.range(0)); }
BENCHMARK(LayerPrefill)->ArgName("tokens")->Arg(16)->Arg(512);

}  // namespace
}  // namespace rivulet
