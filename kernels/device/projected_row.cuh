// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Columns of one token's projection in a block's shared memory, on their way from the warps that
// multiply (project_and_recur.cu) to those that prepare rows of them and read the state
// (sums_decode_unit.cuh). Keys and queries come from all blocks of the cluster, the rest from this
// one. The gate is needed last and comes last.
#ifndef RIVULET_KERNELS_DEVICE_PROJECTED_ROW_CUH_
#define RIVULET_KERNELS_DEVICE_PROJECTED_ROW_CUH_

#include <cstdint>

#include "kernels/device/bulk_copy.cuh"

namespace rivulet::cuda {

// Waits for a phase in which other blocks of the cluster have sent bytes.
__device__ inline void WaitClusterBarrier(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ready;\n"
      "bra again;\n"
      "ready:\n"
      "}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

// Four numbers to the same address of that block of the cluster, and their bytes to its barrier.
__device__ inline void SendFour(float* shared, uint64_t* barrier, uint32_t block, float4 x) {
  asm volatile(
      "{\n"
      ".reg .b32 to, at;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 at, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%3, %4, %5, %6}, "
      "[at];\n"
      "}\n" ::"r"(SharedAddress(shared)),
      "r"(SharedAddress(barrier)), "r"(block), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
      : "memory");
}

struct ProjectedRow {
  static constexpr uint32_t kKey = 128, kValues = 16;
  static constexpr uint32_t kReaders = 64;          // threads, the first of the block
  static constexpr uint32_t kOfCluster = 2 * kKey;  // numbers that come from all of the cluster
  static constexpr uint32_t kSenders = 2;           // warps: with the values, with the step
  static constexpr uint32_t kGateSenders = 2;       // warps: with the first half, with the second

  alignas(16) float of_cluster[kOfCluster];  // the key, then the query
  alignas(16) float values[kValues];
  float gate[kValues];
  float step;
  float factor;  // of the row
  uint64_t weights_full, numbers_full, gate_full;

  // By one thread, before the cluster meets.
  __device__ void Init(uint32_t weight_bytes) {
    InitBarrier(&weights_full, 1);
    InitBarrier(&numbers_full, 1 + kSenders);
    InitBarrier(&gate_full, kGateSenders);
    ArriveExpecting(&weights_full, weight_bytes);
    ArriveExpecting(&numbers_full, kOfCluster * sizeof(float));
  }

  // Of the token's row as DecodeByUnit divides it: key, query, values.
  __device__ const float* Piece(uint32_t piece) const {
    return piece < 2 ? of_cluster + piece * kKey : values;
  }
  __device__ void AwaitNumbers() { WaitClusterBarrier(&numbers_full, 0); }
  __device__ void AwaitGate() { WaitBarrier(&gate_full, 0); }

  __device__ static void MeetReaders() {
    asm volatile("bar.sync 4, %0;\n" ::"n"(kReaders) : "memory");
  }
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_PROJECTED_ROW_CUH_
