// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Kernels of a few microseconds find neither their instructions nor their arguments in any cache:
// a step reads gigabytes of weights between two calls, and each line then comes from device memory,
// one after the other. A kernel that starts before the one before it has ended can use that time:
// it runs all its work once on the numbers that are there, without a store, and fetches everything
// that the work needs. Where blocks cannot do that before their own work, others do, which never
// wait (sums_decode.cu).
#ifndef RIVULET_KERNELS_DEVICE_REHEARSAL_CUH_
#define RIVULET_KERNELS_DEVICE_REHEARSAL_CUH_

#include <cstdint>

#include "kernels/device/arithmetic.cuh"

namespace rivulet::cuda {

// Calls work(false) in the first `blocks` blocks of the grid, then ready(), waits for the kernels
// before, and calls work(true). All threads of a block take part if the work has a barrier of the
// block, and those that do not take part write nothing. work(false) must not store to device
// memory; it may read what other kernels write at the same time, past L1 (ReadLate), since
// work(true) must not find old lines there.
template <typename Ready, typename Work>
__device__ inline void RunRehearsed(uint32_t blocks, const Ready& ready, const Work& work) {
  const uint32_t block = blockIdx.x + blockIdx.y * gridDim.x;
#pragma unroll 1
  for (uint32_t pass = block < blocks ? 0 : 1; pass < 2; ++pass) {
    if (pass == 1) {
      ready();
      AwaitLastKernel();
    }
    uint32_t real = pass;
    asm volatile("" : "+r"(real));  // one copy of the work for both passes
    work(real != 0);
  }
}
template <typename Work>
__device__ inline void RunRehearsed(uint32_t blocks, const Work& work) {
  RunRehearsed(
      blocks, [] {}, work);
}

// The compiler has to compute `x` even where it is not stored.
__device__ inline void KeepInRegisters(const float4& x) {
  asm volatile("" ::"f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w));
}

// What a kernel before this one in the step writes.
template <typename T>
__device__ inline T ReadLate(const T* x) {
  return __ldcg(x);
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_REHEARSAL_CUH_
