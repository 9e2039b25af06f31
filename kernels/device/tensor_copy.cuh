// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Boxes of a matrix from device to shared memory by the chip's copy engine, and what blocks of
// a cluster need to share them. A box has rows of 128 bytes, whose chunks of 16 bytes are exchanged
// so that 8 rows are read without bank conflicts: chunk c of row r lies at place c ^ (r % 8). Boxes
// lie at multiples of 1024 bytes. What is outside of the matrix arrives as zeros and counts as
// bytes that arrive.
#ifndef RIVULET_KERNELS_DEVICE_TENSOR_COPY_CUH_
#define RIVULET_KERNELS_DEVICE_TENSOR_COPY_CUH_

#include <cuda.h>

#include <cstdint>

#include "kernels/device/bulk_copy.cuh"

namespace rivulet::cuda {

// Numbers of bf16 in a box's row.
constexpr uint32_t kBoxColumns = 64;
constexpr uint32_t kBoxRowBytes = 128;

// A matrix [rows, columns] of bf16 as the copy engine sees it, in boxes of `box_rows` rows. False:
// the driver cannot describe it.
bool DescribeMatrix(const void* data, uint32_t rows, uint32_t columns, uint32_t stride,
                    uint32_t box_rows, CUtensorMap& map);
// A matrix [rows, stride], whose stride is a multiple of kBoxColumns, so that one copy brings
// `boxes` boxes, whose columns are adjacent. A copy takes a tenth of a microsecond at least. The
// third dimension is the box, whose distance is less than that of two rows: drivers take that
// (580.159 does), though the header describes distances that grow.
bool DescribeWholeMatrix(const void* data, uint32_t rows, uint32_t stride, uint32_t box_rows,
                         uint32_t boxes, CUtensorMap& map);

__device__ inline void FetchDescription(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}

// The boxes of a whole matrix whose first number is (row, column).
__device__ inline void CopyBoxes(uint32_t shared, const CUtensorMap& map, uint32_t row,
                                 uint32_t column, uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;\n" ::"r"(shared),
      "l"(&map), "r"(0), "r"(row), "r"(column / kBoxColumns), "r"(SharedAddress(barrier)),
      "l"(policy)
      : "memory");
}

// The box of a matrix whose first number is (row, column), into the shared memory of every block of
// `blocks`, a bit each, at the same address and with the barrier at the same address.
__device__ inline void CopyBoxToAll(uint32_t shared, const CUtensorMap& map, uint32_t row,
                                    uint32_t column, uint64_t* barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;\n" ::"r"(shared),
      "l"(&map), "r"(column), "r"(row), "r"(SharedAddress(barrier)), "h"(blocks)
      : "memory");
}

__device__ inline uint32_t BlockOfCluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}

// Arrives at the barrier of that block of the cluster. What this thread has read is read before
// that; what it has written may not be visible there. (A release to the cluster would wait for all
// its writes, a microsecond.)
__device__ inline void ArriveAt(uint32_t barrier, uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(barrier),
      "r"(block)
      : "memory");
}

// All threads of all blocks of the cluster meet, in two parts or at once. Of what was written
// before, only barriers behind a FenceBarrierInit are visible then.
__device__ inline void ArriveInCluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
}
__device__ inline void AwaitCluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}
__device__ inline void MeetCluster() {
  ArriveInCluster();
  AwaitCluster();
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_TENSOR_COPY_CUH_
