// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/pool_selection/pool_selection_recurrence.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <new>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/mixers/pool_selection/pool_scores.h"

namespace rivulet {
namespace {

// Orders scores as unsigned numbers: larger ones first, NaN before all, and of equal ones the
// earlier pool.
uint64_t OrderKey(float score, uint32_t pool) {
  const bool nan = score != score;
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 is 0
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(nan ? UINT32_MAX : ascending) << 32 | (UINT32_MAX - pool);
}

void CopyRow(const float* from, size_t count, float* to) { std::copy_n(from, count, to); }

}  // namespace

PoolSelectionRecurrence::PoolSelectionRecurrence(const PoolSelectionConfig& config,
                                                 AlignedBuffer<float> ape, StateLayout& layout)
    : config_(config),
      ape_(std::move(ape)),
      ones_(config.heads),
      fold_interval_(layout.fold_interval()) {
  std::fill_n(ones_.data(), config.heads, 1.0f);
  RIVULET_CHECK(config.pool >= 1 && fold_interval_ % config.pool == 0, "pools cross chunks");
  const auto add = [&](StatePart part, const char* name, size_t rows) {
    return layout.Add(part, name, DType::kFloat32, {rows, row()});
  };
  tail_keys_ = add(StatePart::kTail, "index_keys", fold_interval_);
  if (config.gated) tail_gates_ = add(StatePart::kTail, "index_gates", fold_interval_);
  tail_pools_ = add(StatePart::kTail, "index_pools", pools_in_chunk());
  page_pools_ = add(StatePart::kPage, "index_pools_page", pools_in_chunk());
}

float* PoolSelectionRecurrence::PageKeys(const LayerState& state, const Segment& segment,
                                         uint64_t page) const {
  const uint64_t full = (segment.position + segment.tokens) / fold_interval_;
  if (page >= full) return state.Tail<float>(segment.tail, tail_pools_);
  return state.Page<float>(segment.pages[state.page_kind].Appended(page), page_pools_);
}

void PoolSelectionRecurrence::MeanOf(const float* keys, const float* gates, float* mean) const {
  if (!config_.gated) return PlainMeanOfPool(keys, config_.pool, row(), mean);
  MeanOfPool(keys, gates, ape_.data(), config_.pool, row(), mean);
}

// Rows wait in the tail for the end of their pool. Pool i of those that end here: its first
// position, and keys' row i.
void PoolSelectionRecurrence::AppendTokens(const LayerState& state, const Segment& segment,
                                           const PoolSelectionInput& input, Segment* pools,
                                           FloatMatrix means) const {
  float* const keys = state.Tail<float>(segment.tail, tail_keys_);
  float* const gates = config_.gated ? state.Tail<float>(segment.tail, tail_gates_) : nullptr;
  size_t filled = 0;
  ForEachChunkPiece(segment, fold_interval_, [&](const ChunkPiece& piece) {
    for (size_t at = piece.begin; at < piece.end; ++at) {
      const size_t token = piece.first_token + at - piece.begin;
      CopyRow(input.k.row(token), row(), keys + at * row());
      if (config_.gated) CopyRow(input.gates.row(token), row(), gates + at * row());
      if ((at + 1) % config_.pool != 0) continue;
      const size_t first = (at + 1 - config_.pool) * row();
      MeanOf(keys + first, config_.gated ? gates + first : nullptr, means.row(filled));
      const uint64_t end = segment.position + (token - segment.first_token) + 1;
      pools[filled++].position = end - config_.pool;
    }
  });
}

// A pool's key waits in the tail for the end of the chunk.
void PoolSelectionRecurrence::StorePools(const LayerState& state, const Segment& segment,
                                         ConstFloatMatrix keys) const {
  float* const pools = state.Tail<float>(segment.tail, tail_pools_);
  size_t stored = 0;
  ForEachChunkPiece(segment, fold_interval_, [&](const ChunkPiece& piece) {
    for (size_t p = piece.begin / config_.pool; p < piece.end / config_.pool; ++p) {
      CopyRow(keys.row(stored++), row(), pools + p * row());
    }
    if (!piece.folds) return;
    const uint64_t page = segment.position / fold_interval_ + piece.fold;
    CopyRow(pools, pools_in_chunk() * row(), PageKeys(state, segment, page));
  });
}

void PoolSelectionRecurrence::Append(const LayerStep& step, const PoolSelectionInput& input,
                                     FinishPoolKeys finish) const {
  const size_t segments = step.segments.size();
  uint32_t* const first = step.workspace->TakeIndices(segments + 1);  // pool of each segment
  first[0] = 0;
  for (size_t i = 0; i < segments; ++i) {
    first[i + 1] = first[i] + static_cast<uint32_t>(PoolsFilled(step.segments[i]));
  }
  const size_t filled = first[segments];
  const FloatMatrix keys = step.workspace->Take(filled, row());
  auto* const memory = step.workspace->TakeFloats(filled * sizeof(Segment) / sizeof(float) + 16);
  auto* const pools = new (memory) Segment[filled];
  for (size_t i = 0; i < filled; ++i) pools[i].first_token = i, pools[i].tokens = 1;
  const auto each = [&](auto&& visit) {
    ParallelRows(*step.pool, segments, input.k.rows * row(),
                 [&](size_t i) { visit(i, keys.Rows(first[i], first[i + 1] - first[i])); });
  };
  each([&](size_t i, FloatMatrix own) {
    AppendTokens(step.state, step.segments[i], input, pools + first[i], own);
  });
  if (filled > 0) finish({pools, filled}, keys);
  each([&](size_t i, FloatMatrix own) { StorePools(step.state, step.segments[i], own); });
}

void PoolSelectionRecurrence::Score(const LayerState& state, const Segment& segment, size_t token,
                                    uint64_t pools, const PoolSelectionInput& input,
                                    float* scores) const {
  for (uint64_t first = 0; first < pools; first += pools_in_chunk()) {
    const size_t count = std::min<uint64_t>(pools_in_chunk(), pools - first);
    const float* const weights = config_.gated ? input.weights.row(token) : ones_.data();
    ScorePools(input.q.row(token), weights, config_.heads,
               PageKeys(state, segment, first / pools_in_chunk()), count, row(), scores + first);
  }
}

// `token` of the step's arrays.
void PoolSelectionRecurrence::Choose(const LayerState& state, const Segment& segment, size_t token,
                                     const PoolSelectionInput& input, const Scratch& scratch,
                                     float* chosen) const {
  const uint64_t position = segment.position + token - segment.first_token;
  const uint64_t pools = (position + 1) / config_.pool;
  const size_t count = std::min<uint64_t>(pools, config_.most);
  std::fill_n(chosen, config_.columns(), 0.0f);
  chosen[0] = static_cast<float>(count);
  if (pools <= config_.most) {
    for (size_t i = 0; i < count; ++i) chosen[1 + i] = static_cast<float>(i);
    return;
  }
  Score(state, segment, token, pools, input, scratch.scores);
  for (uint32_t p = 0; p < pools; ++p) scratch.order[p] = OrderKey(scratch.scores[p], p);
  std::nth_element(scratch.order, scratch.order + count, scratch.order + pools, std::greater<>());
  for (size_t i = 0; i < count; ++i) {
    chosen[1 + i] = static_cast<float>(UINT32_MAX - static_cast<uint32_t>(scratch.order[i]));
  }
  std::sort(chosen + 1, chosen + 1 + count);
}

void PoolSelectionRecurrence::Run(const LayerStep& step, const PoolSelectionInput& input,
                                  FloatMatrix chosen, FinishPoolKeys finish) const {
  ThreadPool& threads = *step.pool;
  uint64_t tokens = 0, most = 0, work = 0;
  for (const Segment& segment : step.segments) {
    const uint64_t pools = (segment.position + segment.tokens) / config_.pool;
    tokens += segment.tokens;
    most = std::max(most, pools);
    if (pools > config_.most) work += segment.tokens * pools * config_.heads * row();
  }
  Append(step, input, finish);
  const size_t tasks = UsefulTasks(threads, work, tokens);
  float* const scores = step.workspace->TakeFloats(tasks * most);
  // Workspaces hold floats; numbers are plain words, which any memory may become.
  auto* const order = reinterpret_cast<uint64_t*>(step.workspace->TakeFloats(2 * tasks * most));
  threads.ParallelFor(tasks, [&](size_t task) {
    const Scratch scratch{scores + task * most, new (order + task * most) uint64_t[most]};
    const uint64_t begin = tokens * task / tasks, end = tokens * (task + 1) / tasks;
    uint64_t number = 0;  // of the step's tokens, segment by segment
    for (const Segment& segment : step.segments) {
      const uint64_t from = std::max(begin, number), to = std::min(end, number + segment.tokens);
      for (uint64_t i = from; i < to; ++i) {
        const size_t token = segment.first_token + (i - number);
        Choose(step.state, segment, token, input, scratch, chosen.row(token));
      }
      number += segment.tokens;
    }
  });
}

}  // namespace rivulet
