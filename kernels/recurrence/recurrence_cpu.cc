// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The CPU form of recurrence.h on blocks of 16 columns. Reads come in tiles of queries x blocks
// that keep their accumulators in registers; every tile shape does the same arithmetic for each
// number, so the shape is only a matter of speed.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/recurrence_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target, as Highway asks.
#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/base/simd-inl.h"
#include "kernels/recurrence/recurrence.h"
#include "kernels/recurrence/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// Queries and columns of one register tile. With AVX-512 a block is one register: 4 x 4
// accumulators. With AVX2 it is two: 2 x 2 blocks are 8 registers of the 16.
inline constexpr size_t kTileQueries = kVectors == 1 ? 4 : 2;
inline constexpr size_t kTileBlocks = kVectors == 1 ? 4 : 2;
// A single query has one chain a block, so it takes more blocks to keep the multiply-add units
// busy.
inline constexpr size_t kSingleBlocks = kVectors == 1 ? 8 : 4;

// Everything about a read that its tiles share. Scratch of at most kMaxFoldInterval queries.
struct ReadTables {
  size_t padded_key;
  size_t channels;  // of the base: D, or 0 where it reads as zero
  size_t queries;
  // [n, padded D]: the queries as they meet the base: decayed by channel if decay is by
  // channel.
  const float* query;
  size_t query_stride;
  float decay[kMaxFoldInterval];  // e^{c_a}, once a query; 1 unless decay is scalar
  size_t rows[kMaxFoldInterval];  // tail rows that the query sees
  float weight[kMaxFoldInterval *
               kMaxFoldInterval];  // (q_a·k_s) e^{c_a - c_s}, kMaxFoldInterval apart
};

// Σ_i q_i k_i e^{c_i - b_i}: GLA's score (docs/mixers.md#gla), from the difference of the
// cumulative decays.
float DecayedDot(const float* q, const float* k, const float* c, const float* b, size_t padded,
                 float power) {
  const Block scale = SetBlock(power);
  Block sum = ZeroBlock();
  for (size_t i = 0; i < padded; i += kBlock) {
    const Block decay = Exp(Mul(scale, Sub(LoadBlock(c + i), LoadBlock(b + i))));
    sum = MulAdd(Mul(LoadBlock(q + i), LoadBlock(k + i)), decay, sum);
  }
  return SumBlock(sum);
}

// The place whose cumulative decay a query stands at: its own, or the one before for a strict read.
// Place -1 is the chunk border, with cumulative decay zero.
ptrdiff_t DecayPlace(const SumQuery& query, size_t a) {
  return static_cast<ptrdiff_t>(query.begin + a) - (query.strict ? 1 : 0);
}

// weight[a, s] *= e^{power (c - c_s)} for the rows that the query sees, in blocks.
void DecayWeights(const SumTail& tail, float c, size_t rows, float* weight) {
  for (size_t s = 0; s < rows; s += kBlock) {
    const Block decay = RowDecays(tail.log_decay, tail.decay_stride, s, rows, c, tail.decay_power);
    StoreBlock(Mul(LoadBlock(weight + s), decay), weight + s);
  }
}

void ScalarWeights(const SumShape& shape, const SumTail& tail, const SumQuery& query,
                   ReadTables& tables) {
  for (size_t a = 0; a < tables.queries; ++a) {
    float* weight = tables.weight + a * kMaxFoldInterval;
    std::fill_n(weight, RoundUp(tables.rows[a], kBlock), 0.0f);
    for (size_t s = 0; s < tables.rows[a]; ++s) {
      weight[s] = Dot(query.queries.row(a), tail.key + s * tail.key_stride, tables.padded_key);
    }
    const ptrdiff_t place = DecayPlace(query, a);
    tables.decay[a] = 1.0f;
    if (shape.decay == Decay::kNone || place < 0) continue;
    const float c = tail.log_decay[place * tail.decay_stride];
    tables.decay[a] = DecayOf(tail.decay_power * c);
    DecayWeights(tail, c, tables.rows[a], weight);
  }
}

// `decayed` [n, padded D] receives q_i e^{c_i}, the queries as they meet the base.
void ChannelWeights(const SumTail& tail, const SumQuery& query, float* decayed,
                    ReadTables& tables) {
  const size_t padded = tables.padded_key;
  const Block power = SetBlock(tail.decay_power);
  for (size_t a = 0; a < tables.queries; ++a) {
    const ptrdiff_t place = DecayPlace(query, a);
    const float* q = query.queries.row(a);
    float* out = decayed + a * padded;
    tables.decay[a] = 1.0f;
    if (place < 0) {
      std::copy_n(q, padded, out);
      continue;
    }
    const float* c = tail.log_decay + place * tail.decay_stride;
    for (size_t i = 0; i < padded; i += kBlock) {
      StoreBlock(Mul(LoadBlock(q + i), DecayOf(Mul(power, LoadBlock(c + i)))), out + i);
    }
    for (size_t s = 0; s < tables.rows[a]; ++s) {
      tables.weight[a * kMaxFoldInterval + s] =
          DecayedDot(q, tail.key + s * tail.key_stride, c, tail.log_decay + s * tail.decay_stride,
                     padded, tail.decay_power);
    }
  }
}

// out[a, columns of the tile] for queries [first, first + kQueries), blocks from `column`.
template <size_t kQueries, size_t kBlocks, typename T>
HWY_INLINE void ReadTile(const SumShape& shape, const T* matrix, const SumTail& tail,
                         const ReadTables& tables, size_t first, size_t column,
                         const FloatMatrix& out) {
  Block sum[kQueries][kBlocks];
  for (auto& row : sum) {
    for (Block& block : row) block = ZeroBlock();
  }
  const size_t stride = shape.padded_value();
  for (size_t i = 0; i < tables.channels; ++i) {
    Block m[kBlocks];
    for (size_t b = 0; b < kBlocks; ++b)
      m[b] = LoadBlock(matrix + i * stride + column + b * kBlock);
    for (size_t a = 0; a < kQueries; ++a) {
      const Block q = SetBlock(tables.query[(first + a) * tables.query_stride + i]);
      for (size_t b = 0; b < kBlocks; ++b) sum[a][b] = MulAdd(q, m[b], sum[a][b]);
    }
  }
  for (size_t a = 0; a < kQueries; ++a) {
    const float* weight = tables.weight + (first + a) * kMaxFoldInterval;
    const Block decay = SetBlock(tables.decay[first + a]);
    for (size_t b = 0; b < kBlocks; ++b) sum[a][b] = Mul(sum[a][b], decay);
    for (size_t s = 0; s < tables.rows[first + a]; ++s) {
      const float* value = tail.value + s * tail.value_stride + column;
      const Block w = SetBlock(weight[s]);
      for (size_t b = 0; b < kBlocks; ++b) {
        sum[a][b] = MulAdd(w, LoadBlock(value + b * kBlock), sum[a][b]);
      }
    }
    for (size_t b = 0; b < kBlocks; ++b)
      StoreBlock(sum[a][b], out.row(first + a) + column + b * kBlock);
  }
}

// All columns for kQueries queries: tiles of kBlocks, then of half as many, down to one.
template <size_t kQueries, size_t kBlocks, typename T>
HWY_INLINE void ReadColumns(const SumShape& shape, const T* matrix, const SumTail& tail,
                            const ReadTables& tables, size_t first, size_t column,
                            const FloatMatrix& out) {
  const size_t end = shape.padded_value();
  for (; column + kBlocks * kBlock <= end; column += kBlocks * kBlock) {
    ReadTile<kQueries, kBlocks>(shape, matrix, tail, tables, first, column, out);
  }
  if constexpr (kBlocks > 1) {
    ReadColumns<kQueries, kBlocks / 2>(shape, matrix, tail, tables, first, column, out);
  }
}

template <typename T>
void ReadMatrix(const SumShape& shape, const T* matrix, const SumTail& tail,
                const ReadTables& tables, const FloatMatrix& out) {
  size_t a = 0;
  for (; a + kTileQueries <= tables.queries; a += kTileQueries) {
    ReadColumns<kTileQueries, kTileBlocks>(shape, matrix, tail, tables, a, 0, out);
  }
  for (; a < tables.queries; ++a) {
    ReadColumns<1, kSingleBlocks>(shape, matrix, tail, tables, a, 0, out);
  }
}

void ReadNormaliser(const float* normaliser, const SumTail& tail, const ReadTables& tables,
                    float* extra) {
  for (size_t a = 0; a < tables.queries; ++a) {
    float sum = 0.0f;
    if (normaliser != nullptr) {
      sum = Dot(tables.query + a * tables.query_stride, normaliser, tables.padded_key);
    }
    sum *= tables.decay[a];
    for (size_t s = 0; s < tables.rows[a]; ++s) {
      const float value = tail.extra == nullptr ? 1.0f : tail.extra[s * tail.extra_stride];
      sum = std::fma(tables.weight[a * kMaxFoldInterval + s], value, sum);
    }
    extra[a] = sum;
  }
}

// A base that reads as zero: a read of it is zero, or NaN where the query is not finite. The NaN
// goes into the factor that the read is multiplied by.
void ReadZeroBase(ReadTables& tables) {
  tables.channels = 0;
  for (size_t a = 0; a < tables.queries; ++a) {
    const float* query = tables.query + a * tables.query_stride;
    Block read = ZeroBlock();
    for (size_t i = 0; i < tables.padded_key; i += kBlock) {
      read = MulAdd(LoadBlock(query + i), ZeroBlock(), read);
    }
    tables.decay[a] += SumBlock(read);
  }
}

void ReadSumOnTarget(const SumShape& shape, const SumBase& base, const SumTail& tail,
                     const SumQuery& query, const FloatMatrix& out, float* extra) {
  alignas(64) float decayed[kMaxFoldInterval * kMaxKeyDim];
  ReadTables tables;
  tables.padded_key = shape.padded_key();
  tables.channels = shape.key_dim;
  tables.queries = query.queries.rows;
  tables.query = query.queries.data;
  tables.query_stride = query.queries.stride;
  for (size_t a = 0; a < tables.queries; ++a) {
    tables.rows[a] = query.begin + a + (query.strict ? 0 : 1);
  }
  if (shape.decay == Decay::kChannel) {
    ChannelWeights(tail, query, decayed, tables);
    tables.query = decayed;
    tables.query_stride = tables.padded_key;
    // A strict read of place 0 has no row and no decay; its weights are never looked at.
  } else {
    ScalarWeights(shape, tail, query, tables);
  }
  if (base.matrix == nullptr) ReadZeroBase(tables);
  if (shape.dtype == DType::kBFloat16) {
    ReadMatrix(shape, static_cast<const uint16_t*>(base.matrix), tail, tables, out);
  } else {
    ReadMatrix(shape, static_cast<const float*>(base.matrix), tail, tables, out);
  }
  if (shape.normaliser) ReadNormaliser(base.normaliser, tail, tables, extra);
}

// The most rows that a fold adds: two for each token.
inline constexpr size_t kMaxFoldRows = 2 * kMaxFoldInterval;

// What a fold does to the old sum and to each row: e^{c_end} and k_s e^{c_end - c_s}.
struct FoldTables {
  alignas(64) float key[kMaxFoldRows * kMaxKeyDim];  // [rows, padded D], decayed to the chunk's end
  alignas(64) float decay[kMaxKeyDim];               // [padded D]
};

// No decay or one a head: a single exp a row, regardless of D.
void ScalarFoldWeights(const SumShape& shape, const SumTail& tail, FoldTables& tables) {
  const size_t padded = shape.padded_key();
  const bool decays = shape.decay == Decay::kScalar;
  const Block power = SetBlock(tail.decay_power);
  const float end = decays ? tail.log_decay[(tail.chunk - 1) * tail.decay_stride] : 0.0f;
  const Block whole = DecayOf(Mul(power, SetBlock(end)));
  for (size_t i = 0; i < padded; i += kBlock) StoreBlock(whole, tables.decay + i);
  for (size_t row = 0; row < tail.chunk * tail.rows_a_token; ++row) {
    const float c = decays ? tail.log_decay[row / tail.rows_a_token * tail.decay_stride] : 0.0f;
    const Block decay = Exp(Mul(power, SetBlock(end - c)));
    for (size_t i = 0; i < padded; i += kBlock) {
      const Block key = LoadBlock(tail.key + row * tail.key_stride + i);
      StoreBlock(Mul(key, decay), tables.key + row * padded + i);
    }
  }
}

void ChannelFoldWeights(const SumShape& shape, const SumTail& tail, FoldTables& tables) {
  const size_t padded = shape.padded_key();
  const Block power = SetBlock(tail.decay_power);
  const float* end = tail.log_decay + (tail.chunk - 1) * tail.decay_stride;
  for (size_t i = 0; i < padded; i += kBlock) {
    StoreBlock(DecayOf(Mul(power, LoadBlock(end + i))), tables.decay + i);
    for (size_t s = 0; s < tail.chunk; ++s) {
      const Block c = LoadBlock(tail.log_decay + s * tail.decay_stride + i);
      const Block decay = Exp(Mul(power, Sub(LoadBlock(end + i), c)));
      const size_t first = s * tail.rows_a_token;
      for (size_t row = first; row < first + tail.rows_a_token; ++row) {
        const Block key = LoadBlock(tail.key + row * tail.key_stride + i);
        StoreBlock(Mul(key, decay), tables.key + row * padded + i);
      }
    }
  }
}

// Row i of the new matrix, columns of one tile: decayed, then the chunk's rows ascending. `from`
// null reads as zero.
template <size_t kRows, size_t kBlocks, typename T>
HWY_INLINE void FoldTile(const T* from, T* to, const float* value, size_t value_stride,
                         const float* key, size_t key_stride, float decay) {
  Block sum[kBlocks];
  const Block scale = SetBlock(decay);
  for (size_t b = 0; b < kBlocks; ++b) {
    sum[b] = Mul(from == nullptr ? ZeroBlock() : LoadBlock(from + b * kBlock), scale);
  }
  for (size_t s = 0; s < kRows; ++s) {
    const Block k = SetBlock(key[s * key_stride]);
    for (size_t b = 0; b < kBlocks; ++b) {
      sum[b] = MulAdd(k, LoadBlock(value + s * value_stride + b * kBlock), sum[b]);
    }
  }
  for (size_t b = 0; b < kBlocks; ++b) StoreBlock(sum[b], to + b * kBlock);
}

// A row's columns: tiles of kBlocks, then of half as many, down to one.
template <size_t kRows, size_t kBlocks, typename T>
HWY_INLINE void FoldRow(const T* from, T* to, size_t column, size_t columns, const SumTail& tail,
                        const float* key, size_t key_stride, float decay) {
  for (; column + kBlocks * kBlock <= columns; column += kBlocks * kBlock) {
    FoldTile<kRows, kBlocks>(from == nullptr ? nullptr : from + column, to + column,
                             tail.value + column, tail.value_stride, key, key_stride, decay);
  }
  if constexpr (kBlocks > 1) {
    FoldRow<kRows, kBlocks / 2>(from, to, column, columns, tail, key, key_stride, decay);
  }
}

// Row after row, so that memory is walked in order; the tail's values stay in the first cache.
template <size_t kRows, typename T>
void FoldMatrixRows(const SumShape& shape, const T* from, T* to, const SumTail& tail,
                    const FoldTables& tables) {
  const size_t stride = shape.padded_value();
  for (size_t i = 0; i < shape.key_dim; ++i) {
    FoldRow<kRows, kTileBlocks>(from == nullptr ? nullptr : from + i * stride, to + i * stride, 0,
                                stride, tail, tables.key + i, shape.padded_key(), tables.decay[i]);
  }
}

template <typename T>
void FoldMatrix(const SumShape& shape, const T* from, T* to, const SumTail& tail,
                const FoldTables& tables) {
  const size_t rows = tail.chunk * tail.rows_a_token;
  if (rows == kMaxFoldRows) return FoldMatrixRows<kMaxFoldRows>(shape, from, to, tail, tables);
  if (rows == 2 * kBlock) return FoldMatrixRows<2 * kBlock>(shape, from, to, tail, tables);
  FoldMatrixRows<kBlock>(shape, from, to, tail, tables);
}

void FoldNormaliser(const SumShape& shape, const float* from, float* to, const SumTail& tail,
                    const FoldTables& tables) {
  const size_t padded = shape.padded_key();
  for (size_t i = 0; i < padded; i += kBlock) {
    const Block old = from == nullptr ? ZeroBlock() : LoadBlock(from + i);
    Block sum = Mul(old, LoadBlock(tables.decay + i));
    for (size_t s = 0; s < tail.chunk; ++s) {
      const float value = tail.extra == nullptr ? 1.0f : tail.extra[s * tail.extra_stride];
      sum = MulAdd(LoadBlock(tables.key + s * padded + i), SetBlock(value), sum);
    }
    StoreBlock(sum, to + i);
  }
}

void FoldSumOnTarget(const SumShape& shape, const SumBase& from, const SumBase& to,
                     const SumTail& tail) {
  FoldTables tables;
  if (shape.decay == Decay::kChannel) {
    ChannelFoldWeights(shape, tail, tables);
  } else {
    ScalarFoldWeights(shape, tail, tables);
  }
  if (shape.dtype == DType::kBFloat16) {
    FoldMatrix(shape, static_cast<const uint16_t*>(from.matrix), static_cast<uint16_t*>(to.matrix),
               tail, tables);
  } else {
    FoldMatrix(shape, static_cast<const float*>(from.matrix), static_cast<float*>(to.matrix), tail,
               tables);
  }
  if (shape.normaliser) FoldNormaliser(shape, from.normaliser, to.normaliser, tail, tables);
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ReadSumOnTarget);
HWY_EXPORT(FoldSumOnTarget);
HWY_EXPORT(TargetName);

void ReadSum(const SumShape& shape, const SumBase& base, const SumTail& tail, const SumQuery& query,
             FloatMatrix out, float* extra) {
  HWY_DYNAMIC_DISPATCH(ReadSumOnTarget)(shape, base, tail, query, out, extra);
}

void FoldSum(const SumShape& shape, const SumBase& from, const SumBase& to, const SumTail& tail) {
  HWY_DYNAMIC_DISPATCH(FoldSumOnTarget)(shape, from, to, tail);
}

const char* RecurrenceTarget() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace rivulet
#endif  // HWY_ONCE
