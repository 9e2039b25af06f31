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
    : config_(config), ape_(std::move(ape)), fold_interval_(layout.fold_interval()) {
  RIVULET_CHECK(config.pool >= 1 && fold_interval_ % config.pool == 0, "pools cross chunks");
  const auto add = [&](StatePart part, const char* name, size_t rows) {
    return layout.Add(part, name, DType::kFloat32, {rows, row()});
  };
  tail_keys_ = add(StatePart::kTail, "index_keys", fold_interval_);
  tail_gates_ = add(StatePart::kTail, "index_gates", fold_interval_);
  tail_pools_ = add(StatePart::kTail, "index_pools", pools_in_chunk());
  page_pools_ = add(StatePart::kPage, "index_pools_page", pools_in_chunk());
}

float* PoolSelectionRecurrence::PageKeys(const LayerState& state, const Segment& segment,
                                         uint64_t page) const {
  const uint64_t full = (segment.position + segment.tokens) / fold_interval_;
  if (page >= full) return state.Tail<float>(segment.tail, tail_pools_);
  return state.Page<float>(segment.pages[state.page_kind].Appended(page), page_pools_);
}

// Rows wait in the tail for the end of their pool, whose key waits there for the end of the chunk.
void PoolSelectionRecurrence::Append(const LayerState& state, const Segment& segment,
                                     const PoolSelectionInput& input) const {
  float* const keys = state.Tail<float>(segment.tail, tail_keys_);
  float* const gates = state.Tail<float>(segment.tail, tail_gates_);
  float* const pools = state.Tail<float>(segment.tail, tail_pools_);
  ForEachChunkPiece(segment, fold_interval_, [&](const ChunkPiece& piece) {
    for (size_t at = piece.begin; at < piece.end; ++at) {
      const size_t token = piece.first_token + at - piece.begin;
      CopyRow(input.k.row(token), row(), keys + at * row());
      CopyRow(input.gates.row(token), row(), gates + at * row());
      if ((at + 1) % config_.pool != 0) continue;
      const size_t first = at + 1 - config_.pool;
      MeanOfPool(keys + first * row(), gates + first * row(), ape_.data(), config_.pool, row(),
                 pools + at / config_.pool * row());
    }
    if (!piece.folds) return;
    const uint64_t page = segment.position / fold_interval_ + piece.fold;
    CopyRow(pools, pools_in_chunk() * row(), PageKeys(state, segment, page));
  });
}

void PoolSelectionRecurrence::Score(const LayerState& state, const Segment& segment, size_t token,
                                    uint64_t pools, const PoolSelectionInput& input,
                                    float* scores) const {
  for (uint64_t first = 0; first < pools; first += pools_in_chunk()) {
    const size_t count = std::min<uint64_t>(pools_in_chunk(), pools - first);
    ScorePools(input.q.row(token), input.weights.row(token), config_.heads,
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
                                  FloatMatrix chosen) const {
  ThreadPool& threads = *step.pool;
  uint64_t tokens = 0, most = 0, work = 0;
  for (const Segment& segment : step.segments) {
    const uint64_t pools = (segment.position + segment.tokens) / config_.pool;
    tokens += segment.tokens;
    most = std::max(most, pools);
    if (pools > config_.most) work += segment.tokens * pools * config_.heads * row();
  }
  ParallelRows(threads, step.segments.size(), tokens * row(),
               [&](size_t i) { Append(step.state, step.segments[i], input); });
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
