// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/anna/anna_buckets.h"
#include "kernels/mixers/anna/anna_hash.h"
#include "kernels/recurrence/recurrence.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mixers/anna/anna_buckets_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// Blocks of columns that a read sums at once.
inline constexpr size_t kTileBlocks = 4;

// What a read sums, and by what it divides.
struct Gathered {
  const float* bucket[kMaxHashTables];  // [tables] rows of sums
  size_t tables = 0;
  float weight[kMaxFoldInterval];  // of the tail's rows that collide, [hits]
  const float* value[kMaxFoldInterval];
  size_t hits = 0;
  float count = 0.0f;
};

// In how many tables each of a block of the tail's rows collides with the query: rows are lanes.
HWY_INLINE Block Collisions(const BucketShape& shape, const float* keys, size_t stride,
                            const float* query) {
  Block collisions = ZeroBlock();
  const auto one = hn::Set(FloatTag(), 1.0f);
  for (size_t table = 0; table < shape.tables; ++table) {
    const Block row_keys = LoadBlock(keys + table * stride);
    const auto wanted = hn::Set(FloatTag(), query[table]);
    collisions = MapBlock(
        [=](auto sum, auto key)
            HWY_ATTR { return hn::Add(sum, hn::IfThenElseZero(hn::Eq(key, wanted), one)); },
        collisions, row_keys);
  }
  return collisions;
}

HWY_INLINE void GatherTables(const BucketShape& shape, const BucketTables& tables,
                             const float* query, Gathered& result) {
  if (tables.sums == nullptr) return;
  result.tables = shape.tables;
  for (size_t table = 0; table < shape.tables; ++table) {
    const size_t bucket = table * shape.buckets + static_cast<size_t>(query[table]);
    result.bucket[table] = tables.sums + bucket * shape.padded_value();
    result.count += tables.counts[bucket];
  }
}

// Rows from `rows` on are not there yet: their lanes are not looked at.
HWY_INLINE void GatherTail(const BucketShape& shape, const BucketTail& tail, const float* query,
                           size_t rows, Gathered& result) {
  alignas(64) float collisions[kMaxFoldInterval];
  for (size_t s = 0; s < rows; s += kBlock) {
    StoreBlock(Collisions(shape, tail.keys + s, tail.chunk, query), collisions + s);
  }
  for (size_t s = 0; s < rows; ++s) {
    if (collisions[s] == 0.0f) continue;
    result.weight[result.hits] = collisions[s];
    result.value[result.hits++] = tail.values + s * shape.padded_value();
    result.count += collisions[s];
  }
}

template <size_t kBlocks>
HWY_INLINE void ReadTile(const Gathered& gathered, size_t column, float* out) {
  Block sum[kBlocks];
  for (size_t b = 0; b < kBlocks; ++b) sum[b] = ZeroBlock();
  for (size_t table = 0; table < gathered.tables; ++table) {
    const float* bucket = gathered.bucket[table] + column;
    for (size_t b = 0; b < kBlocks; ++b) sum[b] = Add(sum[b], LoadBlock(bucket + b * kBlock));
  }
  for (size_t hit = 0; hit < gathered.hits; ++hit) {
    const Block weight = SetBlock(gathered.weight[hit]);
    const float* value = gathered.value[hit] + column;
    for (size_t b = 0; b < kBlocks; ++b) {
      sum[b] = MulAdd(weight, LoadBlock(value + b * kBlock), sum[b]);
    }
  }
  const Block count = SetBlock(gathered.count);
  for (size_t b = 0; b < kBlocks; ++b) StoreBlock(Div(sum[b], count), out + column + b * kBlock);
}

void ReadOnTarget(const BucketShape& shape, const BucketTables& tables, const BucketTail& tail,
                  const float* query, size_t rows, float* out) {
  Gathered gathered;
  GatherTables(shape, tables, query, gathered);
  GatherTail(shape, tail, query, rows, gathered);
  // Nothing collides: the sums are zero too, and so is the output.
  if (gathered.count == 0.0f) gathered.count = 1.0f;
  const size_t columns = shape.padded_value();
  size_t column = 0;
  for (; column + kTileBlocks * kBlock <= columns; column += kTileBlocks * kBlock) {
    ReadTile<kTileBlocks>(gathered, column, out);
  }
  for (; column < columns; column += kBlock) ReadTile<1>(gathered, column, out);
}

HWY_INLINE void AddRow(const float* row, size_t columns, float* to) {
  for (size_t c = 0; c < columns; c += kBlock) {
    StoreBlock(Add(LoadBlock(to + c), LoadBlock(row + c)), to + c);
  }
}

void FoldOnTarget(const BucketShape& shape, const BucketTables& tables, const BucketTail& tail) {
  const size_t columns = shape.padded_value();
  for (size_t s = 0; s < tail.chunk; ++s) {
    for (size_t table = 0; table < shape.tables; ++table) {
      const float key = tail.keys[table * tail.chunk + s];
      const size_t bucket = table * shape.buckets + static_cast<size_t>(key);
      AddRow(tail.values + s * columns, columns, tables.sums + bucket * columns);
      tables.counts[bucket] += 1.0f;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ReadOnTarget);
HWY_EXPORT(FoldOnTarget);

void ReadBuckets(const BucketShape& shape, const BucketTables& tables, const BucketTail& tail,
                 const float* query, size_t rows, float* out) {
  HWY_DYNAMIC_DISPATCH(ReadOnTarget)(shape, tables, tail, query, rows, out);
}

void FoldBuckets(const BucketShape& shape, const BucketTables& tables, const BucketTail& tail) {
  HWY_DYNAMIC_DISPATCH(FoldOnTarget)(shape, tables, tail);
}

}  // namespace rivulet
#endif  // HWY_ONCE
