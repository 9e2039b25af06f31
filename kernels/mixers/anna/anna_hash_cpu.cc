// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/base/parallel.h"
#include "kernels/mixers/anna/anna_hash.h"
#include "kernels/recurrence/recurrence.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mixers/anna/anna_hash_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"

// What Apply hands to the code below, which is compiled once for each SIMD target.
#ifndef RIVULET_KERNELS_MIXERS_ANNA_ANNA_HASH_CPU_ONCE
#define RIVULET_KERNELS_MIXERS_ANNA_ANNA_HASH_CPU_ONCE
namespace rivulet {

// Tokens of one task at most: they share what is read of the projections while it is in the first
// cache.
inline constexpr size_t kHashTokens = 16;

// One head of at most kHashTokens tokens: [0] are the queries, [1] the keys.
struct HashRows {
  ConstFloatMatrix vectors[2];  // [T, d]
  FloatMatrix buckets[2];       // [T, ℓ]

  size_t tokens() const { return vectors[0].rows; }
};

}  // namespace rivulet
#endif

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// Panels of a tile: with a query and a key, as many chains as hide the latency of a multiply-add.
inline constexpr size_t kTilePanels = kVectors == 1 ? 4 : 2;
// Panels that are projected on before their hashes are taken, unless one group is wider.
inline constexpr size_t kRunPanels = 4;
inline constexpr size_t kSignWords = kMaxHashTables * kMaxHashes / kBlock + 2;

// Projections of a token's query and key on the panels of a run.
struct Projected {
  alignas(64) float side[2][kMaxKeyDim];
};

template <size_t kPanels>
HWY_INLINE void ProjectTile(const float* panels, size_t inputs, const float* q, const float* k,
                            float* q_out, float* k_out) {
  Block q_sum[kPanels], k_sum[kPanels];
  for (size_t p = 0; p < kPanels; ++p) q_sum[p] = k_sum[p] = ZeroBlock();
  for (size_t i = 0; i < inputs; ++i) {
    const Block q_i = SetBlock(q[i]), k_i = SetBlock(k[i]);
    for (size_t p = 0; p < kPanels; ++p) {
      const Block weight = LoadBlock(panels + (p * inputs + i) * kBlock);
      q_sum[p] = MulAdd(q_i, weight, q_sum[p]);
      k_sum[p] = MulAdd(k_i, weight, k_sum[p]);
    }
  }
  for (size_t p = 0; p < kPanels; ++p) {
    StoreBlock(q_sum[p], q_out + p * kBlock);
    StoreBlock(k_sum[p], k_out + p * kBlock);
  }
}

void Project(const float* panels, size_t count, size_t inputs, const float* q, const float* k,
             Projected& out) {
  size_t p = 0;
  for (; p + kTilePanels <= count; p += kTilePanels) {
    ProjectTile<kTilePanels>(panels + p * inputs * kBlock, inputs, q, k, out.side[0] + p * kBlock,
                             out.side[1] + p * kBlock);
  }
  for (; p < count; ++p) {
    ProjectTile<1>(panels + p * inputs * kBlock, inputs, q, k, out.side[0] + p * kBlock,
                   out.side[1] + p * kBlock);
  }
}

// take(first panel, panels, token, Projected) for each token of each run of `run` panels.
template <typename Take>
HWY_INLINE void ForEachRun(const float* panels, size_t count, size_t run, size_t inputs,
                           const HashRows& rows, Take&& take) {
  Projected projected;
  for (size_t first = 0; first < count; first += run) {
    const size_t here = std::min(run, count - first);
    for (size_t t = 0; t < rows.tokens(); ++t) {
      Project(panels + first * inputs * kBlock, here, inputs, rows.vectors[0].row(t),
              rows.vectors[1].row(t), projected);
      take(first, here, t, projected);
    }
  }
}

// Bit i: whether values[i] >= 0. A NaN is not.
HWY_INLINE uint16_t SignBits(const float* values) {
  uint32_t bits = 0;
  for (size_t i = 0; i < kVectors; ++i) {
    const auto v = hn::LoadU(FloatTag(), values + i * kVectorLanes);
    uint8_t bytes[8] = {};
    hn::StoreMaskBits(FloatTag(), hn::Ge(v, hn::Zero(FloatTag())), bytes);
    bits |= (bytes[0] | uint32_t{bytes[1]} << 8) << (i * kVectorLanes);
  }
  return static_cast<uint16_t>(bits);
}

// Bits [first, first + count) of a run of words, count <= kMaxHashes. Two words follow the last.
HWY_INLINE uint32_t BitsAt(const uint16_t* words, size_t first, size_t count) {
  const uint16_t* w = words + first / kBlock;
  const uint64_t window = w[0] | uint64_t{w[1]} << 16 | uint64_t{w[2]} << 32;
  return static_cast<uint32_t>(window >> first % kBlock) & ((uint32_t{1} << count) - 1);
}

void SimHashHead(const AnnaHashShape& shape, const float* panels, const HashRows& rows) {
  uint16_t signs[kHashTokens][2][kSignWords];
  const size_t count = PaddedColumns(shape.group_outputs()) / kBlock;
  ForEachRun(panels, count, kRunPanels, shape.key_dim, rows,
             [&](size_t first, size_t here, size_t t, const Projected& projected) HWY_ATTR {
               for (size_t side = 0; side < 2; ++side) {
                 uint16_t* words = signs[t][side] + first;
                 for (size_t p = 0; p < here; ++p) {
                   words[p] = SignBits(projected.side[side] + p * kBlock);
                 }
                 words[here] = words[here + 1] = 0;
               }
             });
  for (size_t i = 0; i < 2 * rows.tokens(); ++i) {
    float* bucket = rows.buckets[i % 2].row(i / 2);
    for (size_t table = 0; table < shape.tables; ++table) {
      const size_t first = table * shape.hashes;
      bucket[table] = static_cast<float>(BitsAt(signs[i / 2][i % 2], first, shape.hashes));
    }
  }
}

// The lowest i with the largest |y_i|, plus `dim` if y_i < 0. Zeros follow y up to a whole block;
// beside NaNs the first of them may be the largest, and `dim` is a hash too.
HWY_INLINE size_t CrossPolytopeHash(const float* y, size_t dim) {
  const auto size = [y](size_t i) HWY_ATTR { return hn::Abs(hn::LoadU(FloatTag(), y + i)); };
  auto largest = size(0);
  for (size_t i = kVectorLanes; i < dim; i += kVectorLanes) largest = hn::Max(largest, size(i));
  largest = hn::MaxOfLanes(FloatTag(), largest);
  for (size_t i = 0; i < dim; i += kVectorLanes) {
    const auto found = hn::FindFirstTrue(FloatTag(), hn::Eq(size(i), largest));
    if (found < 0) continue;
    const size_t index = i + static_cast<size_t>(found);
    return y[index] < 0.0f ? index + dim : index;
  }
  return 0;
}

// Digit `group % z` of the bucket in table `group / z`, the lowest digit first.
HWY_INLINE void AddDigit(const AnnaHashShape& shape, size_t group, size_t digit, float* buckets) {
  float value = static_cast<float>(digit);
  for (size_t j = 0; j < group % shape.hashes; ++j) value *= static_cast<float>(shape.radix());
  float& bucket = buckets[group / shape.hashes];
  bucket = group % shape.hashes == 0 ? value : bucket + value;
}

void CrossPolytopeHead(const AnnaHashShape& shape, const float* panels, const HashRows& rows) {
  const size_t width = PaddedColumns(shape.key_dim), group_panels = width / kBlock;
  const size_t run = std::max<size_t>(1, kRunPanels / group_panels) * group_panels;
  ForEachRun(panels, shape.groups() * group_panels, run, shape.key_dim, rows,
             [&](size_t first, size_t here, size_t t, const Projected& projected) HWY_ATTR {
               for (size_t i = 0; i < 2 * here / group_panels; ++i) {
                 const float* y = projected.side[i % 2] + i / 2 * width;
                 AddDigit(shape, first / group_panels + i / 2, CrossPolytopeHash(y, shape.key_dim),
                          rows.buckets[i % 2].row(t));
               }
             });
}

void HashHead(const AnnaHashShape& shape, const float* panels, const HashRows& rows) {
  if (shape.family == HashFamily::kSimHash) return SimHashHead(shape, panels, rows);
  CrossPolytopeHead(shape, panels, rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(HashHead);

size_t AnnaHashShape::buckets() const {
  size_t count = 1;
  for (size_t j = 0; j < hashes && count <= kMaxBuckets; ++j) count *= radix();
  return std::min(count, kMaxBuckets + 1);
}

AnnaHash::AnnaHash(const AnnaHashShape& shape, const float* projections)
    : shape_(shape), panels_(shape.heads * head_floats()) {
  const size_t outputs = shape.group_outputs(), inputs = shape.key_dim;
  for (size_t g = 0; g < shape.heads * shape.groups(); ++g) {
    float* group = panels_.data() + g * PaddedColumns(outputs) * inputs;
    for (size_t o = 0; o < outputs; ++o) {
      const float* row = projections + (g * outputs + o) * inputs;
      float* lane = group + o / kBlock * inputs * kBlock + o % kBlock;
      for (size_t i = 0; i < inputs; ++i) lane[i * kBlock] = row[i];
    }
  }
}

void AnnaHash::Apply(ConstFloatMatrix q, ConstFloatMatrix k, FloatMatrix q_buckets,
                     FloatMatrix k_buckets, ThreadPool& pool) const {
  const auto hash_head = HWY_DYNAMIC_DISPATCH(HashHead);
  const size_t d = shape_.key_dim, tables = shape_.tables;
  const size_t blocks = (q.rows + kHashTokens - 1) / kHashTokens;
  const size_t work = head_floats() * std::min(q.rows, kHashTokens);
  ParallelRows(pool, shape_.heads * blocks, work, [&](size_t unit) {
    const size_t head = unit / blocks, first = unit % blocks * kHashTokens;
    const auto part = [&](auto matrix, size_t width) {
      const size_t rows = std::min(kHashTokens, matrix.rows - first);
      return matrix.Rows(first, rows).Columns(head * width, width);
    };
    hash_head(shape_, panels_.data() + head * head_floats(),
              {{part(q, d), part(k, d)}, {part(q_buckets, tables), part(k_buckets, tables)}});
  });
}

}  // namespace rivulet
#endif  // HWY_ONCE
