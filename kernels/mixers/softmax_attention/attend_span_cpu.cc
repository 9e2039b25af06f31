// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The CPU form of attend_span.h on blocks of 16 lanes: tokens in scores, columns in values. Both
// come in tiles of rows x blocks that keep their accumulators in registers; every tile shape does
// the same arithmetic for each number, so the shape is only a matter of speed.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mixers/softmax_attention/attend_span_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target, as Highway asks.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/base/simd-inl.h"
#include "kernels/mixers/softmax_attention/attend_span.h"
#include "kernels/recurrence/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

inline constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Rows of one tile, and the blocks that go with so many rows: 16 accumulators with AVX-512, half of
// the 16 registers with AVX2. A single row has one chain a block, so it takes more blocks.
inline constexpr size_t kTileRows = kVectors == 1 ? 4 : 2;
template <size_t kRows>
inline constexpr size_t kTileBlocks = kRows == kTileRows ? kTileRows : 2 * kTileRows;

// A partial's parts.
HWY_INLINE float* LengthOf(float* partial, size_t value_dim) {
  return partial + PaddedColumns(value_dim);
}
HWY_INLINE float* LargestOf(float* partial, size_t value_dim) {
  return partial + PaddedColumns(value_dim) + kBlock;
}

template <typename T>
HWY_INLINE const T* Keys(const SpanTokens& tokens, size_t group) {
  return static_cast<const T*>(tokens.keys[group]);
}
template <typename T>
HWY_INLINE const T* Values(const SpanTokens& tokens, size_t group) {
  return static_cast<const T*>(tokens.values[group]);
}

// Groups lie anywhere, and each is too short for the machine to guess what comes next. So the first
// tile of rows asks for a block's values while it scores its keys, and for the next block's keys
// while it adds the values; the tiles after it find both in a cache.
template <typename T>
HWY_INLINE void Prefetch(const T* page, size_t block) {
  constexpr size_t kBlocksALine = 64 / (kBlock * sizeof(T));
  if (block % kBlocksALine == 0) hwy::Prefetch(page + block * kBlock);
}

// What kRows rows see of one block, and their scores, which become weights.
template <size_t kRows>
struct BlockRows {
  const SpanQuery* rows;
  size_t block;                     // its first token in the span
  bool prefetch;                    // the first tile of rows
  size_t begin[kRows], end[kRows];  // tokens of the span, begin < end
  alignas(64) float weights[kRows][kBlockTokens];
};

template <size_t kRows, size_t kGroups, typename T>
HWY_INLINE void ScoreTile(const SpanTokens& tokens, size_t group, BlockRows<kRows>& block) {
  Block sum[kRows][kGroups];
  for (auto& row : sum) {
    for (Block& groups : row) groups = ZeroBlock();
  }
  const size_t value_blocks = PaddedColumns(tokens.value_dim);  // of a group of 16 tokens
  for (size_t i = 0; i < tokens.head_dim; ++i) {
    Block keys[kGroups];
    for (size_t g = 0; g < kGroups; ++g) {
      keys[g] = LoadBlock(Keys<T>(tokens, group + g) + i * tokens.key_stride);
      if (block.prefetch && i < value_blocks) Prefetch(Values<T>(tokens, group + g), i);
    }
    for (size_t a = 0; a < kRows; ++a) {
      const Block query = SetBlock(block.rows[a].query[i]);
      for (size_t g = 0; g < kGroups; ++g) sum[a][g] = MulAdd(query, keys[g], sum[a][g]);
    }
  }
  for (size_t a = 0; a < kRows; ++a) {
    float* scores = block.weights[a] + group * kBlock - block.block;
    for (size_t g = 0; g < kGroups; ++g) StoreBlock(sum[a][g], scores + g * kBlock);
  }
}

// Groups [group, end): tiles of kGroups, then of half as many, down to one.
template <size_t kRows, size_t kGroups, typename T>
HWY_INLINE void ScoreGroups(const SpanTokens& tokens, size_t group, size_t end,
                            BlockRows<kRows>& block) {
  for (; group + kGroups <= end; group += kGroups)
    ScoreTile<kRows, kGroups, T>(tokens, group, block);
  if constexpr (kGroups > 1) ScoreGroups<kRows, kGroups / 2, T>(tokens, group, end, block);
}

HWY_INLINE void ScaleRow(float scale, float* x, size_t padded) {
  const Block factor = SetBlock(scale);
  for (size_t i = 0; i < padded; i += kBlock) StoreBlock(Mul(LoadBlock(x + i), factor), x + i);
}

// e^x, NaN for NaN, which Highway's Exp turns into 0: a broken key must not be as if it were not
// there.
HWY_INLINE Block WeightOf(const Block& x) {
  return MapBlock(
      [](auto v) HWY_ATTR { return hn::IfThenElse(hn::Eq(v, v), hn::Exp(FloatTag(), v), v); }, x);
}

// Scores of tokens [begin, end) of a block to weights e^{score - m}, and what the partial holds
// already to the same m. What the row does not see has weight 0, even if it is NaN.
HWY_INLINE void Weigh(size_t value_dim, size_t begin, size_t end, float* scores, float* partial) {
  const size_t first = begin / kBlock * kBlock, last = RoundUp(end, kBlock);
  std::fill(scores + first, scores + begin, kNothing);
  std::fill(scores + end, scores + last, kNothing);
  Block top = LoadBlock(scores + first);
  for (size_t s = first + kBlock; s < last; s += kBlock) top = Max(top, LoadBlock(scores + s));
  float* largest = LargestOf(partial, value_dim);
  const float old = *largest;
  *largest = std::max(old, MaxBlock(top));
  const float scale = old == kNothing ? 0.0f : ExpOf(old - *largest);
  ScaleRow(scale, partial, PaddedColumns(value_dim));

  const Block shift = SetBlock(*largest);
  float* length = LengthOf(partial, value_dim);
  Block sum = Mul(LoadBlock(length), SetBlock(scale));
  for (size_t s = first; s < last; s += kBlock) {
    const Block weight = WeightOf(Sub(LoadBlock(scores + s), shift));
    StoreBlock(weight, scores + s);
    sum = Add(sum, weight);
  }
  StoreBlock(sum, length);
}

// The group a block later, or null.
template <typename T>
HWY_INLINE const T* NextKeys(const SpanTokens& tokens, size_t group) {
  group += kBlockTokens / kBlock;
  return group < kSpanGroups ? Keys<T>(tokens, group) : nullptr;
}

// o += Σ weight · v over tokens [begin, end) for rows [first, first + kCount), columns of one tile.
template <size_t kCount, size_t kBlocks, typename T, size_t kRows>
HWY_INLINE void ValueTile(const SpanTokens& tokens, const BlockRows<kRows>& block, size_t first,
                          size_t begin, size_t end, size_t column) {
  const size_t stride = PaddedColumns(tokens.value_dim);
  Block sum[kCount][kBlocks];
  for (size_t a = 0; a < kCount; ++a) {
    const float* o = block.rows[first + a].partial + column;
    for (size_t b = 0; b < kBlocks; ++b) sum[a][b] = LoadBlock(o + b * kBlock);
  }
  for (size_t s = begin; s < end;) {
    const size_t group = s / kBlock, stop = std::min(end, (group + 1) * kBlock);
    const T* value = Values<T>(tokens, group) + s % kBlock * stride + column;
    const T* next = block.prefetch ? NextKeys<T>(tokens, group) : nullptr;
    for (; s < stop; ++s, value += stride) {
      Block v[kBlocks];
      for (size_t b = 0; b < kBlocks; ++b) {
        v[b] = LoadBlock(value + b * kBlock);
        if (next != nullptr) Prefetch(next, (s % kBlock * stride + column) / kBlock + b);
      }
      for (size_t a = 0; a < kCount; ++a) {
        const Block weight = SetBlock(block.weights[first + a][s - block.block]);
        for (size_t b = 0; b < kBlocks; ++b) sum[a][b] = MulAdd(weight, v[b], sum[a][b]);
      }
    }
  }
  for (size_t a = 0; a < kCount; ++a) {
    float* o = block.rows[first + a].partial + column;
    for (size_t b = 0; b < kBlocks; ++b) StoreBlock(sum[a][b], o + b * kBlock);
  }
}

// All columns from `column` on: tiles of kBlocks, then of half as many, down to one.
template <size_t kCount, size_t kBlocks, typename T, size_t kRows>
HWY_INLINE void ValueColumns(const SpanTokens& tokens, const BlockRows<kRows>& block, size_t first,
                             size_t begin, size_t end, size_t column) {
  const size_t width = PaddedColumns(tokens.value_dim);
  for (; column + kBlocks * kBlock <= width; column += kBlocks * kBlock) {
    ValueTile<kCount, kBlocks, T>(tokens, block, first, begin, end, column);
  }
  if constexpr (kBlocks > 1) {
    ValueColumns<kCount, kBlocks / 2, T>(tokens, block, first, begin, end, column);
  }
}

template <typename T, size_t kRows>
void AddValues(const SpanTokens& tokens, const BlockRows<kRows>& block, size_t row, size_t begin,
               size_t end) {
  if (begin < end) ValueColumns<1, kTileBlocks<1>, T>(tokens, block, row, begin, end, 0);
}

// Each row's tokens ascend: first what it alone sees, then what all rows see, then the rest.
template <typename T, size_t kRows>
HWY_INLINE void AddAllValues(const SpanTokens& tokens, const BlockRows<kRows>& block) {
  const size_t from = *std::max_element(block.begin, block.begin + kRows);
  const size_t to = std::max(from, *std::min_element(block.end, block.end + kRows));
  for (size_t a = 0; a < kRows; ++a) {
    AddValues<T>(tokens, block, a, block.begin[a], std::min(from, block.end[a]));
  }
  if (from < to) ValueColumns<kRows, kTileBlocks<kRows>, T>(tokens, block, 0, from, to, 0);
  for (size_t a = 0; a < kRows; ++a) AddValues<T>(tokens, block, a, to, block.end[a]);
}

template <size_t kRows, typename T>
void AttendBlock(const SpanTokens& tokens, const SpanQuery* rows, size_t first_token,
                 bool prefetch) {
  BlockRows<kRows> block;
  block.rows = rows;
  block.block = first_token;
  block.prefetch = prefetch;
  for (size_t a = 0; a < kRows; ++a) {
    block.begin[a] = std::max(rows[a].begin, first_token);
    block.end[a] = std::min(rows[a].end, first_token + kBlockTokens);
    if (block.begin[a] < block.end[a]) continue;
    if constexpr (kRows > 1) {  // a row sees nothing here: each separately
      for (size_t b = 0; b < kRows; ++b) AttendBlock<1, T>(tokens, rows + b, first_token, prefetch);
    }
    return;
  }
  const size_t begin = *std::min_element(block.begin, block.begin + kRows);
  const size_t end = *std::max_element(block.end, block.end + kRows);
  ScoreGroups<kRows, kTileBlocks<kRows>, T>(tokens, begin / kBlock, RoundUp(end, kBlock) / kBlock,
                                            block);
  for (size_t a = 0; a < kRows; ++a) {
    Weigh(tokens.value_dim, block.begin[a] - first_token, block.end[a] - first_token,
          block.weights[a], rows[a].partial);
  }
  AddAllValues<T>(tokens, block);
}

// Rows from `row` on: tiles of kRows, then of half as many, down to one.
template <size_t kRows, typename T>
void AttendBlockRows(const SpanTokens& tokens, std::span<const SpanQuery> rows, size_t row,
                     size_t first_token) {
  for (; row + kRows <= rows.size(); row += kRows) {
    AttendBlock<kRows, T>(tokens, rows.data() + row, first_token, row == 0);
  }
  if constexpr (kRows > 1) AttendBlockRows<kRows / 2, T>(tokens, rows, row, first_token);
}

template <typename T>
void AttendBlocks(const SpanTokens& tokens, std::span<const SpanQuery> rows) {
  size_t begin = kSpanTokens, end = 0;
  for (const SpanQuery& row : rows) {
    begin = std::min(begin, row.begin);
    end = std::max(end, row.end);
  }
  for (size_t t = begin / kBlockTokens * kBlockTokens; t < end; t += kBlockTokens) {
    AttendBlockRows<kTileRows, T>(tokens, rows, 0, t);
  }
}

void AttendSpanOnTarget(const SpanTokens& tokens, std::span<const SpanQuery> rows) {
  for (const SpanQuery& row : rows) {
    std::fill_n(row.partial, PartialFloats(tokens.value_dim), 0.0f);
    *LargestOf(row.partial, tokens.value_dim) = kNothing;
  }
  if (tokens.dtype == DType::kBFloat16) {
    AttendBlocks<uint16_t>(tokens, rows);
  } else {
    AttendBlocks<float>(tokens, rows);
  }
  for (const SpanQuery& row : rows) {
    float* length = LengthOf(row.partial, tokens.value_dim);
    *length = SumBlock(LoadBlock(length));
  }
}

void JoinPartialsOnTarget(size_t value_dim, float* first, const float* second) {
  const size_t width = PaddedColumns(value_dim), largest = width + kBlock;
  const float top = std::max(first[largest], second[largest]);
  const Block a = Exp(SetBlock(first[largest] - top)), b = Exp(SetBlock(second[largest] - top));
  for (size_t i = 0; i < largest; i += kBlock) {  // o, and l behind it
    const Block later = Mul(LoadBlock(second + i), b);
    StoreBlock(MulAdd(LoadBlock(first + i), a, later), first + i);
  }
  first[largest] = top;
}

void FinishPartialOnTarget(size_t value_dim, const float* partial, float* out) {
  const Block inverse = SetBlock(1.0f / partial[PaddedColumns(value_dim)]);
  ForEachBlock(value_dim, [=](size_t i, size_t n) HWY_ATTR {
    StoreUpTo(Mul(LoadBlock(partial + i), inverse), out + i, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(AttendSpanOnTarget);
HWY_EXPORT(JoinPartialsOnTarget);
HWY_EXPORT(FinishPartialOnTarget);

void AttendSpan(const SpanTokens& tokens, std::span<const SpanQuery> rows) {
  HWY_DYNAMIC_DISPATCH(AttendSpanOnTarget)(tokens, rows);
}

void JoinPartials(size_t value_dim, float* first, const float* second) {
  HWY_DYNAMIC_DISPATCH(JoinPartialsOnTarget)(value_dim, first, second);
}

void FinishPartial(size_t value_dim, const float* partial, float* out) {
  HWY_DYNAMIC_DISPATCH(FinishPartialOnTarget)(value_dim, partial, out);
}

}  // namespace rivulet
#endif  // HWY_ONCE
