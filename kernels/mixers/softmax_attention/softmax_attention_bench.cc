// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Softmax attention over a context of `context` tokens in each session, its recurrence alone:
// Decode is one token for each session, Prompt a piece of `rows` tokens of one. Heads of `head`
// numbers, 8 kv heads; `group` query heads read each. Keys and values are constants in pages at
// shuffled places, so that a context of a million tokens need not be computed first. Counters:
//
//   us_token  microseconds a token
//   MB_token  bytes of keys and values that a token of Decode must read: 2·Hkv·head·context·size
//   share     of the bandwidth with which the same threads read memory; contexts that fit in cache
//             may exceed 1
//   GFLOPS    4·H·head for each token that a query sees
#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/mixers/mixer_bench.h"
#include "kernels/mixers/softmax_attention/softmax_attention_recurrence.h"

namespace rivulet {
namespace {

constexpr size_t kKvHeads = 8;

// Sessions of `context` tokens, each about to take `tokens` more.
struct Contexts {
  Contexts(const StateLayout& layout, size_t count, size_t context, size_t tokens)
      : tail_bytes(RoundUp(layout.tail_bytes(), kAlignment)),
        page_bytes(RoundUp(layout.page_bytes(), kAlignment)),
        pages_each((context + tokens) / kFoldInterval),
        tails(count * tail_bytes),
        pages(count * pages_each * page_bytes),
        slots(count * pages_each),
        tables(count),
        segments(count) {
    // Small numbers everywhere: pages that nobody wrote would be one page of zeros in the cache.
    std::fill_n(tails.data(), tails.size(), std::byte{0x3c});
    std::fill_n(pages.data(), pages.size(), std::byte{0x3c});
    std::iota(slots.begin(), slots.end(), 0u);
    std::shuffle(slots.begin(), slots.end(), std::mt19937_64(1));
    for (size_t s = 0; s < count; ++s) {
      tables[s] = {.slots = slots.data() + s * pages_each, .count = pages_each};
      segments[s] = {.first_token = s * tokens, .tokens = tokens, .position = context};
      segments[s].tail = static_cast<uint32_t>(s);
      segments[s].pages = &tables[s];
    }
  }
  LayerState state() {
    LayerState state;
    state.tails = tails.data();
    state.tail_stride = tail_bytes;
    state.pages = pages.data();
    state.page_stride = page_bytes;
    return state;
  }

  size_t tail_bytes, page_bytes, pages_each;
  AlignedBuffer<std::byte> tails, pages;
  std::vector<uint32_t> slots;
  std::vector<SegmentPages> tables;
  std::vector<Segment> segments;
};

struct Setting {
  size_t context, sessions, rows, head, group, threads;
  DType dtype;
};

void Run(benchmark::State& state, const Setting& s) {
  StateLayout layout;
  const size_t heads = kKvHeads * s.group, tokens = s.sessions * s.rows;
  const SoftmaxAttentionRecurrence recurrence({heads, kKvHeads, s.head, 0, s.dtype}, layout);
  Contexts contexts(layout, s.sessions, s.context, s.rows);
  const size_t padded = PaddedColumns(s.head);
  const BenchRows q(tokens, heads * padded, -0.1, 0.1), kv(tokens, kKvHeads * padded, -1.0, 1.0),
      out(tokens, heads * s.head, 0.0, 0.0);
  ThreadPool pool(s.threads);
  Workspace workspace;
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    workspace.Reset();
    recurrence.Run(contexts.segments, contexts.state(), {q.view, kv.view, kv.view}, out.view,
                   workspace, pool);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double each = seconds.count() / static_cast<double>(state.iterations() * tokens);
  const double numbers = 2.0 * kKvHeads * static_cast<double>(s.head * s.context);
  state.counters["us_token"] = each * 1e6;
  state.counters["GFLOPS"] = numbers * 2.0 * static_cast<double>(s.group) / each * 1e-9;
  if (s.rows > 1) return;
  const double bytes = numbers * static_cast<double>(DTypeSize(s.dtype));
  state.counters["MB_token"] = bytes * 1e-6;
  state.counters["share"] = bytes / each / ReadBandwidth(pool);
}

void Decode(benchmark::State& state) {
  Run(state, {.context = static_cast<size_t>(state.range(0)),
              .sessions = static_cast<size_t>(state.range(1)),
              .rows = 1,
              .head = static_cast<size_t>(state.range(2)),
              .group = static_cast<size_t>(state.range(3)),
              .threads = static_cast<size_t>(state.range(4)),
              .dtype = state.range(5) != 0 ? DType::kBFloat16 : DType::kFloat32});
}

void Prompt(benchmark::State& state) {
  Run(state, {.context = static_cast<size_t>(state.range(0)),
              .sessions = 1,
              .rows = static_cast<size_t>(state.range(1)),
              .head = static_cast<size_t>(state.range(2)),
              .group = static_cast<size_t>(state.range(3)),
              .threads = static_cast<size_t>(state.range(4)),
              .dtype = state.range(5) != 0 ? DType::kBFloat16 : DType::kFloat32});
}

BENCHMARK(Decode)
    ->ArgNames({"context", "sessions", "head", "group", "threads", "bf16"})
    ->ArgsProduct({{1024, 16384, 65536}, {1}, {64, 128}, {1, 4}, {1, 2}, {0, 1}})
    ->ArgsProduct({{1024}, {16}, {128}, {1, 4}, {1, 2}, {0, 1}})
    ->UseRealTime();
BENCHMARK(Prompt)
    ->ArgNames({"context", "rows", "head", "group", "threads", "bf16"})
    ->ArgsProduct({{1024, 16384}, {16, 64, 256}, {64, 128}, {1, 4}, {1, 2}, {0}})
    ->UseRealTime();

}  // namespace
}  // namespace rivulet
