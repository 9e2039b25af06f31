// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Locality-sensitive hashing of queries and keys (docs/mixers.md#anna-hash-families): for each head
// and each of its tables, z hashes of a vector, put together to the number of a bucket.
//
//   simhash         hash j is the bit [⟨a_j, x⟩ >= 0] (-0 counts as 0); bucket = Σ bit_j 2^j
//   cross_polytope  y = R_j x; hash j is the lowest i with the largest |y_i|, plus d if y_i < 0;
//                   bucket = Σ hash_j (2d)^j
//
// Both depend on the direction of x alone, so x need not have length 1.
//
// Bits: each projection is one chain of fp32 fused multiply-adds over the coordinates, ascending,
// from zero, regardless of the number of rows, threads and vector lanes. So a token falls into the
// same bucket in prefill and decode, also where a projection is within rounding of zero.
//
// Numbers of buckets are whole numbers below 2^24, which fp32 holds exactly: they travel in the
// same float matrices and state planes as everything else. A NaN in a vector gives a bucket too.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_ANNA_ANNA_HASH_H_
#define RIVULET_KERNELS_MIXERS_ANNA_ANNA_HASH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"

namespace rivulet {

class Device;

enum class HashFamily : uint8_t { kSimHash, kCrossPolytope };

// The largest number of buckets of a table, tables of a head, and hashes of a table.
inline constexpr size_t kMaxBuckets = size_t{1} << 24;
inline constexpr size_t kMaxHashTables = 256;
inline constexpr size_t kMaxHashes = 24;

struct AnnaHashShape {
  HashFamily family = HashFamily::kSimHash;
  size_t heads = 0;    // H
  size_t key_dim = 0;  // d <= kMaxKeyDim (kernels/recurrence/recurrence.h)
  size_t tables = 0;   // ℓ
  size_t hashes = 0;   // z

  // Values of one hash: 2 or 2d.
  size_t radix() const { return family == HashFamily::kSimHash ? 2 : 2 * key_dim; }
  // B, the buckets of a table: radix^z, or kMaxBuckets + 1 if that is more than kMaxBuckets.
  size_t buckets() const;
  // Projections whose signs or sizes are looked at together, and groups of them in a head: SimHash
  // has one group of ℓ·z, cross-polytope ℓ·z groups of d.
  size_t group_outputs() const {
    return family == HashFamily::kSimHash ? tables * hashes : key_dim;
  }
  size_t groups() const { return family == HashFamily::kSimHash ? 1 : tables * hashes; }
};

class AnnaHash {
 public:
  AnnaHash() = default;
  // `projections` as the checkpoint has them, row-major: [H, ℓ, z, d], or [H, ℓ, z, d, d] for
  // cross-polytope. Copied.
  AnnaHash(const AnnaHashShape& shape, const float* projections);

  // q_buckets, k_buckets [T, H*ℓ] = the buckets of the rows of q, k [T, H*d]. Queries and keys of a
  // token go together because they share the projections, which are most of what is read. Outputs
  // must not overlap anything.
  void Apply(ConstFloatMatrix q, ConstFloatMatrix k, FloatMatrix q_buckets, FloatMatrix k_buckets,
             ThreadPool& pool) const;

  // The same on a device, with the same chains.
  void Enqueue(Device& device, ConstFloatMatrix q, ConstFloatMatrix k, FloatMatrix q_buckets,
               FloatMatrix k_buckets) const;

 private:
  size_t head_floats() const {
    return shape_.groups() * PaddedColumns(shape_.group_outputs()) * shape_.key_dim;
  }

  AnnaHashShape shape_;
  // [H][groups][panels of 16 outputs][d][16], as kernels/ops/linear packs its weights; zeros where
  // a group ends inside a panel.
  AlignedBuffer<float> panels_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ANNA_ANNA_HASH_H_
