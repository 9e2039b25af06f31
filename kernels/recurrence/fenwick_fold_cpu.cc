// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The CPU form of fenwick.h's folds. A page that a fold makes is, with M the sum of the pages that
// it takes up, each decayed to the chunk's end, and d_s = e^{c_end - c_s},
//
//     scalar   M + Σ_s (d_s k_s)ᵀ v_s
//     delta    M + Σ_s k_sᵀ u_s        u_s = β_s (d_s v_s - k_s M) - Σ_{r<s} N_sr u_r
//
// and a page that lives on under the delta rule is the same with M itself and v = 0.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/fenwick_fold_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target, as Highway asks.
#include <algorithm>

#include "hwy/highway.h"
#include "kernels/base/simd-inl.h"
#include "kernels/recurrence/fenwick.h"
#include "kernels/recurrence/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// Rows and blocks of columns of one register tile.
inline constexpr size_t kTileRows = kVectors == 1 ? 4 : 2;
inline constexpr size_t kTileBlocks = kVectors == 1 ? 4 : 2;

void AppendOverlapOnTarget(const FenwickShape& shape, const FenwickTail& tail, size_t begin,
                           size_t count) {
  for (size_t place = begin; place < begin + count; ++place) {
    float* overlap = tail.overlap + place * shape.fold_interval;
    std::fill_n(overlap, shape.fold_interval, 0.0f);
    const float* key = tail.key + place * tail.key_stride;
    for (size_t s = 0; s < place; ++s) {
      overlap[s] = tail.beta[place] * Dot(key, tail.key + s * tail.key_stride, shape.padded_key());
    }
  }
}

// The matrix M that a page is made from, read an element at a time: the sum of `count` pages. Pages
// that are read and written in place are one page of scale 1.
template <typename T>
struct MergedPages {
  const T* page[kMaxLevels];
  float scale[kMaxLevels];
  size_t count = 0;

  HWY_INLINE Block Load(size_t element) const {
    Block sum = ZeroBlock();
    for (size_t i = 0; i < count; ++i) {
      sum = MulAdd(SetBlock(scale[i]), LoadBlock(page[i] + element), sum);
    }
    return sum;
  }
  bool empty() const { return count == 0; }
};

template <typename T>
struct OnePage {
  const T* page;

  HWY_INLINE Block Load(size_t element) const { return LoadBlock(page + element); }
  bool empty() const { return false; }
};

// The chunk's rows as a fold meets them.
struct FoldRows {
  const float* key;  // [C, padded D]
  size_t key_stride;
  alignas(64) float decay[kMaxFoldInterval];  // d_s
};

// One page's matrix from M and the rows' values, a tile of columns of one key channel at a time.
template <size_t kRows, size_t kBlocks, typename Merged, typename T>
HWY_INLINE void AddRows(const Merged& merged, const float* key, size_t key_stride,
                        const float* value, size_t value_stride, size_t element, T* to) {
  Block sum[kBlocks];
  for (size_t b = 0; b < kBlocks; ++b) sum[b] = merged.Load(element + b * kBlock);
  for (size_t s = 0; s < kRows; ++s) {
    const Block k = SetBlock(key[s * key_stride]);
    for (size_t b = 0; b < kBlocks; ++b) {
      sum[b] = MulAdd(k, LoadBlock(value + s * value_stride + b * kBlock), sum[b]);
    }
  }
  for (size_t b = 0; b < kBlocks; ++b) StoreBlock(sum[b], to + element + b * kBlock);
}

// --- scalar ------------------------------------------------------------------------------------

template <size_t kRows, size_t kBlocks, typename T>
HWY_INLINE void FoldChannel(const FenwickShape& shape, const MergedPages<T>& merged,
                            const FenwickTail& tail, const float* key, size_t channel,
                            size_t column, T* to) {
  const size_t columns = shape.padded_value();
  for (; column + kBlocks * kBlock <= columns; column += kBlocks * kBlock) {
    AddRows<kRows, kBlocks>(merged, key + channel, shape.padded_key(), tail.value + column,
                            tail.value_stride, channel * columns + column, to);
  }
  if constexpr (kBlocks > 1) {
    FoldChannel<kRows, kBlocks / 2>(shape, merged, tail, key, channel, column, to);
  }
}

// Channel after channel, so that memory is walked in order.
template <size_t kRows, typename T>
void FoldScalarPage(const FenwickShape& shape, const MergedPages<T>& merged, const FoldRows& rows,
                    const FenwickTail& tail, T* to) {
  alignas(64) float key[kRows * kMaxKeyDim];
  const size_t padded = shape.padded_key();
  for (size_t s = 0; s < kRows; ++s) {
    const Block decay = SetBlock(rows.decay[s]);
    for (size_t i = 0; i < padded; i += kBlock) {
      StoreBlock(Mul(LoadBlock(rows.key + s * rows.key_stride + i), decay), key + s * padded + i);
    }
  }
  for (size_t i = 0; i < shape.key_dim; ++i) {
    FoldChannel<kRows, kTileBlocks>(shape, merged, tail, key, i, 0, to);
  }
}

// --- delta -------------------------------------------------------------------------------------

// k_s M for kTileRows rows from `first`, into u [C, kBlocks * kBlock].
template <size_t kBlocks, typename Merged>
HWY_INLINE void ReadRows(const FenwickShape& shape, const Merged& merged, const FoldRows& rows,
                         size_t first, size_t column, float* u) {
  Block sum[kTileRows][kBlocks];
  for (auto& row : sum) {
    for (Block& block : row) block = ZeroBlock();
  }
  const size_t stride = shape.padded_value();
  const float* key = rows.key + first * rows.key_stride;
  for (size_t i = 0; i < shape.key_dim; ++i) {
    Block m[kBlocks];
    for (size_t b = 0; b < kBlocks; ++b) m[b] = merged.Load(i * stride + column + b * kBlock);
    for (size_t s = 0; s < kTileRows; ++s) {
      const Block k = SetBlock(key[s * rows.key_stride + i]);
      for (size_t b = 0; b < kBlocks; ++b) sum[s][b] = MulAdd(k, m[b], sum[s][b]);
    }
  }
  for (size_t s = 0; s < kTileRows; ++s) {
    for (size_t b = 0; b < kBlocks; ++b) {
      StoreBlock(sum[s][b], u + ((first + s) * kBlocks + b) * kBlock);
    }
  }
}

// From k_s M to u_s, in place. `value` null: a page that lives on.
template <size_t kRows, size_t kBlocks>
HWY_INLINE void SolveRows(const FenwickTail& tail, const FoldRows& rows, const float* value,
                          float* u) {
  for (size_t s = 0; s < kRows; ++s) {
    Block row[kBlocks];
    const Block beta = SetBlock(tail.beta[s]), decay = SetBlock(rows.decay[s]);
    float* own = u + s * kBlocks * kBlock;
    for (size_t b = 0; b < kBlocks; ++b) {
      const Block read = LoadBlock(own + b * kBlock);
      const Block target = value == nullptr
                               ? ZeroBlock()
                               : Mul(decay, LoadBlock(value + s * tail.value_stride + b * kBlock));
      row[b] = Mul(beta, Sub(target, read));
    }
    for (size_t r = 0; r < s; ++r) {
      const Block overlap = SetBlock(-tail.overlap[s * kRows + r]);
      for (size_t b = 0; b < kBlocks; ++b) {
        row[b] = MulAdd(overlap, LoadBlock(u + (r * kBlocks + b) * kBlock), row[b]);
      }
    }
    for (size_t b = 0; b < kBlocks; ++b) StoreBlock(row[b], own + b * kBlock);
  }
}

// A tile of columns goes all the way before the next: its part of M is read from memory once.
template <size_t kRows, size_t kBlocks, typename Merged, typename T>
HWY_INLINE void FoldDeltaTile(const FenwickShape& shape, const Merged& merged, const FoldRows& rows,
                              const FenwickTail& tail, bool values, size_t column, T* to) {
  alignas(64) float u[kRows * kBlocks * kBlock] = {};
  if (!merged.empty()) {
    for (size_t s = 0; s < kRows; s += kTileRows) {
      ReadRows<kBlocks>(shape, merged, rows, s, column, u);
    }
  }
  SolveRows<kRows, kBlocks>(tail, rows, values ? tail.value + column : nullptr, u);
  for (size_t i = 0; i < shape.key_dim; ++i) {
    AddRows<kRows, kBlocks>(merged, rows.key + i, rows.key_stride, u, kBlocks * kBlock,
                            i * shape.padded_value() + column, to);
  }
}

template <size_t kRows, size_t kBlocks, typename Merged, typename T>
void FoldDeltaPage(const FenwickShape& shape, const Merged& merged, const FoldRows& rows,
                   const FenwickTail& tail, bool values, size_t column, T* to) {
  for (; column + kBlocks * kBlock <= shape.padded_value(); column += kBlocks * kBlock) {
    FoldDeltaTile<kRows, kBlocks>(shape, merged, rows, tail, values, column, to);
  }
  if constexpr (kBlocks > 1) {
    FoldDeltaPage<kRows, kBlocks / 2>(shape, merged, rows, tail, values, column, to);
  }
}

// --- all pages ---------------------------------------------------------------------------------

template <size_t kRows>
FoldRows MakeRows(const FenwickTail& tail) {
  FoldRows rows;
  rows.key = tail.key;
  rows.key_stride = tail.key_stride;
  const float end = tail.log_decay[kRows - 1];
  for (size_t s = 0; s < kRows; s += kBlock) {
    StoreBlock(RowDecays(tail.log_decay, 1, s, kRows, end, 1.0f), rows.decay + s);
  }
  return rows;
}

// The pages that page `made` takes up, each with its decay at the chunk's end.
template <typename T>
MergedPages<T> Merge(const FenwickPages& from, uint32_t made, float end) {
  MergedPages<T> merged;
  for (uint32_t p = 0; p <= made; ++p) {
    if (from.matrix[p] == nullptr) continue;
    const float log_decay = (end + from.log_decay[2 * p + 1]) + from.log_decay[2 * p];
    merged.page[merged.count] = reinterpret_cast<const T*>(from.matrix[p]);
    merged.scale[merged.count++] = DecayOf(log_decay);
  }
  return merged;
}

template <size_t kRows, typename T>
void FoldPages(const FenwickShape& shape, uint32_t made, const FenwickPages& from,
               const FenwickPages& to, const FenwickTail& tail) {
  const FoldRows rows = MakeRows<kRows>(tail);
  const MergedPages<T> merged = Merge<T>(from, made, tail.log_decay[kRows - 1]);
  T* page = reinterpret_cast<T*>(to.matrix[made]);
  if (!shape.delta) return FoldScalarPage<kRows>(shape, merged, rows, tail, page);
  FoldDeltaPage<kRows, kTileBlocks>(shape, merged, rows, tail, true, 0, page);
  for (uint32_t p = made + 1; p < shape.pages(); ++p) {
    if (from.matrix[p] == nullptr) continue;
    const OnePage<T> old{reinterpret_cast<const T*>(from.matrix[p])};
    FoldDeltaPage<kRows, kTileBlocks>(shape, old, rows, tail, false, 0,
                                      reinterpret_cast<T*>(to.matrix[p]));
  }
}

template <typename T>
void FoldPagesOf(const FenwickShape& shape, uint32_t made, const FenwickPages& from,
                 const FenwickPages& to, const FenwickTail& tail) {
  if (shape.fold_interval == kMaxFoldInterval) {
    FoldPages<kMaxFoldInterval, T>(shape, made, from, to, tail);
  } else {
    FoldPages<kBlock, T>(shape, made, from, to, tail);
  }
}

void FoldFenwickOnTarget(const FenwickShape& shape, uint32_t made, const FenwickPages& from,
                         const FenwickPages& to, const FenwickTail& tail) {
  if (shape.dtype == DType::kBFloat16) {
    FoldPagesOf<uint16_t>(shape, made, from, to, tail);
  } else {
    FoldPagesOf<float>(shape, made, from, to, tail);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {
namespace {

// high + low + c as two floats again (Knuth's exact sum, then the rest).
void AddLogDecay(const float* from, float c, float* to) {
  const float high = from[0] + c, part = high - from[0];
  const float rest = ((from[0] - (high - part)) + (c - part)) + from[1];
  to[0] = high + rest;
  to[1] = rest - (to[0] - high);
}

}  // namespace

HWY_EXPORT(AppendOverlapOnTarget);
HWY_EXPORT(FoldFenwickOnTarget);

void AppendOverlap(const FenwickShape& shape, const FenwickTail& tail, size_t begin, size_t count) {
  HWY_DYNAMIC_DISPATCH(AppendOverlapOnTarget)(shape, tail, begin, count);
}

void FoldFenwick(const FenwickShape& shape, uint64_t chunk, const FenwickPages& from,
                 const FenwickPages& to, const FenwickTail& tail) {
  const uint32_t made = CarryPage(chunk, shape.pages());
  HWY_DYNAMIC_DISPATCH(FoldFenwickOnTarget)(shape, made, from, to, tail);
  const float end = tail.log_decay[shape.fold_interval - 1];
  for (uint32_t p = 0; p < shape.pages(); ++p) {
    if (p > made && from.matrix[p] != nullptr) {
      AddLogDecay(from.log_decay + size_t{2} * p, end, to.log_decay + size_t{2} * p);
    } else {
      std::fill_n(to.log_decay + size_t{2} * p, 2, 0.0f);
    }
  }
}

}  // namespace rivulet
#endif  // HWY_ONCE
