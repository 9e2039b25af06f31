// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/softmax_attention/chosen_attention.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/parallel.h"
#include "kernels/mixers/softmax_attention/attend_span.h"

namespace rivulet {
namespace {

// Query heads that share a pass over what their token sees. Enough to read keys once for many rows,
// few enough that one token's heads are work for several threads.
constexpr size_t kTileHeads = 16;
constexpr size_t kGroup = kBlock;  // tokens of a group of attend_span.h

class ChosenAttention {
 public:
  ChosenAttention(const SoftmaxAttentionShape& shape, const KeyValuePages& pages,
                  size_t fold_interval, std::span<const Segment> segments,
                  const SoftmaxAttentionInput& input, FloatMatrix out)
      : shape_(shape),
        pages_(pages),
        fold_interval_(fold_interval),
        segments_(segments),
        input_(input),
        pool_(input.chosen.size),
        out_(out) {}

  void Run(Workspace& workspace, ThreadPool& threads) const {
    size_t tokens = 0;
    for (const Segment& segment : segments_) tokens += segment.tokens;
    const size_t units = tokens * shape_.kv_heads * Tiles();
    const size_t most = (input_.chosen.rows.columns - 1) * pool_;
    const size_t unit_floats = most * (shape_.head_dim + shape_.values());
    const size_t tasks = UsefulTasks(threads, units * unit_floats, units);
    float* const copies = workspace.TakeFloats(tasks * CopyFloats());
    threads.ParallelFor(tasks, [&](size_t task) {
      const size_t end = units * (task + 1) / tasks;
      for (size_t unit = units * task / tasks; unit < end; ++unit) {
        RunUnit(unit, copies + task * CopyFloats());
      }
    });
  }

 private:
  // One token's tile of query heads of one kv head, and what it sees.
  struct Unit {
    const Segment* segment = nullptr;
    size_t row = 0;  // of the step's token arrays
    size_t head = 0, first_query = 0, queries = 0;
    const float* pools = nullptr;
    size_t pool_count = 0;
    uint64_t behind = 0;    // the first token behind the last full pool
    size_t seen = 0;        // tokens
    float* copy = nullptr;  // where small pools are copied together
  };

  size_t Tiles() const { return (shape_.group() + kTileHeads - 1) / kTileHeads; }
  bool InPlace() const { return pool_ == kGroup; }
  size_t GroupBytes(size_t width) const { return width * kGroup * DTypeSize(shape_.state_dtype); }
  // Keys [D, 16] and values [16, Ep] of a span's groups.
  size_t CopyFloats() const {
    if (InPlace()) return 0;
    return kSpanGroups * (GroupBytes(shape_.head_dim) + GroupBytes(shape_.padded_values())) /
           sizeof(float);
  }

  Unit UnitOf(size_t number, float* copy) const {
    size_t token = number / (shape_.kv_heads * Tiles());
    const Segment* segment = segments_.data();
    while (token >= segment->tokens) token -= (segment++)->tokens;
    Unit unit;
    unit.segment = segment;
    unit.row = segment->first_token + token;
    unit.copy = copy;
    unit.head = number / Tiles() % shape_.kv_heads;
    unit.first_query = unit.head * shape_.group() + number % Tiles() * kTileHeads;
    unit.queries = std::min(kTileHeads, (unit.head + 1) * shape_.group() - unit.first_query);
    const float* const row = input_.chosen.rows.row(unit.row);
    const uint64_t end = segment->position + token + 1;
    unit.pools = row + 1;
    unit.pool_count = static_cast<size_t>(row[0]);
    unit.behind = end / pool_ * pool_;
    unit.seen = unit.pool_count * pool_ + static_cast<size_t>(end - unit.behind);
    return unit;
  }

  void RunUnit(size_t number, float* copy) const {
    constexpr size_t kMostFloats = PartialFloats(kMostAttendedValues);
    alignas(kAlignment) float joined[kTileHeads * kMostFloats];
    alignas(kAlignment) float next[kTileHeads * kMostFloats];
    const Unit unit = UnitOf(number, copy);
    const size_t floats = PartialFloats(shape_.values());
    Attend(unit, 0, joined);
    for (size_t first = kSpanTokens; first < unit.seen; first += kSpanTokens) {
      Attend(unit, first, next);
      for (size_t q = 0; q < unit.queries; ++q) {
        JoinPartials(shape_.values(), joined + q * floats, next + q * floats);
      }
    }
    for (size_t q = 0; q < unit.queries; ++q) {
      float* out = out_.row(unit.row) + (unit.first_query + q) * shape_.values();
      FinishPartial(shape_.values(), joined + q * floats, out);
    }
  }

  // The queries' partials of the seen tokens [first, first + kSpanTokens).
  void Attend(const Unit& unit, size_t first, float* partials) const {
    const size_t count = std::min(kSpanTokens, unit.seen - first);
    SpanTokens tokens{.head_dim = shape_.head_dim,
                      .value_dim = shape_.values(),
                      .dtype = shape_.state_dtype,
                      .key_stride = InPlace() ? fold_interval_ : kGroup};
    for (size_t g = 0; g * kGroup < count; ++g) FindGroup(unit, first / kGroup + g, g, tokens);
    SpanQuery queries[kTileHeads];
    for (size_t q = 0; q < unit.queries; ++q) {
      queries[q] = {input_.q.row(unit.row) + (unit.first_query + q) * shape_.padded(), 0, count,
                    partials + q * PartialFloats(shape_.values())};
    }
    AttendSpan(tokens, std::span(queries, unit.queries));
  }

  // The first token of the unit's pool number i, behind the last of which is the rest.
  uint64_t PoolToken(const Unit& unit, size_t i) const {
    return i < unit.pool_count ? static_cast<uint64_t>(unit.pools[i]) * pool_ : unit.behind;
  }

  // The 16 seen tokens from 16 · `group` on become group `g` of the span.
  void FindGroup(const Unit& unit, size_t group, size_t g, SpanTokens& tokens) const {
    if (!InPlace()) return CopyGroup(unit, group, g, tokens);
    const uint64_t token = PoolToken(unit, group), row = token % fold_interval_;
    const KeyValuePages::Place place =
        pages_.Find(*unit.segment, token / fold_interval_, unit.head);
    const size_t size = DTypeSize(shape_.state_dtype);
    tokens.keys[g] = place.keys + row * size;
    tokens.values[g] = place.values + row * shape_.padded_values() * size;
  }

  void CopyGroup(const Unit& unit, size_t group, size_t g, SpanTokens& tokens) const {
    auto* const bytes = reinterpret_cast<std::byte*>(unit.copy);
    std::byte* const keys = bytes + g * GroupBytes(shape_.head_dim);
    std::byte* const values =
        bytes + kSpanGroups * GroupBytes(shape_.head_dim) + g * GroupBytes(shape_.padded_values());
    const size_t each = kGroup / pool_;
    for (size_t i = 0; i < each && (group * each + i) * pool_ < unit.seen; ++i) {
      const size_t count = std::min(pool_, unit.seen - (group * each + i) * pool_);
      CopyTokens(unit, PoolToken(unit, group * each + i), count, i * pool_, keys, values);
    }
    tokens.keys[g] = keys;
    tokens.values[g] = values;
  }

  // `count` tokens from `token` on to place `at` of a group.
  void CopyTokens(const Unit& unit, uint64_t token, size_t count, size_t at, std::byte* keys,
                  std::byte* values) const {
    const size_t size = DTypeSize(shape_.state_dtype), row = token % fold_interval_;
    const KeyValuePages::Place place =
        pages_.Find(*unit.segment, token / fold_interval_, unit.head);
    for (size_t i = 0; i < shape_.head_dim; ++i) {
      std::memcpy(keys + (i * kGroup + at) * size, place.keys + (i * fold_interval_ + row) * size,
                  count * size);
    }
    const size_t value = shape_.padded_values() * size;
    std::memcpy(values + at * value, place.values + row * value, count * value);
  }

  const SoftmaxAttentionShape& shape_;
  const KeyValuePages& pages_;
  const size_t fold_interval_;
  std::span<const Segment> segments_;
  const SoftmaxAttentionInput& input_;
  const size_t pool_;  // tokens
  FloatMatrix out_;
};

}  // namespace

void AttendToChosen(const SoftmaxAttentionShape& shape, const KeyValuePages& pages,
                    size_t fold_interval, std::span<const Segment> segments,
                    const SoftmaxAttentionInput& input, FloatMatrix out, Workspace& workspace,
                    ThreadPool& pool) {
  ChosenAttention(shape, pages, fold_interval, segments, input, out).Run(workspace, pool);
}

}  // namespace rivulet
