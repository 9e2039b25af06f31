// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Copies from device to shared memory by the chip's copy engine, and the barriers in shared memory
// that say when they have arrived. A barrier completes a phase when as many threads have arrived as
// it counts and all bytes that were announced have come.
#ifndef RIVULET_KERNELS_DEVICE_BULK_COPY_CUH_
#define RIVULET_KERNELS_DEVICE_BULK_COPY_CUH_

#include <cstddef>
#include <cstdint>

namespace rivulet::cuda {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void InitBarrier(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(SharedAddress(barrier)),
               "r"(count));
}

// Makes initialised barriers visible to the cluster once it has met. A thread that begins copies
// before that needs a FenceBeforeBulkCopy, too.
__device__ inline void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

// A barrier is given by a pointer or by its address in shared memory.
__device__ inline void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
__device__ inline void Arrive(uint64_t* barrier) { Arrive(SharedAddress(barrier)); }

// Zero, which is there only when `x` is. Added to the address of an arrival, it keeps the arrival
// behind the load of `x` from shared memory. Without it the arrival may come first: it does not
// wait for loads that its warp has issued before. If it says that a slot is empty, the copy engine
// then overwrites what has not been read. (docs/gpu_notes.md#an-arrival-before-a-load)
__device__ inline uint32_t ZeroBehind(uint32_t x) {
  uint32_t zero;
  // Blocks have 32 threads or more, which the compiler does not know.
  asm volatile("shr.u32 %0, %1, %2;\n" : "=r"(zero) : "r"(x), "r"(blockDim.x));
  return zero;
}
// For ZeroBehind, of the sums of matrix instructions, each of which leaves four at once: behind
// them is everything that was multiplied for them.
template <int kTiles>
__device__ inline uint32_t BitsOfSums(const float (&sums)[kTiles][4]) {
  uint32_t all = 0;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) all |= __float_as_uint(sums[i][0]);
  return all;
}

// Arrives and announces so many bytes.
__device__ inline void ArriveExpecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

// Waits for the phase of this parity to end.
__device__ inline void WaitBarrier(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ready;\n"
      "bra again;\n"
      "ready:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ inline void WaitBarrier(uint64_t* barrier, uint32_t parity) {
  WaitBarrier(SharedAddress(barrier), parity);
}

// Whether it has ended.
__device__ inline bool TestBarrier(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.b32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}
__device__ inline bool TestBarrier(uint64_t* barrier, uint32_t parity) {
  return TestBarrier(SharedAddress(barrier), parity);
}

// `bytes` and both addresses are multiples of 16.
__device__ inline void BulkCopy(void* shared, const void* global, uint32_t bytes,
                                uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::
          "r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

// A policy for what nothing reads again in the step: it leaves L2 first, so that instructions,
// arguments and the rows of small kernels stay there.
__device__ inline uint64_t ReadOnce() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}

// The policy of copies that name none.
__device__ inline uint64_t ReadAgain() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}

// CopyAsync (arithmetic.cuh) with a policy of L2.
__device__ inline void CopyAsync(uint32_t shared, const void* global, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;\n" ::"r"(shared),
               "l"(global), "l"(policy));
}

// Asks for memory to be brought into L2. `bytes` and the address are multiples of 16.
__device__ inline void FetchToL2(const void* global, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(global), "r"(bytes));
}

// The same by `threads` threads of each block of a grid, each a share of it: for times at which
// memory would be idle.
__device__ inline void FetchShare(const std::byte* global, uint32_t bytes, uint32_t thread,
                                  uint32_t threads) {
  constexpr uint32_t kShare = 1024;
  const size_t block = blockIdx.x + blockIdx.y * gridDim.x;
  const size_t step = size_t{gridDim.x} * gridDim.y * threads * kShare;
  for (size_t at = (block * threads + thread) * kShare; at < bytes; at += step) {
    FetchToL2(global + at, min(kShare, bytes - static_cast<uint32_t>(at)));
  }
}
__device__ inline void FetchShare(const std::byte* global, uint32_t bytes) {
  FetchShare(global, bytes, threadIdx.x, blockDim.x);
}

// What this thread wrote to shared memory comes before what the copy engine writes there later.
__device__ inline void FenceBeforeBulkCopy() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Arrives when all of this thread's copies of 16 bytes (CopyAsync) have come.
__device__ inline void ArriveAfterCopies(uint64_t* barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(SharedAddress(barrier))
      : "memory");
}

// By a warp: each lane arrives when its copies have come, and the first one for what it has written
// itself. The barrier counts so many arrivals.
constexpr uint32_t kArrivalsWithCopies = 33;
__device__ inline void ArriveWithCopies(uint64_t* barrier) {
  ArriveAfterCopies(barrier);
  if (threadIdx.x % 32 == 0) Arrive(barrier);
}

// A place in a ring, and the parity of its round.
struct Ring {
  uint32_t at = 0, parity = 0;
  bool first_round = true;

  __device__ void Advance(uint32_t size) {
    if (++at == size) at = 0, parity ^= 1, first_round = false;
  }
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_BULK_COPY_CUH_
