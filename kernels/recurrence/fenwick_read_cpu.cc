// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The CPU form of fenwick.h's reads, in register tiles as recurrence_cpu.cc.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/fenwick_read_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target, as Highway asks.
#include <algorithm>
#include <array>
#include <bit>

#include "hwy/highway.h"
#include "kernels/base/simd-inl.h"
#include "kernels/recurrence/fenwick.h"
#include "kernels/recurrence/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// Queries and blocks of columns of one register tile. A single query has one chain a block, so it
// takes more blocks.
inline constexpr size_t kTileQueries = kVectors == 1 ? 4 : 2;
inline constexpr size_t kTileBlocks = kVectors == 1 ? 4 : 2;
inline constexpr size_t kSingleBlocks = kVectors == 1 ? 8 : 4;

// ℓ(a, s) of two places of a chunk.
inline constexpr auto kPlaceLevel = [] {
  std::array<std::array<uint8_t, kMaxFoldInterval>, kMaxFoldInterval> level{};
  for (size_t a = 0; a < kMaxFoldInterval; ++a) {
    for (size_t s = 0; s < kMaxFoldInterval; ++s) {
      level[a][s] = static_cast<uint8_t>(std::bit_width(a ^ s));
    }
  }
  return level;
}();

// Everything about a read that its tiles share.
struct ReadTables {
  size_t queries;
  const float* query;  // [n, padded D]: q or, for delta, q̂
  size_t query_stride;
  size_t pages;  // those that exist, from the smallest
  const std::byte* page[kMaxLevels];
  size_t rows[kMaxFoldInterval];  // tail rows that the query sees
  alignas(64) float page_weight[kMaxFoldInterval][kMaxLevels];
  alignas(64) float row_weight[kMaxFoldInterval][kMaxFoldInterval];
};

// λ_a[level] e^{c_a + log_decay} of each page, 16 pages at a time.
void WeighPages(const FenwickShape& shape, const FenwickPages& pages, const FenwickTail& tail,
                const FenwickQuery& query, ReadTables& tables) {
  alignas(64) float high[kMaxLevels] = {}, low[kMaxLevels] = {}, lambda[kMaxLevels] = {};
  uint32_t level[kMaxLevels];
  tables.pages = 0;
  for (uint32_t p = 0; p < shape.pages(); ++p) {
    if (pages.matrix[p] == nullptr) continue;
    const size_t i = tables.pages++;
    tables.page[i] = pages.matrix[p];
    high[i] = pages.log_decay[2 * p];
    low[i] = pages.log_decay[2 * p + 1];
    level[i] = FenwickPageLevel(p, shape.levels, shape.fold_interval);
  }
  for (size_t a = 0; a < tables.queries; ++a) {
    const Block c = SetBlock(tail.log_decay[query.begin + a]);
    for (size_t i = 0; i < tables.pages; ++i) lambda[i] = query.weights.row(a)[level[i]];
    for (size_t i = 0; i < tables.pages; i += kBlock) {
      const Block decay = DecayOf(Add(Add(c, LoadBlock(low + i)), LoadBlock(high + i)));
      StoreBlock(Mul(decay, LoadBlock(lambda + i)), tables.page_weight[a] + i);
    }
  }
}

// e^{c_a - c_s} λ_a[ℓ(a, s)] for the rows from `first` on, a block of them, that the query at
// `place` sees, 0 for the others.
HWY_INLINE Block RowFactors(const FenwickShape& shape, const FenwickTail& tail, size_t first,
                            size_t place, const float* lambda) {
  alignas(64) float level_weight[kBlock] = {};
  for (size_t s = first; s < std::min(first + kBlock, place + 1); ++s) {
    level_weight[s - first] = lambda[std::min<uint32_t>(kPlaceLevel[place][s], shape.levels - 1)];
  }
  const Block decay = RowDecays(tail.log_decay, 1, first, place + 1, tail.log_decay[place], 1.0f);
  return Mul(decay, LoadBlock(level_weight));
}

// From scores [C] to the x with x (I + N) = scores, in place, from the last place down; N's row r
// is zero from column r on. Scores behind the place are zeros.
template <size_t kRows>
HWY_INLINE void SolveScores(const FenwickTail& tail, size_t place, float* scores) {
  Block x[kRows / kBlock];
  for (size_t b = 0; b < kRows / kBlock; ++b) x[b] = LoadBlock(scores + b * kBlock);
  for (size_t r = place; r > 0; --r) {
    StoreBlock(x[r / kBlock], scores + r / kBlock * kBlock);
    const Block factor = SetBlock(-scores[r]);
    for (size_t b = 0; b < kRows / kBlock; ++b) {
      x[b] = MulAdd(factor, LoadBlock(tail.overlap + r * kRows + b * kBlock), x[b]);
    }
  }
  for (size_t b = 0; b < kRows / kBlock; ++b) StoreBlock(x[b], scores + b * kBlock);
}

// q̂ = q - Σ_s (x_s β_s) k_s.
void CorrectQuery(const FenwickTail& tail, size_t rows, const float* weight, const float* query,
                  size_t padded, float* corrected) {
  for (size_t i = 0; i < padded; i += kBlock) {
    Block sum = LoadBlock(query + i);
    for (size_t s = 0; s < rows; ++s) {
      sum = MulAdd(SetBlock(-weight[s]), LoadBlock(tail.key + s * tail.key_stride + i), sum);
    }
    StoreBlock(sum, corrected + i);
  }
}

// `corrected` [n, padded D] receives the delta rule's queries.
template <size_t kRows>
void WeighRows(const FenwickShape& shape, const FenwickTail& tail, const FenwickQuery& query,
               float* corrected, ReadTables& tables) {
  const size_t padded = shape.padded_key();
  for (size_t a = 0; a < tables.queries; ++a) {
    const size_t place = query.begin + a;
    alignas(64) float score[kRows] = {};
    for (size_t s = 0; s <= place; ++s) {
      score[s] = Dot(query.queries.row(a), tail.key + s * tail.key_stride, padded);
    }
    if (shape.delta) {
      SolveScores<kRows>(tail, place, score);
      for (size_t s = 0; s <= place; ++s) score[s] *= tail.beta[s];
      CorrectQuery(tail, place + 1, score, query.queries.row(a), padded, corrected + a * padded);
    }
    for (size_t s = 0; s <= place; s += kBlock) {
      const Block factors = RowFactors(shape, tail, s, place, query.weights.row(a));
      StoreBlock(Mul(LoadBlock(score + s), factors), tables.row_weight[a] + s);
    }
  }
}

// Adds a page to the accumulators of queries from `first`, columns from `column`.
template <size_t kQueries, size_t kBlocks, typename T>
HWY_INLINE void ReadPage(const FenwickShape& shape, const ReadTables& tables, size_t first,
                         size_t page, size_t column, Block (&total)[kQueries][kBlocks]) {
  Block sum[kQueries][kBlocks];
  for (auto& row : sum) {
    for (Block& block : row) block = ZeroBlock();
  }
  const size_t stride = shape.padded_value();
  const T* matrix = reinterpret_cast<const T*>(tables.page[page]) + column;
  for (size_t i = 0; i < shape.key_dim; ++i) {
    Block m[kBlocks];
    for (size_t b = 0; b < kBlocks; ++b) m[b] = LoadBlock(matrix + i * stride + b * kBlock);
    for (size_t a = 0; a < kQueries; ++a) {
      const Block q = SetBlock(tables.query[(first + a) * tables.query_stride + i]);
      for (size_t b = 0; b < kBlocks; ++b) sum[a][b] = MulAdd(q, m[b], sum[a][b]);
    }
  }
  for (size_t a = 0; a < kQueries; ++a) {
    const Block weight = SetBlock(tables.page_weight[first + a][page]);
    for (size_t b = 0; b < kBlocks; ++b) total[a][b] = MulAdd(weight, sum[a][b], total[a][b]);
  }
}

// out[a, columns of the tile] for queries [first, first + kQueries), blocks from `column`.
template <size_t kQueries, size_t kBlocks, typename T>
HWY_INLINE void ReadTile(const FenwickShape& shape, const FenwickTail& tail,
                         const ReadTables& tables, size_t first, size_t column,
                         const FloatMatrix& out) {
  Block total[kQueries][kBlocks];
  for (auto& row : total) {
    for (Block& block : row) block = ZeroBlock();
  }
  for (size_t page = 0; page < tables.pages; ++page) {
    ReadPage<kQueries, kBlocks, T>(shape, tables, first, page, column, total);
  }
  for (size_t a = 0; a < kQueries; ++a) {
    for (size_t s = 0; s < tables.rows[first + a]; ++s) {
      const float* value = tail.value + s * tail.value_stride + column;
      const Block weight = SetBlock(tables.row_weight[first + a][s]);
      for (size_t b = 0; b < kBlocks; ++b) {
        total[a][b] = MulAdd(weight, LoadBlock(value + b * kBlock), total[a][b]);
      }
    }
    for (size_t b = 0; b < kBlocks; ++b) {
      StoreBlock(total[a][b], out.row(first + a) + column + b * kBlock);
    }
  }
}

// All columns for kQueries queries: tiles of kBlocks, then of half as many, down to one.
template <size_t kQueries, size_t kBlocks, typename T>
HWY_INLINE void ReadColumns(const FenwickShape& shape, const FenwickTail& tail,
                            const ReadTables& tables, size_t first, size_t column,
                            const FloatMatrix& out) {
  const size_t end = shape.padded_value();
  for (; column + kBlocks * kBlock <= end; column += kBlocks * kBlock) {
    ReadTile<kQueries, kBlocks, T>(shape, tail, tables, first, column, out);
  }
  if constexpr (kBlocks > 1) {
    ReadColumns<kQueries, kBlocks / 2, T>(shape, tail, tables, first, column, out);
  }
}

template <typename T>
void ReadQueries(const FenwickShape& shape, const FenwickTail& tail, const ReadTables& tables,
                 const FloatMatrix& out) {
  size_t a = 0;
  for (; a + kTileQueries <= tables.queries; a += kTileQueries) {
    ReadColumns<kTileQueries, kTileBlocks, T>(shape, tail, tables, a, 0, out);
  }
  for (; a < tables.queries; ++a) {
    ReadColumns<1, kSingleBlocks, T>(shape, tail, tables, a, 0, out);
  }
}

void ReadFenwickOnTarget(const FenwickShape& shape, const FenwickPages& pages,
                         const FenwickTail& tail, const FenwickQuery& query,
                         const FloatMatrix& out) {
  alignas(64) float corrected[kMaxFoldInterval * kMaxKeyDim];
  ReadTables tables;
  tables.queries = query.queries.rows;
  tables.query = shape.delta ? corrected : query.queries.data;
  tables.query_stride = shape.delta ? shape.padded_key() : query.queries.stride;
  for (size_t a = 0; a < tables.queries; ++a) tables.rows[a] = query.begin + a + 1;
  WeighPages(shape, pages, tail, query, tables);
  if (shape.fold_interval == kMaxFoldInterval) {
    WeighRows<kMaxFoldInterval>(shape, tail, query, corrected, tables);
  } else {
    WeighRows<kBlock>(shape, tail, query, corrected, tables);
  }
  if (shape.dtype == DType::kBFloat16) {
    ReadQueries<uint16_t>(shape, tail, tables, out);
  } else {
    ReadQueries<float>(shape, tail, tables, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ReadFenwickOnTarget);

void ReadFenwick(const FenwickShape& shape, const FenwickPages& pages, const FenwickTail& tail,
                 const FenwickQuery& query, FloatMatrix out) {
  HWY_DYNAMIC_DISPATCH(ReadFenwickOnTarget)(shape, pages, tail, query, out);
}

}  // namespace rivulet
#endif  // HWY_ONCE
