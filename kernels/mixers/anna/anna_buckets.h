// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The two operations of ANNA that need arithmetic, on ONE head of ONE session: ReadSum and FoldSum
// (kernels/recurrence/recurrence.h) for keys that are one-hot over the buckets of ℓ tables. A
// bucket holds the sum of the values whose keys fell into it, and their number.
//
//     Read     o_a = Σ_s M_as v_s / Σ_s M_as, s over all earlier rows; 0 where no key collides
//     Fold     bucket += v_s, count += 1, for each of the ℓ buckets of each of the tail's C rows
//
// M_as is the number of tables in which query a and key s are in the same bucket.
//
// Bits: an output number is one chain: the ℓ buckets of the query in the base, tables
// ascending, then the tail's rows that collide, ascending, as fused multiply-adds with M; then one
// division. A bucket's number is one chain of additions, rows ascending. Nothing depends on how
// many queries are read, on vector width, on threads or neighbours.
//
// Counts are exact up to 2^24 keys in a bucket.
//
// Threading: as in recurrence.h.
#ifndef RIVULET_KERNELS_MIXERS_ANNA_ANNA_BUCKETS_H_
#define RIVULET_KERNELS_MIXERS_ANNA_ANNA_BUCKETS_H_

#include <cstddef>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct BucketShape {
  size_t tables = 0;     // ℓ <= kMaxHashTables
  size_t buckets = 0;    // B <= kMaxBuckets
  size_t value_dim = 0;  // E

  size_t padded_value() const { return PaddedColumns(value_dim); }
  // Floats of one head's sums [ℓ, B, Ep] and counts [ℓ, B].
  size_t sum_floats() const { return tables * buckets * padded_value(); }
  size_t count_floats() const { return tables * buckets; }
};

// One head's tables at a chunk border. ReadBuckets takes null pointers as zeros.
struct BucketTables {
  float* sums = nullptr;    // [ℓ, B, Ep]
  float* counts = nullptr;  // [ℓ, B]
};

// One head's rows since the border.
struct BucketTail {
  float* keys = nullptr;    // [ℓ, C]: the bucket of row s in each table
  float* values = nullptr;  // [C, Ep], zeros in the padding
  size_t chunk = 0;         // C, a multiple of 16
};

// out [Ep] = the read of a query with these buckets [ℓ] over `tables` and the first `rows` rows of
// the tail.
void ReadBuckets(const BucketShape& shape, const BucketTables& tables, const BucketTail& tail,
                 const float* query, size_t rows, float* out);

// tables += all C rows of the tail. Touches the rows' buckets and no others.
void FoldBuckets(const BucketShape& shape, const BucketTables& tables, const BucketTail& tail);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ANNA_ANNA_BUCKETS_H_
