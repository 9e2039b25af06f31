// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The CPU form of delta.h. Columns are independent of each other, so a tile of columns goes all the
// way, from the base to the outputs, before the next: its part of the base is read from
// memory once and from the first caches after that.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/delta_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target, as Highway asks.
#include <algorithm>

#include "hwy/highway.h"
#include "kernels/base/simd-inl.h"
#include "kernels/recurrence/delta.h"
#include "kernels/recurrence/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// A register tile is pairs of queries (k_a, q_a) by blocks of columns: 2 x 4 pairs and blocks with
// AVX-512 (16 accumulators), 1 x 2 with AVX2, where a block is two registers. A single pair, as at
// decode, takes twice the blocks where they fit.
inline constexpr size_t kTilePairs = kVectors == 1 ? 2 : 1;
inline constexpr size_t kTileBlocks = kVectors == 1 ? 4 : 2;
inline constexpr size_t kSingleBlocks = kVectors == 1 ? 8 : 2;

// The most rows of a tail: two for each token in the low-rank form.
inline constexpr size_t kMaxRows = 2 * kMaxFoldInterval;

// A piece's weights under one value head's decays.
struct DeltaTables {
  size_t channels;  // of the base: D, or 0 where it reads as zero
  // The piece's keys and queries as they meet the base.
  const float* base_key[kMaxFoldInterval];
  const float* base_query[kMaxFoldInterval];
  float carried[kMaxFoldInterval];                       // e^{c_a}
  alignas(64) float query[kMaxFoldInterval * kMaxRows];  // [n, rows of the tail]
  alignas(64) float key[kMaxFoldInterval * kMaxRows];
};

void ScoreDeltaOnTarget(const SumTail& tail, const ConstFloatMatrix& queries, size_t begin,
                        DeltaScores& scores) {
  for (size_t a = 0; a < queries.rows; ++a) {
    const size_t place = begin + a;
    const float* own = tail.key + place * tail.key_stride;
    float* query = scores.query + a * kMaxFoldInterval;
    float* key = scores.key + a * kMaxFoldInterval;
    std::fill_n(query, RoundUp(place + 1, kBlock), 0.0f);
    std::fill_n(key, RoundUp(place + 1, kBlock), 0.0f);
    for (size_t s = 0; s < place; ++s) {
      const float* row = tail.key + s * tail.key_stride;
      query[s] = Dot(queries.row(a), row, queries.columns);
      key[s] = Dot(own, row, queries.columns);
    }
    query[place] = Dot(queries.row(a), own, queries.columns);
  }
}

// Σ_i q_i k_i e^{c_i - b_i} into `query` and Σ_i own_i k_i e^{c_i - b_i} into `key`.
HWY_INLINE void DecayedDots(const float* q, const float* own, const float* k, const float* c,
                            const float* b, size_t padded, float* query, float* key) {
  Block query_sum = ZeroBlock(), key_sum = ZeroBlock();
  for (size_t i = 0; i < padded; i += kBlock) {
    const Block decay = Exp(Sub(LoadBlock(c + i), LoadBlock(b + i)));
    const Block row = Mul(LoadBlock(k + i), decay);
    query_sum = MulAdd(LoadBlock(q + i), row, query_sum);
    key_sum = MulAdd(LoadBlock(own + i), row, key_sum);
  }
  *query = SumBlock(query_sum);
  *key = SumBlock(key_sum);
}

void ScoreDecayedDeltaOnTarget(const SumTail& tail, const ConstFloatMatrix& queries, size_t begin,
                               DeltaScores& scores) {
  for (size_t a = 0; a < queries.rows; ++a) {
    const size_t place = begin + a;
    const float* own = tail.key + place * tail.key_stride;
    const float* c = tail.log_decay + place * tail.decay_stride;
    float* query = scores.query + a * kMaxFoldInterval;
    float* key = scores.key + a * kMaxFoldInterval;
    std::fill_n(query, RoundUp(place + 1, kBlock), 0.0f);
    std::fill_n(key, RoundUp(place + 1, kBlock), 0.0f);
    for (size_t s = 0; s < place; ++s) {
      DecayedDots(queries.row(a), own, tail.key + s * tail.key_stride, c,
                  tail.log_decay + s * tail.decay_stride, queries.columns, query + s, key + s);
    }
    query[place] = Dot(queries.row(a), own, queries.columns);
  }
}

// x ∘ e^c into `to`.
HWY_INLINE void DecayRow(const float* x, const float* c, size_t padded, float* to) {
  for (size_t i = 0; i < padded; i += kBlock) {
    StoreBlock(Mul(LoadBlock(x + i), DecayOf(LoadBlock(c + i))), to + i);
  }
}

// What a read of a base of zeros is: 0, or NaN where the query is not finite.
HWY_INLINE float ReadOfZeros(const float* query, size_t padded) {
  Block read = ZeroBlock();
  for (size_t i = 0; i < padded; i += kBlock) {
    read = MulAdd(LoadBlock(query + i), ZeroBlock(), read);
  }
  return SumBlock(read);
}

// Decay by channel: keys and queries meet the base decayed, `decayed` [2n, padded D] receives them,
// and the scores are decayed already.
void FillChannelTables(const SumTail& tail, const DeltaPiece& piece, const DeltaScores& scores,
                       float* decayed, DeltaTables& tables) {
  const size_t padded = piece.queries.columns;
  for (size_t a = 0; a < piece.queries.rows; ++a) {
    const size_t place = piece.begin + a, row = a * kMaxFoldInterval;
    const float* c = tail.log_decay + place * tail.decay_stride;
    float* key = decayed + 2 * a * padded;
    float* query = key + padded;
    DecayRow(tail.key + place * tail.key_stride, c, padded, key);
    DecayRow(piece.queries.row(a), c, padded, query);
    tables.base_key[a] = key;
    tables.base_query[a] = query;
    tables.carried[a] = 1.0f;
    if (tables.channels == 0) {
      tables.carried[a] += ReadOfZeros(key, padded) + ReadOfZeros(query, padded);
    }
    std::copy_n(scores.query + row, place + 1, tables.query + a * kMaxRows);
    std::copy_n(scores.key + row, place + 1, tables.key + a * kMaxRows);
  }
}

void FillTables(const SumShape& shape, const SumTail& tail, const DeltaPiece& piece,
                const DeltaScores& scores, DeltaTables& tables) {
  for (size_t a = 0; a < piece.queries.rows; ++a) {
    const size_t place = piece.begin + a;
    const bool decays = shape.decay == Decay::kScalar;
    const float c = decays ? tail.log_decay[place * tail.decay_stride] : 0.0f;
    tables.base_key[a] = tail.key + place * tail.key_stride;
    tables.base_query[a] = piece.queries.row(a);
    tables.carried[a] = decays ? DecayOf(c) : 1.0f;
    for (size_t s = 0; s <= place; s += kBlock) {
      Block decay = SetBlock(1.0f);
      if (decays) decay = RowDecays(tail.log_decay, tail.decay_stride, s, place + 1, c, 1.0f);
      const size_t from = a * kMaxFoldInterval + s, to = a * kMaxRows + s;
      StoreBlock(Mul(LoadBlock(scores.query + from), decay), tables.query + to);
      StoreBlock(Mul(LoadBlock(scores.key + from), decay), tables.key + to);
    }
  }
}

// Σ_i x_i k_i e^{c_i - b_i} for x = q and x = a, k one of the two rows of a token.
HWY_INLINE void LowRankDots(const float* q, const float* a, const float* rows, const float* c,
                            const float* b, size_t padded, float* query, float* key) {
  Block query_k = ZeroBlock(), query_b = ZeroBlock(), key_k = ZeroBlock(), key_b = ZeroBlock();
  for (size_t i = 0; i < padded; i += kBlock) {
    const Block decay = Exp(Sub(LoadBlock(c + i), LoadBlock(b + i)));
    const Block first = Mul(LoadBlock(rows + i), decay);
    const Block second = Mul(LoadBlock(rows + padded + i), decay);
    const Block q_block = LoadBlock(q + i), a_block = LoadBlock(a + i);
    query_k = MulAdd(q_block, first, query_k);
    query_b = MulAdd(q_block, second, query_b);
    key_k = MulAdd(a_block, first, key_k);
    key_b = MulAdd(a_block, second, key_b);
  }
  query[0] = SumBlock(query_k);
  query[1] = SumBlock(query_b);
  key[0] = SumBlock(key_k);
  key[1] = SumBlock(key_b);
}

// One token of the low-rank form. a meets the sum before the token's own decay, so everything is
// decayed up to the place before, c, and the query by its own decay g besides. `decayed`
// [2, padded D] receives a and q as they meet the base.
void FillLowRankToken(const SumTail& tail, const LowRankPiece& piece, size_t a, float* decayed,
                      DeltaTables& tables) {
  alignas(64) static constexpr float kZeros[kMaxKeyDim] = {};
  const size_t place = piece.begin + a, padded = piece.queries.columns;
  const float* c = place == 0 ? kZeros : tail.log_decay + (place - 1) * tail.decay_stride;
  const float* own = tail.key + 2 * place * tail.key_stride;
  float* query = tables.query + a * kMaxRows;
  float* key = decayed;
  float* later = decayed + padded;  // q ∘ e^g
  DecayRow(piece.queries.row(a), piece.log_decays.row(a), padded, later);
  for (size_t s = 0; s < place; ++s) {
    LowRankDots(later, piece.readers.row(a), tail.key + 2 * s * tail.key_stride, c,
                tail.log_decay + s * tail.decay_stride, padded, query + 2 * s,
                tables.key + a * kMaxRows + 2 * s);
  }
  query[2 * place] = Dot(piece.queries.row(a), own, padded);
  query[2 * place + 1] = Dot(piece.queries.row(a), own + tail.key_stride, padded);
  DecayRow(piece.readers.row(a), c, padded, key);
  DecayRow(later, c, padded, later);
  tables.base_key[a] = key;
  tables.base_query[a] = later;
  tables.carried[a] = 1.0f;
  if (tables.channels != 0) return;
  tables.carried[a] += ReadOfZeros(key, padded) + ReadOfZeros(later, padded);
}

// k_a S_0 into the tail's row of u and q_a S_0 into out, for kPairs places from `first`.
// Here and below kRows is what a token has in the tail: its solved row, or before that the one of
// its value (low-rank form).
template <size_t kRows, size_t kPairs, size_t kBlocks, typename T>
HWY_INLINE void ReadPairs(const SumShape& shape, const T* matrix, const SumTail& tail,
                          const DeltaPiece& piece, const DeltaTables& tables, size_t first,
                          size_t column, const FloatMatrix& out) {
  Block sum[2 * kPairs][kBlocks];
  const float* query[2 * kPairs];
  for (size_t p = 0; p < kPairs; ++p) {
    query[2 * p] = tables.base_key[first + p];
    query[2 * p + 1] = tables.base_query[first + p];
  }
  for (auto& row : sum) {
    for (Block& block : row) block = ZeroBlock();
  }
  const size_t stride = shape.padded_value();
  for (size_t i = 0; i < tables.channels; ++i) {
    Block m[kBlocks];
    for (size_t b = 0; b < kBlocks; ++b)
      m[b] = LoadBlock(matrix + i * stride + column + b * kBlock);
    for (size_t r = 0; r < 2 * kPairs; ++r) {
      const Block q = SetBlock(query[r][i]);
      for (size_t b = 0; b < kBlocks; ++b) sum[r][b] = MulAdd(q, m[b], sum[r][b]);
    }
  }
  for (size_t p = 0; p < kPairs; ++p) {
    const size_t place = piece.begin + first + p;
    float* solved = piece.solved + kRows * place * tail.value_stride + column;
    float* read = out.row(first + p) + column;
    for (size_t b = 0; b < kBlocks; ++b) {
      StoreBlock(sum[2 * p][b], solved + b * kBlock);
      StoreBlock(sum[2 * p + 1][b], read + b * kBlock);
    }
  }
}

// Row a of u and of out, from what ReadPairs left there and the rows of the tail before it. In the
// low-rank form u is the read itself: -1 (0 - read).
template <size_t kRows, size_t kBlocks>
HWY_INLINE void SolveRow(const SumTail& tail, const DeltaPiece& piece, const DeltaTables& tables,
                         size_t a, size_t column, const FloatMatrix& out) {
  constexpr bool kLowRank = kRows == 2;
  const size_t place = piece.begin + a, before = kRows * place, stride = tail.value_stride;
  float* solved = piece.solved + before * stride + column;
  float* read = out.row(a) + column;
  Block u[kBlocks], o[kBlocks];
  for (size_t b = 0; b < kBlocks; ++b) {
    const Block value =
        kLowRank ? ZeroBlock() : LoadBlock(piece.values.row(a) + column + b * kBlock);
    u[b] = MulAdd(SetBlock(-tables.carried[a]), LoadBlock(solved + b * kBlock), value);
    o[b] = Mul(SetBlock(tables.carried[a]), LoadBlock(read + b * kBlock));
  }
  const float* query = tables.query + a * kMaxRows;
  const float* key = tables.key + a * kMaxRows;
  for (size_t s = 0; s < before; ++s) {
    const float* row = tail.value + s * stride + column;
    const Block k = SetBlock(-key[s]), q = SetBlock(query[s]);
    for (size_t b = 0; b < kBlocks; ++b) {
      const Block earlier = LoadBlock(row + b * kBlock);
      u[b] = MulAdd(k, earlier, u[b]);
      o[b] = MulAdd(q, earlier, o[b]);
    }
  }
  const Block beta = SetBlock(kLowRank ? -1.0f : piece.beta[a * piece.beta_stride]);
  const Block q = SetBlock(query[before + kRows - 1]);
  for (size_t b = 0; b < kBlocks; ++b) {
    if constexpr (kLowRank) {
      const float* value = tail.value + before * stride + column;
      o[b] = MulAdd(SetBlock(query[before]), LoadBlock(value + b * kBlock), o[b]);
    }
    u[b] = Mul(beta, u[b]);
    StoreBlock(u[b], solved + b * kBlock);
    StoreBlock(MulAdd(q, u[b], o[b]), read + b * kBlock);
  }
}

// All columns from `column`: tiles of kBlocks, then of half as many, down to one.
template <size_t kRows, size_t kBlocks, typename T>
HWY_INLINE void SolveColumns(const SumShape& shape, const T* matrix, const SumTail& tail,
                             const DeltaPiece& piece, const DeltaTables& tables, size_t column,
                             const FloatMatrix& out) {
  const size_t rows = piece.queries.rows;
  for (; column + kBlocks * kBlock <= shape.padded_value(); column += kBlocks * kBlock) {
    size_t a = 0;
    for (; a + kTilePairs <= rows; a += kTilePairs) {
      ReadPairs<kRows, kTilePairs, kBlocks>(shape, matrix, tail, piece, tables, a, column, out);
    }
    for (; a < rows; ++a) {
      ReadPairs<kRows, 1, kBlocks>(shape, matrix, tail, piece, tables, a, column, out);
    }
    for (a = 0; a < rows; ++a) SolveRow<kRows, kBlocks>(tail, piece, tables, a, column, out);
  }
  if constexpr (kBlocks > 1) {
    SolveColumns<kRows, kBlocks / 2>(shape, matrix, tail, piece, tables, column, out);
  }
}

template <size_t kRows, typename T>
void SolveTyped(const SumShape& shape, const T* matrix, const SumTail& tail,
                const DeltaPiece& piece, const DeltaTables& tables, const FloatMatrix& out) {
  if (piece.queries.rows > 1) {
    SolveColumns<kRows, kTileBlocks>(shape, matrix, tail, piece, tables, 0, out);
    return;
  }
  SolveColumns<kRows, kSingleBlocks>(shape, matrix, tail, piece, tables, 0, out);
}

template <size_t kRows>
void SolveMatrix(const SumShape& shape, const SumBase& base, const SumTail& tail,
                 const DeltaPiece& piece, const DeltaTables& tables, const FloatMatrix& out) {
  if (shape.dtype == DType::kBFloat16) {
    const auto* matrix = static_cast<const uint16_t*>(base.matrix);
    return SolveTyped<kRows>(shape, matrix, tail, piece, tables, out);
  }
  SolveTyped<kRows>(shape, static_cast<const float*>(base.matrix), tail, piece, tables, out);
}

void SolveDeltaOnTarget(const SumShape& shape, const SumBase& base, const SumTail& tail,
                        const DeltaPiece& piece, const DeltaScores& scores,
                        const FloatMatrix& out) {
  alignas(64) float decayed[2 * kMaxFoldInterval * kMaxKeyDim];
  DeltaTables tables;
  tables.channels = base.matrix == nullptr ? 0 : shape.key_dim;
  if (shape.decay == Decay::kChannel) {
    FillChannelTables(tail, piece, scores, decayed, tables);
  } else {
    FillTables(shape, tail, piece, scores, tables);
  }
  SolveMatrix<1>(shape, base, tail, piece, tables, out);
}

void SolveLowRankOnTarget(const SumShape& shape, const SumBase& base, const SumTail& tail,
                          const LowRankPiece& piece, const FloatMatrix& out) {
  alignas(64) float decayed[2 * kMaxFoldInterval * kMaxKeyDim];
  DeltaTables tables;
  tables.channels = base.matrix == nullptr ? 0 : shape.key_dim;
  for (size_t a = 0; a < piece.queries.rows; ++a) {
    FillLowRankToken(tail, piece, a, decayed + 2 * a * piece.queries.columns, tables);
  }
  const DeltaPiece solved{
      .queries = piece.queries, .values = {}, .begin = piece.begin, .solved = piece.solved};
  SolveMatrix<2>(shape, base, tail, solved, tables, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ScoreDeltaOnTarget);
HWY_EXPORT(ScoreDecayedDeltaOnTarget);
HWY_EXPORT(SolveDeltaOnTarget);
HWY_EXPORT(SolveLowRankOnTarget);

void ScoreDelta(const SumTail& tail, const ConstFloatMatrix& queries, size_t begin,
                DeltaScores& scores) {
  HWY_DYNAMIC_DISPATCH(ScoreDeltaOnTarget)(tail, queries, begin, scores);
}

void ScoreDecayedDelta(const SumTail& tail, const ConstFloatMatrix& queries, size_t begin,
                       DeltaScores& scores) {
  HWY_DYNAMIC_DISPATCH(ScoreDecayedDeltaOnTarget)(tail, queries, begin, scores);
}

void SolveDelta(const SumShape& shape, const SumBase& base, const SumTail& tail,
                const DeltaPiece& piece, const DeltaScores& scores, FloatMatrix out) {
  HWY_DYNAMIC_DISPATCH(SolveDeltaOnTarget)(shape, base, tail, piece, scores, out);
}

void SolveLowRank(const SumShape& shape, const SumBase& base, const SumTail& tail,
                  const LowRankPiece& piece, FloatMatrix out) {
  HWY_DYNAMIC_DISPATCH(SolveLowRankOnTarget)(shape, base, tail, piece, out);
}

}  // namespace rivulet
#endif  // HWY_ONCE
